"""What a patched program may use while it runs; unlike the rest of perflint, its modules need torch."""
