"""The table of torch's functions says what torch does."""

from __future__ import annotations

import ast
import importlib
import warnings

import pytest

from perflint import torch_ops
from perflint.torch_ops import NUMBER, TENSOR, TRUE, UNKNOWN, Operation
from perflint.torch_ops.operation import RESULTS


def known(entry: Operation | None) -> Operation:
    assert entry is not None
    return entry


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("torch.cat", "tensor"),
        ("torch.is_tensor", "bool"),
        ("torch.is_nonzero", "bool"),
        ("torch.topk", "tuple"),
        ("torch.linalg.svd", "tuple"),
        ("torch.linalg.norm", "tensor"),
        ("torch.fft.rfft", "tensor"),
        ("torch.nn.functional.cross_entropy", "tensor"),
        ("torch.nn.functional.sigmoid", "tensor"),
        ("torch.cuda.is_available", "bool"),
        ("torch.nn.utils.rnn.pad_sequence", "tensor"),
    ],
)
def test_a_function_returns_what_torch_documents(name: str, result: str) -> None:
    assert known(torch_ops.of_function(name)).result == result


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("item", "number"),
        ("tolist", "list"),
        ("numpy", "numpy"),
        ("numel", "number"),
        ("dim", "number"),
        ("chunk", "tuple"),
        ("__bool__", "bool"),
        ("__len__", "number"),
        ("__getitem__", "tensor"),
        ("backward", "none"),
    ],
)
def test_a_method_returns_what_torch_documents(name: str, result: str) -> None:
    assert known(torch_ops.of_method(name)).result == result


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("shape", "size"),
        ("T", "tensor"),
        ("grad", "tensor"),
        ("device", "device"),
        ("dtype", "dtype"),
        ("ndim", "number"),
    ],
)
def test_a_property_is_what_torch_documents(name: str, result: str) -> None:
    assert known(torch_ops.of_attribute(name)).result == result


@pytest.mark.parametrize("name", ["nonzero", "masked_select", "unique", "is_nonzero", "equal", "bincount", "allclose"])
def test_functions_whose_result_depends_on_values_sync(name: str) -> None:
    assert known(torch_ops.of_function(f"torch.{name}")).syncs


@pytest.mark.parametrize("name", ["item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__float__", "__int__"])
def test_methods_that_read_on_the_host_sync(name: str) -> None:
    assert known(torch_ops.of_method(name)).syncs


@pytest.mark.parametrize("name", ["add", "sum", "any", "argmax", "size", "view", "masked_fill", "__getitem__", "max"])
def test_methods_that_only_launch_work_do_not_sync(name: str) -> None:
    assert not known(torch_ops.of_method(name)).syncs


def test_max_returns_a_pair_only_along_a_dimension() -> None:
    largest = known(torch_ops.of_function("torch.max"))
    assert largest.select([TENSOR], {}).result == "tensor"
    assert largest.select([TENSOR, TENSOR], {}).result == "tensor"
    assert largest.select([TENSOR, NUMBER], {}).result == "tuple"
    assert largest.select([TENSOR], {"dim": NUMBER}).result == "tuple"
    assert largest.select([TENSOR, UNKNOWN], {}).result == UNKNOWN
    assert known(torch_ops.of_method("max")).select([NUMBER], {}).result == "tuple"


def test_size_is_a_number_only_with_a_dimension() -> None:
    size = known(torch_ops.of_method("size"))
    assert size.select([], {}).result == "size"
    assert size.select([NUMBER], {}).result == "number"
    assert size.select([UNKNOWN], {}).result == "number"


def test_where_syncs_only_with_a_condition_alone() -> None:
    where = known(torch_ops.of_function("torch.where"))
    alone, chosen = where.select([TENSOR], {}), where.select([TENSOR, UNKNOWN, NUMBER], {})
    assert (alone.result, alone.syncs) == ("tuple", True)
    assert (chosen.result, chosen.syncs) == ("tensor", False)
    assert "pointwise" in chosen.traits


def test_repeat_interleave_syncs_unless_the_count_is_a_number() -> None:
    repeat = known(torch_ops.of_method("repeat_interleave"))
    assert repeat.select([TENSOR], {}).syncs
    assert not repeat.select([NUMBER], {"dim": NUMBER}).syncs


def test_unique_returns_a_tuple_when_asked_for_more() -> None:
    unique = known(torch_ops.of_function("torch.unique"))
    assert unique.select([TENSOR], {}).result == "tensor"
    assert unique.select([TENSOR], {"return_counts": TRUE}).result == "tuple"


@pytest.mark.parametrize(
    ("name", "dtype"), [("eq", "bool"), ("isnan", "bool"), ("logical_and", "bool"), ("argmax", "int"), ("add", "")]
)
def test_the_dtype_is_stated_where_every_input_gives_it(name: str, dtype: str) -> None:
    assert known(torch_ops.of_function(f"torch.{name}")).dtype == dtype


@pytest.mark.parametrize(
    ("name", "trait"),
    [
        ("torch.zeros", "factory"),
        ("torch.randn", "random"),
        ("torch.randn", "factory"),
        ("torch.from_numpy", "factory"),
        ("torch.zeros_like", "like"),
        ("torch.add", "pointwise"),
        ("torch.rsub", "pointwise"),
        ("torch.absolute", "pointwise"),
        ("torch.nn.functional.relu", "pointwise"),
        ("torch.nn.functional.dropout", "random"),
        ("torch.sum", "reduction"),
    ],
)
def test_a_function_has_its_trait(name: str, trait: str) -> None:
    assert trait in known(torch_ops.of_function(name)).traits


@pytest.mark.parametrize(
    "name", ["torch.matmul", "torch.cat", "torch.nn.functional.linear", "torch.softmax", "torch.sum"]
)
def test_functions_that_mix_elements_are_not_pointwise(name: str) -> None:
    assert "pointwise" not in known(torch_ops.of_function(name)).traits


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch.nn.Linear", "module"),
        ("torch.nn.LSTM", "rnn"),
        ("torch.nn.modules.rnn.GRU", "rnn"),
        ("torch.nn.LSTMCell", "rnn-cell"),
        ("torch.nn.CrossEntropyLoss", "loss"),
        ("torch.nn.ModuleList", "container"),
        ("torch.nn.Dropout", "dropout"),
        ("torch.nn.parameter.Parameter", "parameter"),
        ("torch.optim.Adam", "optimizer"),
        ("torch.optim.lr_scheduler.StepLR", "scheduler"),
        ("torch.utils.data.DataLoader", "loader"),
        ("torch.utils.data.TensorDataset", "dataset"),
        ("torch.utils.data.IterableDataset", "iterable-dataset"),
        ("torch.utils.data.WeightedRandomSampler", "sampler"),
        ("torch.distributions.Categorical", "distribution"),
        ("torch.FloatTensor", "tensor-type"),
    ],
)
def test_a_class_has_its_kind(name: str, kind: str) -> None:
    assert torch_ops.class_kind(name) == kind


def test_calling_a_module_gives_what_its_forward_declares() -> None:
    assert known(torch_ops.of_forward("torch.nn.Linear")).result == "tensor"
    assert known(torch_ops.of_forward("torch.nn.MultiheadAttention")).result == "tuple"
    assert known(torch_ops.of_forward("torch.nn.LSTMCell")).result == "tuple"
    assert torch_ops.of_forward("torch.optim.Adam") is None


def test_a_distribution_samples_tensors() -> None:
    assert known(torch_ops.of_distribution("sample")) == Operation("sample", "tensor", traits=frozenset(["random"]))


def test_a_star_import_binds_public_names() -> None:
    assert "relu" in torch_ops.exports("torch.nn.functional")
    assert {"Dataset", "DataLoader"} <= set(torch_ops.exports("torch.utils.data"))
    assert not torch_ops.exports("nowhere")


def test_names_that_torch_lacks_are_unknown() -> None:
    assert torch_ops.of_function("torch.frobnicate") is None
    assert torch_ops.of_method("frobnicate") is None
    assert torch_ops.of_attribute("frobnicate") is None
    assert torch_ops.class_kind("torch.nn.Frobnicate") is None


def test_every_entry_is_in_the_vocabulary() -> None:
    for section, lookup in (("functions", torch_ops.of_function), ("methods", torch_ops.of_method)):
        for name in torch_ops.table()[section]:
            entry = known(lookup(name))
            for each in (entry, *(variant.operation for variant in entry.variants)):
                assert each.result in (*RESULTS, UNKNOWN), name


@pytest.mark.first
def test_the_generator_writes_this_table() -> None:
    torch = pytest.importorskip("torch")
    version = torch.__version__.partition("+")[0]
    if version != torch_ops.table()["source"]["torch"]:
        pytest.skip(f"the table is of torch {torch_ops.table()['source']['torch']}, here is {version}")
    generator = importlib.import_module("perflint.torch_ops.generate.table")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert generator.as_text(generator.build(torch)) == torch_ops.PATH.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("torch.concat", "cat"),
        ("torch.concatenate", "cat"),
        ("torch.absolute", "abs"),
        ("torch.arccos", "acos"),
        ("torch.clip", "clamp"),
        ("torch.linalg.det", "det"),
        ("torch.special.multigammaln", "mvlgamma"),
        ("torch.special.expit", "sigmoid"),
        ("torch.nn.functional.softmax", "softmax"),
        ("torch.Tensor.add", "add"),
        ("torch.Tensor.__iadd__", "add"),
        ("torch.Tensor.multiply_", "mul"),
        ("torch.swapdims", "transpose"),
        ("torch.frobnicate", ""),
    ],
)
def test_what_does_the_same_has_one_name(alias: str, name: str) -> None:
    assert torch_ops.canonical(alias) == name


def test_functions_of_one_name_that_do_different_things_have_two() -> None:
    assert torch_ops.canonical("torch.nn.functional.unfold") != torch_ops.canonical("torch.Tensor.unfold")


def given(operation: Operation | None, call: str, key: str) -> list[str]:
    """The arguments of a call, as text, that are in the operation's attribute `key`."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    return [ast.unparse(each) for argument in getattr(known(operation), key) for each in argument.of(node)]


@pytest.mark.parametrize(
    ("name", "call", "written"),
    [
        ("torch.nn.functional.relu", "F.relu(x)", []),
        ("torch.nn.functional.relu", "F.relu(x, True)", ["x"]),
        ("torch.nn.functional.relu", "F.relu(x, inplace=flag)", ["x"]),
        ("torch.nn.functional.relu", "F.relu(x, inplace=False)", []),
        ("torch.nn.functional.batch_norm", "F.batch_norm(x, m, v, training=True)", ["m", "v"]),
        ("torch.nn.functional.batch_norm", "F.batch_norm(x, m, v)", []),
        ("torch._foreach_add_", "torch._foreach_add_([s], 1)", ["[s]"]),
        ("torch.nn.init.zeros_", "nn.init.zeros_(w)", ["w"]),
        ("torch.add", "torch.add(a, b, out=c)", ["c"]),
        ("torch.linalg.inv", "torch.linalg.inv(a, out=c)", ["c"]),
        ("torch.add", "torch.add(a, b, **more)", ["more"]),
        ("torch.Tensor.add_", "torch.Tensor.add_(a, b)", ["a"]),
        ("torch.distributed.all_reduce", "dist.all_reduce(grad)", ["grad"]),
    ],
)
def test_a_function_writes_these_arguments(name: str, call: str, written: list[str]) -> None:
    assert given(torch_ops.of_function(name), call, "writes") == written


@pytest.mark.parametrize("call", ["x.add_(y)", "x.copy_(y)", "x.__iadd__(y)", "x.__setitem__(0, y)", "x.apply_(f)"])
def test_a_method_writes_its_tensor(call: str) -> None:
    assert given(torch_ops.of_method(call[2:].partition("(")[0]), call, "writes") == ["x"]


@pytest.mark.parametrize("call", ["x.add(y)", "x.float()", "x.requires_grad_()", "x.view(-1)"])
def test_a_method_writes_nothing(call: str) -> None:
    assert given(torch_ops.of_method(call[2:].partition("(")[0]), call, "writes") == []


@pytest.mark.parametrize(
    "call", ["x.view(-1)", "x.chunk(2)", "x.split(1)", "x.detach()", "x.numpy()", "x.add_(1)", "x.expand(2, 3)"]
)
def test_a_method_views_its_tensor(call: str) -> None:
    assert given(torch_ops.of_method(call[2:].partition("(")[0]), call, "views") == ["x"]


@pytest.mark.parametrize(
    "call",
    ["x.to(d)", "x.half()", "x.cpu()", "x.contiguous()", "x.reshape(2)", "x.flatten()", "x.type_as(y)", "x.cuda()"],
)
def test_a_method_may_return_its_tensor(call: str) -> None:
    operation = torch_ops.of_method(call[2:].partition("(")[0])
    assert given(operation, call, "views") == []
    assert given(operation, call, "may_return") == ["x"]


@pytest.mark.parametrize(
    ("name", "call", "shared"),
    [
        ("torch.einsum", "torch.einsum('ij->ji', x)", ["x"]),
        ("torch.nn.functional.dropout", "F.dropout(x)", ["x"]),
        ("torch.broadcast_tensors", "torch.broadcast_tensors(x, y)", ["x", "y"]),
        ("torch.from_numpy", "torch.from_numpy(a)", ["a"]),
        ("torch.as_tensor", "torch.as_tensor(data=a)", ["a"]),
        ("torch.transpose", "torch.transpose(*both)", ["*both"]),
        ("torch.unbind", "torch.unbind(x)", ["x"]),
        ("torch.clone", "torch.clone(x)", []),
        ("torch.nn.functional.unfold", "F.unfold(x, 3)", []),
        ("torch.add", "torch.add(x, y, out=z)", ["z"]),
    ],
)
def test_the_result_may_share_the_memory_of_these_arguments(name: str, call: str, shared: list[str]) -> None:
    operation = torch_ops.of_function(name)
    assert [*given(operation, call, "views"), *given(operation, call, "may_return")] == shared
