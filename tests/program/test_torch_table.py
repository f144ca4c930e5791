"""The table of torch's functions says what torch does."""

from __future__ import annotations

import importlib
import json
import warnings
from typing import Any

import pytest

from perflint.torch_ops import table as torch_table
from perflint.torch_ops.table import NUMBER, TENSOR, TRUE, UNKNOWN, Entry


def known(entry: Entry | None) -> Entry:
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
    assert known(torch_table.function(name)).result == result


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
    assert known(torch_table.method(name)).result == result


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
    assert known(torch_table.attribute(name)).result == result


@pytest.mark.parametrize("name", ["nonzero", "masked_select", "unique", "is_nonzero", "equal", "bincount", "allclose"])
def test_functions_whose_result_depends_on_values_sync(name: str) -> None:
    assert known(torch_table.function(f"torch.{name}")).syncs


@pytest.mark.parametrize("name", ["item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__float__", "__int__"])
def test_methods_that_read_on_the_host_sync(name: str) -> None:
    assert known(torch_table.method(name)).syncs


@pytest.mark.parametrize("name", ["add", "sum", "any", "argmax", "size", "view", "masked_fill", "__getitem__", "max"])
def test_methods_that_only_launch_work_do_not_sync(name: str) -> None:
    assert not known(torch_table.method(name)).syncs


def test_max_returns_a_pair_only_along_a_dimension() -> None:
    largest = known(torch_table.function("torch.max"))
    assert largest.select([TENSOR], {}).result == "tensor"
    assert largest.select([TENSOR, TENSOR], {}).result == "tensor"
    assert largest.select([TENSOR, NUMBER], {}).result == "tuple"
    assert largest.select([TENSOR], {"dim": NUMBER}).result == "tuple"
    assert largest.select([TENSOR, UNKNOWN], {}).result == UNKNOWN
    assert known(torch_table.method("max")).select([NUMBER], {}).result == "tuple"


def test_size_is_a_number_only_with_a_dimension() -> None:
    size = known(torch_table.method("size"))
    assert size.select([], {}).result == "size"
    assert size.select([NUMBER], {}).result == "number"
    assert size.select([UNKNOWN], {}).result == "number"


def test_where_syncs_only_with_a_condition_alone() -> None:
    where = known(torch_table.function("torch.where"))
    alone, chosen = where.select([TENSOR], {}), where.select([TENSOR, UNKNOWN, NUMBER], {})
    assert (alone.result, alone.syncs) == ("tuple", True)
    assert (chosen.result, chosen.syncs) == ("tensor", False)
    assert "pointwise" in chosen.traits


def test_repeat_interleave_syncs_unless_the_count_is_a_number() -> None:
    repeat = known(torch_table.method("repeat_interleave"))
    assert repeat.select([TENSOR], {}).syncs
    assert not repeat.select([NUMBER], {"dim": NUMBER}).syncs


def test_unique_returns_a_tuple_when_asked_for_more() -> None:
    unique = known(torch_table.function("torch.unique"))
    assert unique.select([TENSOR], {}).result == "tensor"
    assert unique.select([TENSOR], {"return_counts": TRUE}).result == "tuple"


@pytest.mark.parametrize(
    ("name", "dtype"), [("eq", "bool"), ("isnan", "bool"), ("logical_and", "bool"), ("argmax", "int"), ("add", "")]
)
def test_the_dtype_is_stated_where_every_input_gives_it(name: str, dtype: str) -> None:
    assert known(torch_table.function(f"torch.{name}")).dtype == dtype


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
        ("torch.transpose", "view"),
        ("torch.nn.functional.relu_", "inplace"),
    ],
)
def test_a_function_has_its_trait(name: str, trait: str) -> None:
    assert trait in known(torch_table.function(name)).traits


@pytest.mark.parametrize(
    "name", ["torch.matmul", "torch.cat", "torch.nn.functional.linear", "torch.softmax", "torch.sum"]
)
def test_functions_that_mix_elements_are_not_pointwise(name: str) -> None:
    assert "pointwise" not in known(torch_table.function(name)).traits


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
    assert torch_table.class_kind(name) == kind


def test_calling_a_module_gives_what_its_forward_declares() -> None:
    assert known(torch_table.forward("torch.nn.Linear")).result == "tensor"
    assert known(torch_table.forward("torch.nn.MultiheadAttention")).result == "tuple"
    assert known(torch_table.forward("torch.nn.LSTMCell")).result == "tuple"
    assert torch_table.forward("torch.optim.Adam") is None


def test_a_distribution_samples_tensors() -> None:
    assert known(torch_table.distribution_method("sample")) == Entry("tensor", traits=frozenset(["random"]))


def test_a_star_import_binds_public_names() -> None:
    assert "relu" in torch_table.exports("torch.nn.functional")
    assert {"Dataset", "DataLoader"} <= set(torch_table.exports("torch.utils.data"))
    assert torch_table.exports("nowhere") == ()


def test_names_that_torch_lacks_are_unknown() -> None:
    assert torch_table.function("torch.frobnicate") is None
    assert torch_table.method("frobnicate") is None
    assert torch_table.attribute("frobnicate") is None
    assert torch_table.class_kind("torch.nn.Frobnicate") is None


def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(torch_table.PATH.read_bytes())
    return table


def test_every_entry_is_in_the_vocabulary() -> None:
    for section, lookup in (("functions", torch_table.function), ("methods", torch_table.method)):
        for name in _table()[section]:
            entry = known(lookup(name))
            for each in (entry, *(variant.entry for variant in entry.variants)):
                assert each.result in (*torch_table.RESULTS, UNKNOWN), name


def test_the_generator_writes_this_table() -> None:
    torch = pytest.importorskip("torch")
    version = torch.__version__.partition("+")[0]
    if version != _table()["source"]["torch"]:
        pytest.skip(f"the table is of torch {_table()['source']['torch']}, here is {version}")
    generator = importlib.import_module("perflint.torch_ops.generate.table")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert generator.as_text(generator.build(torch)) == torch_table.PATH.read_text(encoding="utf-8")
