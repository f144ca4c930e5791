"""What of the verifier runs in the user's own processes."""
