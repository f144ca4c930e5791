"""Tells by their names what bounds kernels and operations: arithmetic, memory, communication, copies."""

from __future__ import annotations

import re
from enum import Enum
from functools import cache


class Regime(str, Enum):
    """What the time of a step goes to."""

    OVERHEAD = "overhead"
    INPUT = "input"
    READS = "host reads"
    COMPUTE = "compute"
    MEMORY = "memory"
    COMMUNICATION = "communication"


_ARITHMETIC = re.compile(
    r"gemm|gemv|matmul|cutlass|xmma|nvjet|wgmma|_mma|mma_|s16816|s1688|s884|h884|conv(?!ert)|wgrad|dgrad|fprop|winograd"
    r"|flash|fmha|attention|splitk|dot_kernel|triton_tem|lstm|gru_|persist|_fft|fft_",
    re.IGNORECASE,
)
_COLLECTIVES = re.compile(r"^(nccl|gloo|c10d|mpi|ucc)|ncclDev|ncclKernel|record_param_comms", re.IGNORECASE)
_OPERATIONS = re.compile(
    r"^aten::(_?addmm\w*|mm|mv|addmv|bmm|baddbmm|addbmm|dot|vdot|_?convolution\w*|mkldnn_\w+|thnn_conv\w*|slow_conv\w*"
    r"|\w*conv_depthwise\w*|_scaled_dot_product\w+|_efficient_attention\w*|_flash_attention\w*|_cudnn_attention\w*|_?thnn_fused\w+|lstm\w*"
    r"|cudnn_convolution\w*|linalg_\w+|_fft_\w+|_int_mm|_scaled_mm)$|^mkldnn::"
)
_FREE = re.compile(
    r"^aten::(view|_unsafe_view|reshape\w*|t|transpose|permute|as_strided\w*|expand\w*|slice|select|narrow|unsqueeze|squeeze"
    r"|detach\w*|alias|unbind|split\w*|chunk|unfold|empty\w*|resize_|set_|to|_to_copy|contiguous|result_type|linear|matmul"
    r"|item|_local_scalar_dense|is_nonzero|size|stride|numpy_T|lift_fresh|resolve_\w+|requires_grad_|conv[123]d|broadcast_\w+"
    r"|type_as|movedim|flatten|unflatten|diagonal|real|imag|swapaxes|_reshape_alias|equal|new_empty\w*|zeros|ones|full"
    r"|zeros_like|ones_like|full_like|rand|randn|randn_like|rand_like|cross_entropy_loss|layer_norm|batch_norm|dropout"
    r"|scaled_dot_product_attention|cosine_similarity|_batch_norm_impl_index|embedding)$"
)


@cache
def of_work(name: str) -> Regime:
    """What a kernel or copy on a GPU is, by its name; a copy to the host serves a read, one to the device is input."""
    if name.startswith("Memcpy"):
        return Regime.INPUT if "HtoD" in name else Regime.READS if "DtoH" in name else Regime.MEMORY
    if _COLLECTIVES.search(name):
        return Regime.COMMUNICATION
    return Regime.COMPUTE if _ARITHMETIC.search(name) else Regime.MEMORY


@cache
def of_operation(name: str) -> Regime:
    """What an operation on a CPU does itself, without those that it calls: none of the work but overhead, at times."""
    if _COLLECTIVES.search(name):
        return Regime.COMMUNICATION
    if _OPERATIONS.match(name):
        return Regime.COMPUTE
    return Regime.OVERHEAD if not name.startswith("aten::") or _FREE.match(name) else Regime.MEMORY
