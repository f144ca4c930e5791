"""The facts about torch that neither its stubs nor its operators' tags hold, each with its reason."""

from __future__ import annotations

# Methods that copy to the host or read a value there, but are no tagged operators: written in Python or C++ above
# the dispatcher. A copy to the device, as .cuda() makes of a host tensor, waits only for unpinned host memory and
# is no read of the device; .to() is the reader's to judge by its arguments.
SYNCING_METHODS = frozenset(
    [
        *("cpu", "item", "is_nonzero", "numpy", "tolist"),
        *("__array__", "__bool__", "__complex__", "__contains__", "__dlpack__", "__float__", "__format__", "__index__"),
        *("__int__", "__nonzero__", "__repr__"),
    ]
)

# What methods return that are missing from the stubs, or typed there as less than they are.
METHODS = {
    "numpy": "numpy",
    "__array__": "numpy",
    "__format__": "str",
    "__getitem__": "tensor view",  # waits if the index is a mask, copies if it is a tensor: only the index can tell
    "__iter__": "other",
    "__len__": "number",
    "__repr__": "str",
    "backward": "none",
    "is_shared": "bool",
    "item": "number",
    "norm": "tensor reduction",
    "register_hook": "other",
    "share_memory_": "tensor inplace",
    "split": "tuple view",
    "stft": "tensor",
    "istft": "tensor",
    "tolist": "list",
    "unflatten": "tensor view",
    "unique": "tensor syncs | return_inverse@1:true tuple syncs | return_counts@2:true tuple syncs",
    "unique_consecutive": "tensor syncs | return_inverse@0:true tuple syncs | return_counts@1:true tuple syncs",
}

# Functions whose syncing depends on an argument's default, or that are C++ above the dispatcher.
FUNCTIONS = {
    "torch.as_tensor": "tensor factory",
    "torch.from_numpy": "tensor factory",
    "torch.frombuffer": "tensor factory",
    "torch.from_dlpack": "tensor factory",
    "torch.is_tensor": "bool",
    "torch.numel": "number",
    "torch.unique": "tensor syncs | return_inverse@2:true tuple syncs | return_counts@3:true tuple syncs",
    "torch.unique_consecutive": "tensor syncs | return_inverse@1:true tuple syncs | return_counts@2:true tuple syncs",
    "torch.nn.functional.one_hot": "tensor =int syncs | num_classes@1:given tensor =int",
}

# Elementwise operators which torch has not tagged pointwise.
POINTWISE_OPERATORS = frozenset(["aten::floor_divide", "aten::masked_fill", "aten::rsub"])

# Operators that read a status from the device to raise an error, without a tag that says so.
CHECKING_OPERATORS = frozenset(["aten::_linalg_check_errors"])
