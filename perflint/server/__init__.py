"""The language server: findings, fixes and rule pages in an editor."""
