"""How often code runs, and where the host waits for the device."""
