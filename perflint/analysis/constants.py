"""Sets of named constants, such as kinds of values, that the analyses tell apart all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Constants"]

if TYPE_CHECKING:
    from enum import Enum as Constants
else:

    class Constants:
        """An Enum whose members are found as fast as other attributes of a class, which Python's are from 3.12 on."""

        def __init_subclass__(cls) -> None:
            for name, value in [*vars(cls).items()]:
                if name.isupper():
                    member = cls()
                    member.name, member.value = name, value
                    setattr(cls, name, member)

        def __repr__(self) -> str:
            return f"{type(self).__name__}.{self.name}"
