"""perflint: a performance linter and auto-patcher for PyTorch."""

__version__ = "0.1.0"
