"""Evaluates calls of functions and classes of the file, of modules, methods and libraries."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from perflint import torch_ops
from perflint.analysis.values.classes import MODULES
from perflint.analysis.values.codes import targets_of, value_at_home, value_of
from perflint.analysis.values.evaluate import Evaluator
from perflint.analysis.values.methods import dtype_of, from_entry, method_call, moved_to
from perflint.analysis.values.operators import Arguments, common_place, received
from perflint.analysis.values.values import (
    HOST_TENSOR,
    LIKELY_HOST_TENSOR,
    NUMBER,
    NUMPY,
    OR,
    OTHER,
    STRING,
    UNKNOWN,
    Kind,
    Place,
    Value,
    element_of,
    join,
    join_all,
    library,
    mapping,
    sequence,
    sequence_of,
    tensor,
)
from perflint.syntax.scopes import keyword_of
from perflint.syntax.walk import path_of
from perflint.torch_ops import libraries

_NUMBERS = frozenset(
    "len int float bool abs round hash id isinstance issubclass hasattr callable ord pow any all".split()
)
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDP", "DDP")
_MODULE_FACTORIES = (
    *("torchvision.models.", "timm.create_model", "torch.hub.load", "segmentation_models_pytorch."),
    "transformers.Auto",
)
_TOKENIZERS = ("Tokenizer.from_pretrained", "TokenizerFast.from_pretrained", "Processor.from_pretrained")


def _library_call(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value:
    name = callee.name
    head, _, rest = name.partition(".")
    if head == "builtins":
        return _builtin(evaluator, rest, arguments)
    handler = _HANDLERS.get(name) or _HANDLERS.get(f"{head}.*")
    if handler is not None:
        return handler(evaluator, arguments)
    if head == "torch":
        return _torch(evaluator, name, node, arguments)
    if libraries.makes_generator(name):
        return Value(Kind.OTHER, name="random" if head == "random" else "numpy.random")
    if head in ("numpy", "cupy", "scipy"):
        return NUMPY
    if head in ("math", "time", "os", "random"):
        return STRING if head == "os" and rest != "cpu_count" else NUMBER
    if name.endswith("Loader") and "oader" in name:
        return Value(Kind.LOADER, sure=False, name=name, item=LIKELY_HOST_TENSOR)
    if name.startswith(_MODULE_FACTORIES) or (name.endswith(".from_pretrained") and ("Model" in name or "For" in name)):
        return Value(Kind.MODULE, sure=False, name="tokenizer" if name.endswith(_TOKENIZERS) else "")
    if name.startswith("torchvision.datasets."):
        return Value(Kind.DATASET, name=name)
    if name.endswith(_TOKENIZERS) or name.rpartition(".")[2][:1].isupper():  # an instance of a class, whatever it is
        return Value(Kind.UNKNOWN, name="tokenizer" if name.endswith(_TOKENIZERS) else name)
    return arguments.derived


# -- Python


def _builtin(evaluator: Evaluator, name: str, arguments: Arguments) -> Value:
    given, first = arguments.positional, arguments.first
    if "key" in arguments.keywords:
        _compute_key(evaluator, arguments.keywords["key"], element_of(first))
    if name in _NUMBERS:
        return NUMBER._replace(name=first.name) if name == "int" and first.name == "modulo" else NUMBER
    if name in _PYTHON:
        return _PYTHON[name](given, first)
    if name in ("min", "max", "sum"):
        return join_all(given) if len(given) > 1 and name != "sum" else element_of(first)
    if name == "map":
        return sequence_of(_mapped(evaluator, first, given[1:]))
    if name == "dict":
        known = first if first.kind is Kind.MAPPING else mapping((), complete=not given)
        return known.with_entries(arguments.keywords, complete=known.sure and not arguments.open)
    if name == "getattr" and len(given) > 1 and isinstance(given[1].literal, str):
        return evaluator.attribute_of(first, given[1].literal)
    return UNKNOWN


def _compute_key(evaluator: Evaluator, key: Value, element: Value) -> None:
    """Tell the function by which `sorted` and the like compare what it is given."""
    info = evaluator.function(key)
    if info is not None and isinstance(info.node, ast.Lambda) and len(info.node.args.args) == 1:
        evaluator.call_function(info, {info.node.args.args[0].arg: element}, None)


def _same_items(given: tuple[Value, ...], first: Value) -> Value:
    if first.kind in (Kind.LOADER, Kind.SEQUENCE):
        return first
    return sequence_of(element_of(first)) if given else sequence(())


def _like(item: Value, *iterables: Value) -> Value:
    """A sequence of `item`, which still yields batches if one of `iterables` did."""
    loader = next((each for each in iterables if each.kind is Kind.LOADER), None)
    return loader._replace(item=item) if loader is not None else sequence_of(item)


_PYTHON: dict[str, Callable[[tuple[Value, ...], Value], Value]] = {
    **dict.fromkeys("iter list tuple sorted reversed set".split(), _same_items),
    **dict.fromkeys("str repr input format".split(), lambda given, first: STRING),
    "print": lambda given, first: OTHER,
    "enumerate": lambda given, first: _like(sequence((NUMBER, element_of(first))), first),
    "zip": lambda given, first: _like(sequence(map(element_of, given)), *given),
    "range": lambda given, first: sequence_of(NUMBER),
    "next": lambda given, first: element_of(first),
    "filter": lambda given, first: sequence_of(element_of(given[1])) if len(given) == 2 else UNKNOWN,
}


def _mapped(evaluator: Evaluator, function: Value, iterables: tuple[Value, ...]) -> Value:
    if function.kind is Kind.LIBRARY and function.name in ("builtins.int", "builtins.float", "builtins.len"):
        return NUMBER
    info = evaluator.function(function)
    if info is not None and info.returns is not None:
        return info.returns
    item = join_all(map(element_of, iterables))
    return item._replace(sure=False) if item.kind is Kind.TENSOR else UNKNOWN


# -- torch


def _torch(evaluator: Evaluator, name: str, node: ast.Call, arguments: Arguments) -> Value:
    made = name.removesuffix(".from_pretrained")  # of an embedding
    if (kind := torch_ops.class_kind(made)) is not None:
        return _torch_instance(evaluator, made, kind, node, arguments)
    entry = torch_ops.of_function(name)
    if entry is None:
        return arguments.derived
    entry = arguments.select(entry)
    result = from_entry(entry, _place_of_result(evaluator, entry, arguments))
    typed = arguments.keywords.get("dtype") if result.kind is Kind.TENSOR else None
    return result._replace(dtype=dtype_of(typed)) if typed is not None else result


def _place_of_result(evaluator: Evaluator, entry: torch_ops.Operation, arguments: Arguments) -> Place:
    if "device" in arguments.keywords:
        return moved_to(Place.UNKNOWN, arguments.keywords["device"])
    if (out := arguments.keywords.get("out", UNKNOWN)).kind is Kind.TENSOR:
        return out.place
    if entry.does("factory"):  # also torch.tensor(t), torch.full((), t): made on the host all the same
        return Place.DEVICE if evaluator.default_device_set and not arguments.tensors else Place.HOST
    return common_place(arguments.tensors) if arguments.tensors else evaluator.usual_place


def _is_pinned(node: ast.Call, arguments: Arguments) -> bool:
    given = keyword_of(node, "pin_memory")
    asks = given is not None and re.search("(?i)cuda|gpu|!= 'cpu'", ast.unparse(given)) is not None
    return asks or arguments.keywords.get("pin_memory", UNKNOWN).literal is True


def _torch_instance(evaluator: Evaluator, name: str, kind: str, node: ast.Call, arguments: Arguments) -> Value:
    given, first = arguments.positional, arguments.first
    if name.endswith(_WRAPPERS) and first.kind is Kind.MODULE:
        return first
    if kind in MODULES:
        item = join_all(map(element_of, given)) if name.endswith("ModuleList") else join_all(given)
        if name.endswith("ModuleDict") and first.kind is Kind.MAPPING:
            return Value(Kind.MODULE, name=name, items=first.items, item=first.item, keys=first.keys)
        parts = given if name.endswith("Sequential") and not arguments.open else None
        return Value(Kind.MODULE, name=name, items=parts, item=item if item.kind is Kind.MODULE else None)
    if kind == "loader":
        on_device = first.kind is Kind.DATASET and first.item is not None and first.item.on_device
        batch = sequence_of(first.item or UNKNOWN) if on_device else LIKELY_HOST_TENSOR
        return Value(Kind.LOADER, name=name, item=batch, node=node, pinned=_is_pinned(node, arguments))
    if kind in ("dataset", "iterable-dataset"):
        inner = join_all(given)
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


# -- what is special about a function


def _first(evaluator: Evaluator, arguments: Arguments) -> Value:
    return arguments.first


def _device(evaluator: Evaluator, arguments: Arguments) -> Value:
    target = arguments.get(0, "device") or UNKNOWN
    on_host = isinstance(target.literal, str) and target.literal.startswith("cpu")
    return Value(Kind.DEVICE, Place.HOST if on_host else Place.DEVICE)


def _surely(value: Value) -> Value:
    return value._replace(sure=True, name="") if value.kind is Kind.TENSOR else value


def _partial(evaluator: Evaluator, arguments: Arguments) -> Value:
    return arguments.first._replace(item=mapping(arguments.keywords.items(), complete=not arguments.open))


def _chain(evaluator: Evaluator, arguments: Arguments) -> Value:
    loader = next((value for value in arguments.positional if value.kind is Kind.LOADER), None)
    return loader or sequence_of(join_all(map(element_of, arguments.positional)))


def _named_tuple(evaluator: Evaluator, arguments: Arguments) -> Value:
    fields = arguments.get(1, "field_names") or UNKNOWN
    words = [fields.literal] if isinstance(fields.literal, str) else [each.literal for each in fields.items or ()]
    names = [name for word in words if isinstance(word, str) for name in word.replace(",", " ").split()]
    return library("collections.namedtuple()")._replace(keys=tuple(names))


def _fields(fields: Value, arguments: Arguments) -> Value:
    given = dict(zip(fields.keys, arguments.positional, strict=False)) | dict(arguments.keywords)
    if arguments.open or set(given) != set(fields.keys) or len(arguments.positional) > len(fields.keys):
        return arguments.derived
    return sequence(given[key] for key in map(str, fields.keys))._replace(keys=fields.keys)


_HANDLERS: dict[str, Callable[[Evaluator, Arguments], Value]] = {
    **dict.fromkeys(
        (
            *("torch.compile", "torch.jit.script", "tqdm.*", "copy.deepcopy", "copy.copy", "itertools.islice"),
            *("itertools.cycle", "rich.progress.track"),
        ),
        _first,
    ),
    "torch.device": _device,
    "torch.autograd.Variable": lambda evaluator, arguments: _surely(arguments.first),  # which takes nothing else
    "torch.from_numpy": lambda evaluator, arguments: HOST_TENSOR,
    "torch.nn.utils.clip_grad_norm_": lambda evaluator, arguments: tensor(evaluator.module_place),
    # its attribute `data` is a tensor
    "torch.nn.utils.rnn.pack_padded_sequence": lambda evaluator, arguments: arguments.first._replace(sure=False),
    "torch.nn.utils.rnn.pad_packed_sequence": lambda evaluator, arguments: sequence(
        (_surely(arguments.first), HOST_TENSOR)
    ),
    "torch.cuda.is_available": lambda evaluator, arguments: NUMBER,
    "functools.partial": _partial,
    "itertools.chain": _chain,
    "itertools.count": lambda evaluator, arguments: sequence_of(NUMBER),
    "collections.namedtuple": _named_tuple,
    "argparse.ArgumentParser": lambda evaluator, arguments: Value(Kind.OTHER, name="argparse.ArgumentParser"),
}


def call_value(evaluator: Evaluator, node: ast.Call) -> Value:
    """What the call gives; records which function of the file it calls."""
    callee = evaluator.evaluate(node.func)
    arguments = Arguments.of(evaluator.evaluate, node)
    for value in arguments.all:
        info = evaluator.function(value) if value.kind is Kind.FUNCTION else None
        if info is not None:  # a callback: called from here, as far as heat is concerned
            evaluator.call_function(info, {}, node)
    return _apply(evaluator, callee, node, arguments)


def _apply(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value:
    if evaluator.summaries and (result := _summarised(evaluator, callee, node, arguments)) is not None:
        return result
    if callee.kind is Kind.LIBRARY and callee.keys:
        return _fields(callee, arguments)
    if callee.kind is Kind.LIBRARY:
        return _library_call(evaluator, callee, node, arguments)
    if callee.kind is Kind.FUNCTION and callee.node is not None:
        return _call_function(evaluator, callee, node, arguments)
    if callee.kind is Kind.CLASS and callee.node is not None:
        return _construct(evaluator, callee.node, node, arguments)
    if callee.kind is Kind.MODULE:
        return _call_module(evaluator, callee, node, arguments)
    if callee.kind is Kind.METHOD and callee.owner is not None:
        if callee.owner.kind is Kind.MODULE and callee.name == "forward":
            return _call_module(evaluator, callee.owner, node, arguments)
        return method_call(evaluator, callee, node, arguments)
    if callee.kind is Kind.INSTANCE and callee.node is not None:
        info = evaluator.classes[callee.node].method("__call__")
        if info is not None:
            return _call_function(evaluator, Value(Kind.FUNCTION, node=info.node, owner=callee), node, arguments)
    result = arguments.derived
    if callee.kind is Kind.UNKNOWN and result.kind is Kind.UNKNOWN and callee.name.rpartition(".")[2][:1].isupper():
        return callee  # an instance of that class, whatever it is; with tensors, it is the instance that is called
    return result


def _summarised(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value | None:
    """The result of a call of other files' functions by their summaries; None if one that may be meant has none."""
    owner = callee.owner if callee.kind is Kind.METHOD else None
    if OR in (names := (owner or callee).name):
        meant = (({"owner": owner._replace(name=each)} if owner else {"name": each}) for each in names.split(OR))
        found = [_summarised(evaluator, callee._replace(**each), node, arguments) for each in meant]
        return None if None in found else join_all(filter(None, found))
    info = evaluator.class_of(callee.owner)
    targets = targets_of(callee, info.base_names if info is not None else (), node)
    target = next((each for each in targets if each in evaluator.summaries), "")
    returns = evaluator.summaries[target].returns if target else ""
    if not returns:
        return None
    if returns.isdecimal():
        walked = arguments.get(int(returns), "")
        return _items_of(walked) if walked is not None and walked.kind is not Kind.UNKNOWN else None
    if evaluator.stays_home:
        return value_at_home(returns)
    place = common_place(arguments.tensors)
    value = value_of(returns, place if place is not Place.UNKNOWN else evaluator.usual_place)
    return _made_by(target, value, pinned=_is_pinned(node, arguments))


def _items_of(walked: Value) -> Value:
    return walked if walked.kind is Kind.LOADER else sequence_of(element_of(walked))


def _made_by(target: str, value: Value, *, pinned: bool) -> Value:
    """The `value` that a function of another file gives, the loaders in it with that as their owner.

    They are `pinned` if the function is told to pin their batches.
    """
    if value.kind is Kind.LOADER:
        return value._replace(owner=library(target), pinned=value.pinned or pinned)
    if value.kind is not Kind.SEQUENCE:
        return value
    if value.items is None:  # of several lengths: `parts_of` tells the place
        return value._replace(item=_made_by(target, value.item or UNKNOWN, pinned=pinned))
    return value._replace(items=tuple(_made_by(f"{target}.{i}", v, pinned=pinned) for i, v in enumerate(value.items)))


def _call_module(evaluator: Evaluator, module: Value, node: ast.Call, arguments: Arguments) -> Value:
    info = evaluator.class_of(module)
    forward = info.method("forward") if info is not None else None
    if forward is not None:
        result = _call_function(evaluator, Value(Kind.FUNCTION, node=forward.node, owner=module), node, arguments)
        return result if result.kind is not Kind.UNKNOWN else tensor(evaluator.module_place, sure=False)
    if module.items:  # of an nn.Sequential
        return _apply(evaluator, module.items[-1], node, arguments)
    entry = torch_ops.of_forward(module.name) if module.name else None
    if entry is None or not module.sure:
        return tensor(evaluator.module_place, sure=False)
    output = tensor(evaluator.module_place)
    if torch_ops.class_kind(module.name) == "rnn":
        return sequence((output, sequence((output, output)) if module.name.endswith("LSTM") else output))
    return sequence((output, output)) if entry.result in ("tuple", "tensors") else output


def _call_function(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value:
    info = evaluator.function(callee)
    if info is None:
        return arguments.derived
    evaluator.callees[node] = info
    given = received(info.node, arguments, callee.owner)
    result = evaluator.call_function(info, given, node)
    if info.yields is not None and (walked := given.get(info.handed_on, UNKNOWN)).kind is not Kind.UNKNOWN:
        return _items_of(walked)
    owner = evaluator.class_of(callee.owner)
    for override in owner.overriding(info.name) if owner is not None else ():
        result = join(result, evaluator.call_function(override, received(override.node, arguments, UNKNOWN), node))
    if isinstance(node.func, ast.Attribute):
        evaluator.frame.forget(path_of(node.func.value).partition(".")[0])  # the method may have assigned them
    return result if result.kind is not Kind.UNKNOWN else arguments.derived


def _construct(evaluator: Evaluator, cls: ast.AST, node: ast.Call, arguments: Arguments) -> Value:
    info = evaluator.classes[cls]
    instance, init = info.instance, info.method("__init__")
    if init is not None:
        evaluator.callees[node] = init
        evaluator.call_function(init, received(init.node, arguments, instance), node)
    return instance._replace(item=LIKELY_HOST_TENSOR) if instance.kind is Kind.LOADER else instance
