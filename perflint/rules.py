"""Opens the folder of rules, shipped inside the wheel or beside the checkout, as the package `perflint.rules`."""

from pathlib import Path

_here = Path(__file__).parent
_shipped = _here / "rules"
__path__ = [str(_shipped if _shipped.is_dir() else _here.parent / "rules")]
