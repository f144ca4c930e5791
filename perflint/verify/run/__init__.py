"""Programs that run under the verifier: let go, paused, ended."""
