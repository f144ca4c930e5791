"""The facts about torch that neither its stubs nor its operators' tags hold, each with its reason."""

from __future__ import annotations

# Methods that copy to the host or read a value there, but are no tagged operators: written in Python or C++ above
# the dispatcher. A copy to the device, as .cuda() makes of a host tensor, waits only for unpinned host memory and
# is no read of the device; .to() is the reader's to judge by its arguments.
SYNCING_METHODS = frozenset(
    "cpu item is_nonzero numpy tolist __array__ __bool__ __complex__ __contains__ __dlpack__ __float__ __format__ "
    "__index__ __int__ __nonzero__ __repr__".split()
)

# What methods return that are missing from the stubs, or typed there as less than they are.
METHODS = {
    "numpy": "numpy",
    "__array__": "numpy",
    "__format__": "str",
    "__getitem__": "tensor view",  # waits if the index is a mask, copies if it is a tensor: only the index can tell
    "__iter__": "other",
    "__setitem__": "none",
    "__len__": "number",
    "__repr__": "str",
    "backward": "none",
    "data_ptr": "other",  # a number through which the memory is read and written
    "is_shared": "bool",
    "item": "number",
    "norm": "tensor reduction",
    "register_hook": "other",
    "share_memory_": "tensor",
    "split": "tuple view",
    "stft": "tensor",
    "storage": "other",
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
    "torch.autograd.backward": "none",
    "torch.is_tensor": "bool",
    "torch.numel": "number",
    "torch.unique": "tensor syncs | return_inverse@2:true tuple syncs | return_counts@3:true tuple syncs",
    "torch.unique_consecutive": "tensor syncs | return_inverse@1:true tuple syncs | return_counts@2:true tuple syncs",
    "torch.nn.functional.one_hot": "tensor dtype=int syncs | num_classes@1:given tensor dtype=int",
}

# Elementwise operators which torch has not tagged pointwise.
POINTWISE_OPERATORS = frozenset(
    f"aten::{name}" for name in ("floor_divide", "hardswish", "log_sigmoid_forward", "masked_fill", "rsub")
)

# Operators that read a status from the device to raise an error, without a tag that says so.
CHECKING_OPERATORS = frozenset(["aten::_linalg_check_errors"])

# The functions of Python's operators; reflected and augmented ones have an r or an i before them.
OPERATORS = {
    **{name: name for name in ("abs", "add", "eq", "ge", "gt", "le", "lt", "matmul", "mul", "ne", "neg", "pow", "sub")},
    "rsub": "rsub",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pos": "positive",
    "div": "div",
}

# Functions which share their name with others, or their documentation, and do something else.
NAMES = {
    "torch.nn.functional.unfold": "im2col",
    "torch.nn.functional.fold": "col2im",
    "torch.true_divide": "true_divide",  # which never rounds, as div is documented to be able to
    "torch.Tensor.true_divide": "true_divide",
    "torch.Tensor.true_divide_": "true_divide",
}

# What is known of results' memory and of writes beyond schemas and calls on small tensors on the CPU.
MEMORY = {
    # The running statistics are written while training.
    "torch.nn.functional.batch_norm": "writes=running_mean@1?training@5,running_var@2?training@5",
    "torch.nn.functional.instance_norm": "writes=running_mean@1?use_input_stats@5,running_var@2?use_input_stats@5",
    "torch.batch_norm": "writes=running_mean@3?training@5,running_var@4?training@5",
    "torch.instance_norm": "writes=running_mean@3?use_input_stats@5,running_var@4?use_input_stats@5",
    # Rows of the table are rescaled in place where max_norm is given.
    "torch.nn.functional.embedding": "writes=weight@1?max_norm@3",
    "torch.nn.functional.embedding_bag": "writes=weight@1?max_norm@3",
    # Moves give back their own tensor where it lies there already, which on the CPU is always.
    "torch.Tensor.cpu": "may=self",
    "torch.Tensor.cuda": "may=self",
    "torch.Tensor.xpu": "may=self",
    "torch.Tensor.pin_memory": "may=self",
    "torch.Tensor.to_dense": "may=self",
    "torch.Tensor.coalesce": "may=self",
    "torch.Tensor.to_sparse": "may=self",
    # Casts give back their own tensor where it is of that type already.
    "torch.Tensor.type": "may=self",
    "torch.Tensor.type_as": "may=self",
    "torch.Tensor.to": "may=self",
    # It views where the layout lets it.
    "torch.Tensor.reshape_as": "may=self",
    # Only conjugates and negatives that are yet to be computed are copied.
    "torch.resolve_conj": "may=input@0",
    "torch.resolve_neg": "may=input@0",
    "torch.Tensor.resolve_conj": "may=self",
    "torch.Tensor.resolve_neg": "may=self",
    # The schema says that their parts are fresh, for autograd's sake.
    "torch.unsafe_split": "views=input@0",
    "torch.unsafe_split_with_sizes": "views=input@0",
    "torch.Tensor.unsafe_split": "views=self",
    "torch.Tensor.unsafe_split_with_sizes": "views=self",
    # Written in Python, without annotations.
    "torch.split": "views=tensor@0",
    "torch.functional.split": "views=tensor@0",
    "torch.Tensor.split": "views=self",
    "torch.Tensor.unflatten": "views=self",
    # A tensor of another class on the same memory.
    "torch.Tensor.as_subclass": "views=self",
    # What the index is decides between a view and a copy.
    "torch.Tensor.__getitem__": "may=self",
    "torch.Tensor.__setitem__": "writes=self",
    "torch.Tensor.__iter__": "views=self",
    # The memory is shared with numpy, and with others by DLPack.
    "torch.Tensor.numpy": "views=self",
    "torch.Tensor.__array__": "may=self",
    "torch.Tensor.__dlpack__": "views=self",
    "torch.Tensor.storage": "views=self",
    "torch.Tensor.untyped_storage": "views=self",
    "torch.Tensor.data_ptr": "views=self",
    "torch.from_numpy": "views=ndarray@0",
    "torch.frombuffer": "views=buffer@0",
    "torch.from_dlpack": "views=ext_tensor@0",
    "torch.as_tensor": "may=data@0",
    "torch.asarray": "may=obj@0",
    # Without training, or with no chance of it, nothing is dropped and the input itself comes back.
    "torch.nn.functional.dropout": "may=input@0",
    "torch.nn.functional.alpha_dropout": "may=input@0",
    "torch.nn.functional.dropout1d": "may=input@0",
    "torch.nn.functional.dropout2d": "may=input@0",
    "torch.nn.functional.dropout3d": "may=input@0",
    "torch.nn.functional.feature_alpha_dropout": "may=input@0",
    "torch.nn.Unflatten": "views=input@0",
    # Permuting letters only is a view.
    "torch.einsum": "may=operands@1*",
    # They change gradients, or the parameters themselves.
    "torch.nn.utils.clip_grad_norm_": "writes=parameters@0[]",
    "torch.nn.utils.clip_grad_value_": "writes=parameters@0[]",
    "torch.nn.utils.clip_grads_with_norm_": "writes=parameters@0[]",
    "torch.utils.swap_tensors": "writes=t1@0,t2@1",
    "torch.nn.utils.vector_to_parameters": "writes=parameters@1[]",
    # Collectives write what they receive.
    "torch.distributed.all_reduce": "writes=tensor@0",
    "torch.distributed.broadcast": "writes=tensor@0",
    "torch.distributed.reduce": "writes=tensor@0",
    "torch.distributed.recv": "writes=tensor@0",
    "torch.distributed.irecv": "writes=tensor@0",
    "torch.distributed.scatter": "writes=tensor@0",
    "torch.distributed.gather": "writes=gather_list@1[]",
    "torch.distributed.all_gather": "writes=tensor_list@0[]",
    "torch.distributed.all_gather_into_tensor": "writes=output_tensor@0",
    "torch.distributed.all_to_all": "writes=output_tensor_list@0[]",
    "torch.distributed.all_to_all_single": "writes=output@0",
    "torch.distributed.reduce_scatter": "writes=output@0",
    "torch.distributed.reduce_scatter_tensor": "writes=output@0",
}

# Attributes that are tensors of their own, and show no memory of the tensor that has them.
OWN_TENSORS = frozenset(["grad"])

# In place by their name, but no value, shape or type that another name of the tensor would show changes.
WRITES_NO_VALUES = frozenset(["torch.Tensor.requires_grad_", "torch.Tensor.share_memory_"])

_CASTS = "to type type_as float double half bfloat16 long int short char byte bool cfloat cdouble chalf"
_MOVES = "to cuda cpu xpu ipu pin_memory"
_LIKE = "zeros_like ones_like rand_like randn_like empty_like full_like"
_FLOATS = "float double half bfloat16 softmax log_softmax cosine_similarity erf"

# Traits of operations that nothing in torch tells, by canonical names; operation.py says what each means.
TRAITS = {
    trait: frozenset(names.split())
    for trait, names in {
        "cast": _CASTS,
        "move": _MOVES,
        "to_device": "to cuda type type_as",
        "adopting": "set_ swap_tensors",
        "differentiating": "backward autograd.backward nn.utils.clip_grad_norm nn.utils.clip_grad_norm_"
        " nn.utils.clip_grad_value_ nn.utils.clip_grads_with_norm_",
        "linear": "add sub rsub eq ne lt le gt ge cat stack hstack vstack dstack column_stack copy_ neg sum"
        " logical_and logical_or logical_not bitwise_and bitwise_or bitwise_xor bitwise_not",
        "applying": "apply_ map_ map2_",
        "copying": "clone repeat triu tril fill zero_",
        "to_host": "cpu item numpy tolist",
        "counting": "nonzero masked_select argwhere unique unique_consecutive is_nonzero allclose equal",
        "keeping": f"{_CASTS} {_MOVES} squeeze unsqueeze view view_as reshape flatten unflatten ravel transpose permute"
        " t movedim narrow select expand expand_as detach clone contiguous requires_grad_ chunk split unbind numpy",
        "measuring": "shape dtype device ndim is_cuda size dim numel get_device",
        "strided": "view view_as stride is_contiguous as_strided storage_offset data_ptr numpy storage untyped_storage"
        " resize resize_as set_ is_set_to",
        "any_strides": "as_strided asarray as_tensor diagonal empty_permuted empty_strided from_dlpack from_numpy",
        "in_order": "contiguous repeat tile",
        "layout_blind": "contiguous reshape reshape_as flatten ravel tolist item",
        "restriding": "unsqueeze squeeze transpose permute t movedim narrow select expand expand_as detach diagonal",
        "permuting": "transpose permute t movedim",
        "parting": "chunk split unbind tensor_split",
        "joining": "cat stack hstack vstack dstack column_stack",
        "matmul": "matmul bmm mm baddbmm einsum",
        "indexing": "gather take_along_dim masked_select index_select scatter scatter_add scatter_reduce index_add"
        " index_copy masked_scatter",
        "repeating": "repeat tile repeat_interleave",
        "vmapped": "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy"
        " binary_cross_entropy_with_logits",
        "distance": "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits"
        " kl_div cosine_similarity pairwise_distance margin_ranking_loss gaussian_nll_loss poisson_nll_loss",
        "choosing": "argmax multinomial topk argsort gumbel_softmax",
        "pairing": "max min median mode kthvalue cummax cummin sort topk",
        "same_shape": f"{_CASTS} {_MOVES} {_LIKE} contiguous clone detach requires_grad_ softmax log_softmax cumsum"
        " cumprod logcumsumexp triu tril flip roll normalize dropout Identity",
        "sized": f"zeros ones empty full rand randn {_LIKE} new_zeros new_ones new_empty new_full",
        "filling": "full full_like new_full fill",
        "of_data": "tensor as_tensor asarray new_tensor",
        "line": "arange linspace logspace randperm",
        "updating": "add sub index_add index_fill scatter_add index_put scatter index_copy masked_fill masked_scatter"
        " scatter_reduce",
        "replacing": "copy_ fill zero_",
        "taking_sizes": "zeros ones empty rand randn randint randperm arange eye new_zeros new_ones new_empty view"
        " reshape repeat expand narrow split chunk roll unfold tile topk",
        "making_floats": f"{_FLOATS} mean std var norm sigmoid tanh exp log log2 log10 sqrt rsqrt logsumexp true_divide"
        " sin cos",
        "making_reals": f"{_FLOATS} abs norm real imag angle std var view_as_real size numel max min amax amin clamp"
        " relu",
        "combining": "add mul sub",
        "tracking": "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d"
        " InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d",
        "making_longs": "sum prod argmax argmin count_nonzero",
        "same_kind": "sum max min amax amin detach cpu cuda abs squeeze unsqueeze view reshape flatten contiguous clone"
        " data prod clamp relu neg t transpose permute expand mul add sub",
        "unmistakable": "size float long double half unsqueeze detach cuda expand_as type_as view_as",
    }.items()
}
