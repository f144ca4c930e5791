"""Errors that the user caused."""


class UserError(Exception):
    """Something that the user can put right: one clear line for them, and exit code 2."""
