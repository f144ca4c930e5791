"""Wrong patches are rejected, each for what is wrong with it, and right ones are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from perflint.engine.rule import Safety
from perflint.verify.messages import CALLS, OPTIMIZER, Variant
from perflint.verify.protocol import Protocol
from perflint.verify.recordings import Further
from perflint.verify.verdict import Grade, Likeness
from tests.verify.courses import Bench, bench, changed, course

LOOP = "    for x, y in loader:\n"
BODY = LOOP + " " * 8
LOADER = "loader = DataLoader(TensorDataset(inputs, labels), batch_size=8)"
BATCHES = LOADER.replace("batch_size=8", "batch_sampler=[list(range(36))[i:i + 8] for i in {}]")
LOGITS = "logits = model(x)"
HEAD = "logits = nn.functional.linear(body(x), {}, head.bias)"

# what is wrong: what is replaced by what, and what has to be said of it
TRAINING = {
    "off by one step": (LOOP, LOOP.replace("loader", "list(loader)[1:] + list(loader)[:1]"), "step 1"),
    "wrong axis": ("log_softmax(1)", "log_softmax(0)", "at step 1 loss 0 differs"),
    "dropped gradient": (LOGITS, "logits = head(body(x).detach())", "step 1: only the original has gradient 0.0"),
    "detached loss": ("* penalty", "* penalty.detach()", "at step 2 gradient 0.4 differs"),
    "more dropout": ("Dropout(0.1)", "Dropout(0.2)", "at step 1 gradient 0."),
    "sum for mean": ("y].mean()", "y].sum()", "at step 1 loss 0 differs by 7 of the value"),
    "stale weights": (
        LOGITS,
        f"OLD = globals().setdefault('OLD', head.weight.detach().clone()); {HEAD}".format(
            "head.weight - head.weight.detach() + OLD"
        ),
        "at step 2 gradient 0.",
    ),
    "batches in another order": (LOADER, BATCHES.format("(8, 0, 16, 24, 32)"), "step 1: the batches come in another"),
    "a skipped last batch": (
        "batch_size=8)",
        "batch_size=8, drop_last=True)",
        "10 steps were recorded before, 8 after",
    ),
    "one layer in half": (
        LOGITS,
        "logits = (body(x).bfloat16() @ head.weight.bfloat16().T).float() + head.bias",
        "at step 1 gradient 0.",
    ),
    "other betas": (
        "lr=0.01)",
        "lr=0.01, betas=(0.9, 0.99))",
        "at step 1 option 0.betas differs by 0.0067",
    ),
    "an average that stands still": (
        "kept.data.lerp_(new.data, 0.1)",
        "pass",
        "at step 2 weight 1.",
    ),
    "a still buffer": ("BatchNorm1d(16)", "BatchNorm1d(16, momentum=0.0)", "at step 2 buffer 0.0.1.running_mean"),
    "an error": (
        LOOP,
        f"{BODY}if total > 2: raise ValueError('no')\n",
        "it ended with exit code 1: ValueError: no, where",
    ),
    "another printed metric": (
        "{right:.3f}",
        "{1 - right:.3f}",
        'it prints something else: line 1 is "epoch 0: 0.194 right" and not "epoch 0: 0.806 right"',
    ),
    "other weights saved": (
        "model.state_dict()",
        "{name: value * 0.999 if 'weight' in name else value for name, value in model.state_dict().items()}",
        "weight of last.pt is not parameter 0.",
    ),
    "another content": ('"right": right', '"right": 1 - right', "it writes something else to "),
}
RIGHT = {
    "a fused loss": (
        "-logits.log_softmax(1)[torch.arange(len(y)), y].mean()",
        "nn.functional.cross_entropy(logits, y)",
        Grade.ROUNDING,
    ),
    "a layer in double precision": (
        LOGITS,
        "logits = nn.functional.linear(body(x).double(), head.weight.double(), head.bias.double()).float()",
        Grade.ROUNDING,
    ),
    "the last digit of a printed number": ("{right:.3f}", "{right + 0.001:.3f}", Grade.ROUNDING),
    "a later sync": ("total += loss.item()", "total = total + float(loss.detach())", Grade.BITWISE),
}
DECODING = {
    "off by one": ("said.append(tokens)", "said.append(said[-1] if said else source)", "at step 1 output 0.0 differs"),
    "too early a stop": ("done.all()", "done.any()", "at step 1 output 0.0 differs by inf"),
    "other numbers in a list": ("lengths = [len(said)]", "lengths = [0]", "at step 1 output 0.2.lengths differs"),
    "a number of another sign": ('"mean": float', '"mean": -float', "at step 1 output 0.2.mean differs by 2 of the"),
    "other scores": ("np.array(sure)", "np.array(sure) / 2", "at step 1 output 0.2.scores differs by 0.5 of the value"),
    "memory that is used again": (
        "torch.stack(said, 1), sure",
        "torch.stack(said, 1), globals().setdefault('shared', torch.empty(4)).copy_(sure)",
        "at step 2 output before 0.1 differs",
    ),
}

# each at a step after the fourth, where the first comparison ends; the first epoch ends after the twelfth
LATER = {
    "a number after the loop": (
        "+= loss.item()",
        "+= 2 * loss.item()",
        "at step 15 output 0 differs by 1 of ",
    ),
    "another printed number": ("{total:.4f}", "{total / 12:.4f}", "it prints something else: line 1 is "),
    "another function's result": ("error.max()", "error.min()", "at step 15 output 1.worst differs by "),
    "an early end": (
        "+= loss.item()",
        "+= loss.item()\n        if step == 8: break",
        "step 12: only the patched program has output",
    ),
    "dropped gradients": (
        "loss.backward()",
        "(loss if step < 9 else loss.detach().requires_grad_()).backward()",
        "step 12: only the original has gradient 0.0",
    ),
    "batches in another order": ("in range(12)", "in [*range(8), 9, 8, 10, 11]", "at step 9 loss 1 differs by "),
}
SAME_LATER = (".square().mean()", ".pow(2).mean()")
NEAR_LATER = ("{total:.4f}", "{total + 0.0001:.4f}")


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Likeness]:
    """How alike a program is to what it becomes by the changes, and by the right one, when it is looked at further."""
    folder = tmp_path_factory.mktemp("later")

    def change(old: str, new: str) -> Variant:
        return changed(folder / "store", "epochs.py", old, new, ["train", "tested"])

    (folder / "work").mkdir()
    with course("epochs.py", "3", folder=folder / "work") as races:
        further = Further(races, change("", ""), Protocol(OPTIMIZER, horizon=4), folder, 1e6)
        assert further.standard.run.code == 0  # it came to its end
        changes = [SAME_LATER, NEAR_LATER, *((old, new) for old, new, _ in LATER.values())]
        found = further.likenesses([change(*each) for each in changes])
        return dict(zip(["right", "near", *LATER], found, strict=True))


@pytest.mark.parametrize("wrong", LATER)
def test_what_is_wrong_behind_the_first_steps_is_seen_once_its_place_is_left(
    later: Mapping[str, Likeness], wrong: str
) -> None:
    assert later[wrong].grade is Grade.DIFFERENT
    assert any(LATER[wrong][2] in each for each in later[wrong].evidence), later[wrong].evidence


def test_what_is_right_behind_the_first_steps_is_so(later: Mapping[str, Likeness]) -> None:
    assert later["right"].grade is Grade.BITWISE, later["right"].evidence


def test_a_number_that_is_printed_later_may_be_rounded_where_a_fix_promised_no_more(
    later: Mapping[str, Likeness],
) -> None:
    assert later["near"].grade is Grade.ROUNDING, later["near"].evidence
    keeps = {promise: later["near"].keeps(promise, Grade.BITWISE) for promise in (Safety.EXACT, Safety.ROUNDING)}
    assert keeps == {Safety.EXACT: False, Safety.ROUNDING: True}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench("classifier.py", tmp_path_factory.mktemp("classifier"), steps=11) as made:
        yield made


@pytest.fixture(scope="module")
def translates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("translates")
    with bench("translates.py", folder, steps=7, unit=CALLS, calls=["decoded"]) as made:
        yield made


@pytest.fixture(scope="module")
def decoding(translates: Bench) -> Mapping[str, Likeness]:
    found = translates.likenesses([(old, new) for old, new, _ in DECODING.values()])
    return dict(zip(DECODING, found, strict=True))


@pytest.mark.parametrize("wrong", TRAINING)
def test_a_wrong_change_of_training_is_rejected_for_what_is_wrong(classifier: Bench, wrong: str) -> None:
    old, new, words = TRAINING[wrong]
    found = classifier.likeness(old, new)
    assert found.grade is Grade.DIFFERENT
    assert any(words in each for each in found.evidence), found.evidence


@pytest.mark.parametrize("wrong", DECODING)
def test_a_wrong_change_of_decoding_is_rejected_for_what_is_wrong(decoding: Mapping[str, Likeness], wrong: str) -> None:
    assert decoding[wrong].grade is Grade.DIFFERENT
    assert any(DECODING[wrong][2] in each for each in decoding[wrong].evidence), decoding[wrong].evidence


@pytest.mark.parametrize("right", RIGHT)
def test_a_right_change_is_no_more_than_it_is(classifier: Bench, right: str) -> None:
    old, new, grade = RIGHT[right]
    found = classifier.likeness(old, new)
    assert found.grade is grade, found.evidence


def test_what_runs_write_is_compared_and_put_away(classifier: Bench) -> None:
    assert {Path(name).name for name in classifier.records.standard.run.files} == {"last.pt", "metrics.json"}
    assert not [file for name in classifier.records.standard.run.files for file in Path(name).parent.iterdir()]


def test_two_runs_of_a_seeded_program_are_bitwise_equal(classifier: Bench, translates: Bench) -> None:
    for each in (classifier, translates):
        assert each.records.own.grade is Grade.BITWISE
