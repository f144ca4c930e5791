"""Memory: which expressions may be aliases, and what writes to them."""
