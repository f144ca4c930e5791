"""What torch's operations do: one table, generated from torch and completed by hand.

`of_function`, `of_method`, `of_attribute` and their like give an Operation by its name in a program; nothing else in
perflint lists names of torch's operations. What neither torch's schemas, signatures nor calls tell is in
generate/by_hand.py.
"""

from perflint.torch_ops.operation import (
    FALSE,
    NONE,
    NUMBER,
    OTHER,
    RECEIVER,
    RESULTS,
    TENSOR,
    TRAITS,
    TRUE,
    UNKNOWN,
    Argument,
    Operation,
    Trait,
    Variant,
)
from perflint.torch_ops.table import (
    PATH,
    canonical,
    class_kind,
    does,
    exports,
    is_exported,
    of_attribute,
    of_distribution,
    of_forward,
    of_function,
    of_method,
    of_name,
    short_name,
    writes_in_place,
)

__all__ = [
    "FALSE",
    "NONE",
    "NUMBER",
    "OTHER",
    "PATH",
    "RECEIVER",
    "RESULTS",
    "TENSOR",
    "TRAITS",
    "TRUE",
    "UNKNOWN",
    "Argument",
    "Operation",
    "Trait",
    "Variant",
    "canonical",
    "class_kind",
    "does",
    "exports",
    "is_exported",
    "of_attribute",
    "of_distribution",
    "of_forward",
    "of_function",
    "of_method",
    "of_name",
    "short_name",
    "writes_in_place",
]
