"""Whether variants compute the same: what is recorded of them, held side by side."""
