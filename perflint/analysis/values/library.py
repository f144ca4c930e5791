"""Evaluates calls of library functions and classes: Python's own, torch's, numpy's and the like."""

from __future__ import annotations

import ast
from collections.abc import Callable

from perflint import torch_ops
from perflint.analysis.values.arguments import Arguments
from perflint.analysis.values.evaluate import Evaluator
from perflint.analysis.values.methods import dtype_of, from_entry, inner_on_device, moved_to
from perflint.analysis.values.operators import common_place
from perflint.analysis.values.values import (
    GUESSED_TENSOR,
    HOST_TENSOR,
    NUMBER,
    NUMPY,
    OTHER,
    STRING,
    UNKNOWN,
    Kind,
    Place,
    Value,
    contains_tensor,
    element_of,
    join_all,
    joined_element,
    mapping,
    sequence,
    sequence_of,
    tensor,
)

_PASS_THROUGH = frozenset({"iter", "list", "tuple", "sorted", "reversed", "set"})
_NUMBERS = frozenset(
    {
        "len",
        "int",
        "float",
        "bool",
        "abs",
        "round",
        "hash",
        "id",
        "isinstance",
        "issubclass",
        "hasattr",
        "callable",
        "ord",
        "pow",
        "any",
        "all",
    }
)
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDP", "DDP")
_MODULE_FACTORIES = (
    "torchvision.models.",
    "timm.create_model",
    "torch.hub.load",
    "segmentation_models_pytorch.",
    "transformers.Auto",
)
_TOKENIZERS = ("Tokenizer.from_pretrained", "TokenizerFast.from_pretrained", "Processor.from_pretrained")


def library_call(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value:
    """What a call of the library's `callee.name` gives."""
    name = callee.name
    head, _, rest = name.partition(".")
    if head == "builtins":
        return _builtin(evaluator, rest, arguments)
    if head == "torch":
        return _torch(evaluator, callee, node, arguments)
    if head in ("numpy", "cupy", "scipy"):
        return Value(Kind.OTHER, name="numpy.random") if name.endswith((".default_rng", ".RandomState")) else NUMPY
    if head in ("math", "time", "os", "random"):
        return NUMBER if head != "os" else STRING if rest != "cpu_count" else NUMBER
    handler = _HANDLERS.get(name) or _HANDLERS.get(f"{head}.*")
    if handler is not None:
        return handler(evaluator, node, arguments)
    if name.endswith("Loader") and "oader" in name:
        return Value(Kind.LOADER, sure=False, name=name, item=tensor(Place.HOST, sure=False))
    if name.startswith(_MODULE_FACTORIES) or (
        name.endswith(".from_pretrained") and ("Model" in name or ".For" in name or "For" in name)
    ):
        return Value(Kind.MODULE, sure=False, name="tokenizer" if name.endswith(_TOKENIZERS) else "")
    if name.endswith(_TOKENIZERS):
        return Value(Kind.UNKNOWN, name="tokenizer")
    if name.startswith("torchvision.datasets."):
        return Value(Kind.DATASET, name=name)
    if name.rpartition(".")[2][:1].isupper():
        return Value(Kind.UNKNOWN, name=name)  # an instance of that class, whatever it is
    return GUESSED_TENSOR if inner_on_device(arguments) else UNKNOWN


def _builtin(evaluator: Evaluator, name: str, arguments: Arguments) -> Value:
    first = arguments.positional[0] if arguments.positional else UNKNOWN
    if "key" in arguments.keywords:
        _compute_key(evaluator, arguments.keywords["key"], element_of(first))
    if name in _NUMBERS:
        return NUMBER._replace(name=first.name) if name == "int" and first.name == "modulo" else NUMBER
    if name in _PASS_THROUGH:
        return (
            first
            if first.kind in (Kind.LOADER, Kind.SEQUENCE)
            else sequence_of(element_of(first))
            if arguments.positional
            else sequence(())
        )
    if name == "enumerate":
        return _like(first, sequence((NUMBER, element_of(first))))
    if name == "zip":
        return _zip(arguments.positional)
    if name == "range":
        return sequence_of(NUMBER)
    if name == "next":
        return element_of(first)
    if name in ("min", "max", "sum"):
        parts = arguments.positional if len(arguments.positional) > 1 and name != "sum" else (element_of(first),)
        return join_all(parts)
    if name == "map":
        return sequence_of(_mapped(evaluator, first, arguments))
    if name == "filter" and len(arguments.positional) == 2:
        return sequence_of(element_of(arguments.positional[1]))
    if name == "dict":
        known = first if first.kind is Kind.MAPPING else mapping((), complete=not arguments.positional)
        entries = [*zip(known.keys, known.items or (), strict=False), *arguments.keywords.items()]
        return mapping(entries, complete=known.sure and not arguments.open)
    if name == "getattr" and len(arguments.positional) > 1 and isinstance(arguments.positional[1].literal, str):
        return evaluator.attribute_of(first, arguments.positional[1].literal)
    return STRING if name in ("str", "repr", "input", "format") else OTHER if name == "print" else UNKNOWN


def _compute_key(evaluator: Evaluator, key: Value, element: Value) -> None:
    """Let the function by which `sorted` and the like compare know what it is given."""
    info = evaluator.functions.get(key.node) if key.node is not None else None
    if info is not None and isinstance(info.node, ast.Lambda) and len(info.node.args.args) == 1:
        evaluator.call_function(info, {info.node.args.args[0].arg: element}, info.node)


def _like(iterable: Value, item: Value) -> Value:
    """A sequence of `item`, which still yields batches if `iterable` did."""
    if iterable.kind is Kind.LOADER:
        return iterable._replace(item=item)
    return sequence_of(item)


def _zip(iterables: tuple[Value, ...]) -> Value:
    item = sequence(element_of(value) for value in iterables)
    loader = next((value for value in iterables if value.kind is Kind.LOADER), UNKNOWN)
    return _like(loader, item)


def _mapped(evaluator: Evaluator, function: Value, arguments: Arguments) -> Value:
    item = joined_element(arguments.positional[1:])
    if function.kind is Kind.LIBRARY and function.name in ("builtins.int", "builtins.float", "builtins.len"):
        return NUMBER
    info = evaluator.functions.get(function.node) if function.node is not None else None
    if info is not None and info.returns is not None:
        return info.returns
    return item._replace(sure=False) if item.kind is Kind.TENSOR else UNKNOWN


# -- torch


def _torch(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value:
    name = callee.name
    special = _TORCH.get(name)
    if special is not None:
        return special(evaluator, node, arguments)
    kind = torch_ops.class_kind(name)
    if kind is not None:
        return _torch_instance(evaluator, callee, kind, node, arguments)
    entry = torch_ops.of_function(name)
    if entry is not None:
        entry = arguments.select(entry)
        result = from_entry(entry, _place_of_result(evaluator, entry, arguments))
        typed = arguments.keywords.get("dtype") if result.kind is Kind.TENSOR else None
        return result._replace(dtype=dtype_of(typed)) if typed is not None else result
    return GUESSED_TENSOR if inner_on_device(arguments) else UNKNOWN


def _place_of_result(evaluator: Evaluator, entry: torch_ops.Operation, arguments: Arguments) -> Place:
    if "device" in arguments.keywords:
        return moved_to(Value(Kind.TENSOR, Place.UNKNOWN), Arguments((arguments.keywords["device"],), {}, False))
    if "out" in arguments.keywords and arguments.keywords["out"].kind is Kind.TENSOR:
        return arguments.keywords["out"].place
    tensors = [inner for value in arguments.all if (inner := contains_tensor(value)) is not None]
    if "factory" in entry.traits and not tensors:
        return Place.HOST if not evaluator.default_device_set else Place.DEVICE
    if "factory" in entry.traits:  # torch.tensor(t), torch.full((), t): made on the host all the same
        return Place.HOST
    return common_place(tensors) if tensors else evaluator.usual_place


def _torch_instance(evaluator: Evaluator, callee: Value, kind: str, node: ast.Call, arguments: Arguments) -> Value:
    name = callee.name
    first = arguments.positional[0] if arguments.positional else UNKNOWN
    if name.endswith(_WRAPPERS) and first.kind is Kind.MODULE:
        return first
    if kind in ("module", "rnn", "rnn-cell", "loss", "container", "dropout"):
        item = joined_element(arguments.positional) if name.endswith("ModuleList") else join_all(arguments.positional)
        parts = arguments.positional if name.endswith("Sequential") and not arguments.open else None
        return Value(Kind.MODULE, name=name, items=parts, item=item if item.kind is Kind.MODULE else None)
    if kind == "loader":
        return Value(Kind.LOADER, name=name, item=_batch_of(first), node=node)
    if kind in ("dataset", "iterable-dataset"):
        inner = join_all(arguments.positional)
        return Value(Kind.DATASET, name=name, item=inner if inner.kind is Kind.TENSOR else None)
    if kind == "distribution":
        return Value(Kind.OTHER, common_place([v for v in arguments.all if v.kind is Kind.TENSOR]), name="distribution")
    if kind == "optimizer":
        return Value(Kind.OPTIMIZER, name=name)
    if kind == "parameter":
        return tensor(evaluator.module_place)
    if kind == "tensor-type":
        is_mask = name.endswith(("BoolTensor", "ByteTensor"))  # uint8 selects like bool, and was there before it
        return tensor(Place.DEVICE if ".cuda." in name else Place.HOST, dtype="bool" if is_mask else "")
    return Value(Kind.OTHER, name=kind)


def _batch_of(dataset: Value) -> Value:
    if dataset.kind is Kind.DATASET and dataset.item is not None and dataset.item.on_device:
        return sequence_of(dataset.item)
    return tensor(Place.HOST, sure=False)


def _device(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    target = arguments.get(0, "device") or UNKNOWN
    on_host = target.is_literal and isinstance(target.literal, str) and target.literal.startswith("cpu")
    return Value(Kind.DEVICE, Place.HOST if on_host else Place.DEVICE)


def _first(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    return arguments.positional[0] if arguments.positional else UNKNOWN


def _variable(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    wrapped = _first(evaluator, node, arguments)
    return wrapped._replace(sure=True, name="") if wrapped.kind is Kind.TENSOR else wrapped  # which takes nothing else


def _partial(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    callee = _first(evaluator, node, arguments)
    return callee._replace(item=mapping(arguments.keywords.items(), complete=not arguments.open))


def _chain(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    loader = next((value for value in arguments.positional if value.kind is Kind.LOADER), None)
    return loader or sequence_of(joined_element(arguments.positional))


def _parser(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    return Value(Kind.OTHER, name="argparse.ArgumentParser")


def _host(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    return HOST_TENSOR


def _compiled(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    return _first(evaluator, node, arguments)


def _gradient_norm(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    return tensor(evaluator.module_place)


def _packed(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    return _first(evaluator, node, arguments)._replace(sure=False)  # its attribute `data` is a tensor


def _unpacked(evaluator: Evaluator, node: ast.Call, arguments: Arguments) -> Value:
    packed = _first(evaluator, node, arguments)
    return sequence((packed._replace(sure=True) if packed.kind is Kind.TENSOR else packed, HOST_TENSOR))


_Handler = Callable[[Evaluator, ast.Call, Arguments], Value]
_TORCH: dict[str, _Handler] = {
    "torch.device": _device,
    "torch.compile": _compiled,
    "torch.jit.script": _first,
    "torch.autograd.Variable": _variable,
    "torch.from_numpy": _host,
    "torch.nn.utils.clip_grad_norm_": _gradient_norm,
    "torch.nn.utils.rnn.pack_padded_sequence": _packed,
    "torch.nn.utils.rnn.pad_packed_sequence": _unpacked,
    "torch.cuda.is_available": lambda evaluator, node, arguments: NUMBER,
}
_HANDLERS: dict[str, _Handler] = {
    "tqdm.*": _first,
    "copy.deepcopy": _first,
    "copy.copy": _first,
    "functools.partial": _partial,
    "itertools.chain": _chain,
    "itertools.islice": _first,
    "itertools.cycle": _first,
    "itertools.count": lambda evaluator, node, arguments: sequence_of(NUMBER),
    "rich.progress.track": _first,
    "argparse.ArgumentParser": _parser,
}
