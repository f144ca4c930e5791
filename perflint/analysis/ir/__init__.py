"""Definitions and uses: which assignment reaches which read."""
