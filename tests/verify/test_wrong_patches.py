"""Wrong patches are rejected, each for what is wrong with it, and right ones are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perflint.verify.grade import Grade
from perflint.verify.units import CALLS
from tests.verify.courses import Bench, bench

LOOP = "    for x, y in loader:\n"
BODY = LOOP + " " * 8
LOADER = "loader = DataLoader(TensorDataset(inputs, labels), batch_size=8)"
BATCHES = LOADER.replace("batch_size=8", "batch_sampler=[list(range(36))[i:i + 8] for i in {}]")
LOGITS = "logits = model(x)"
HEAD = "logits = nn.functional.linear(body(x), {}, head.bias)"
METRICS = 'with open("metrics.json", "w") as file:\n    json.dump({"loss": total, "right": right}, file)\n'
STEP = "        loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n        optimizer.step()\n"
BEFORE = (
    "        optimizer.step()\n        loss.detach_().requires_grad_()\n        loss.backward()\n"
    "        nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n"
)

# what is wrong: what is replaced by what, and what has to be said of it
TRAINING = {
    "off by one step": (LOOP, LOOP.replace("loader", "list(loader)[1:] + list(loader)[:1]"), "step 1"),
    "step before the gradient": (STEP, BEFORE, "step 1: only the original has gradient 0.0"),
    "wrong axis": ("log_softmax(1)", "log_softmax(0)", "at step 1 loss 0 differs"),
    "dropped gradient": (LOGITS, "logits = head(body(x).detach())", "step 1: only the original has gradient 0.0"),
    "detached loss": ("* penalty", "* penalty.detach()", "at step 2 gradient 0.4 differs"),
    "more dropout": ("Dropout(0.1)", "Dropout(0.2)", "at step 1 gradient 0."),
    "no dropout": ("Dropout(0.1)", "Dropout(0.0)", "at step 1 gradient 0."),
    "sum for mean": ("y].mean()", "y].sum()", "at step 1 loss 0 differs by 7 of the value"),
    "stale weights": (
        LOGITS,
        f"OLD = globals().setdefault('OLD', head.weight.detach().clone()); {HEAD}".format(
            "head.weight - head.weight.detach() + OLD"
        ),
        "at step 2 gradient 0.",
    ),
    "batches in another order": (LOADER, BATCHES.format("(8, 0, 16, 24, 32)"), "step 1: the batches come in another"),
    "samples in another order": (LOADER, f"{LOADER[:-1]}, sampler=range(35, -1, -1))", "step 1: the batches differ"),
    "a skipped last batch": (
        "batch_size=8)",
        "batch_size=8, drop_last=True)",
        "10 steps were recorded before, 8 after",
    ),
    "a repeated batch": (LOADER, BATCHES.format("(0, 8, 8, 24, 32)"), "step 3: the batches differ"),
    "larger batches": ("batch_size=8)", "batch_size=9)", "step 1: the batches have (9, 6) (9,), and not (8, 6) (8,)"),
    "autocast": (LOGITS, f"with torch.autocast('cpu', torch.bfloat16): {LOGITS}", "at step 1 gradient 0."),
    "one layer in half": (
        LOGITS,
        "logits = (body(x).bfloat16() @ head.weight.bfloat16().T).float() + head.bias",
        "at step 1 gradient 0.",
    ),
    "no zero_grad": ("        optimizer.zero_grad()\n", "", "at step 2 "),
    "fewer parameters": ("Adam(model.parameters()", "Adam(head.parameters()", "step 1: only the original has gradient"),
    "eval mode": ("model.train()", "model.eval()", "at step 1 gradient 0."),
    "another seed": ("manual_seed(1)", "manual_seed(2)", "step 1: the batches differ"),
    "no clipping": ("        nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n", "", "at step 1 gradient 0."),
    "no schedule": ("        scheduler.step()\n", "", "at step 5 option 0.lr differs by 1 of the value"),
    "weight decay": ("lr=0.01)", "lr=0.01, weight_decay=1e-3)", "at step 1 option 0.weight_decay differs"),
    "a still buffer": ("BatchNorm1d(16)", "BatchNorm1d(16, momentum=0.0)", "at step 2 buffer 0.0.1.running_mean"),
    "slightly other inputs": (LOGITS, "logits = model(x + 1e-5)", "at step 2 buffer 0.0.1.running_mean differs"),
    "one epoch more": ("range(2)", "range(3)", "it ran on, where the original ended with exit code 0"),
    "an early end": (LOOP, f"{BODY}if total > 2: raise SystemExit\n", "10 steps were recorded before, 4 after"),
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
    "another logged metric": ("epoch, total)", "epoch, total / 10)", "it logs something else: line 1 is "),
    "other keys": (
        "model.state_dict()",
        "{f'_orig_mod.{name}': value for name, value in model.state_dict().items()}",
        "only the original saves model.0.0.bias",
    ),
    "other weights saved": (
        "model.state_dict()",
        "{name: value * 0.999 if 'weight' in name else value for name, value in model.state_dict().items()}",
        "weight of last.pt is not parameter 0.",
    ),
    "no checkpoint": (
        '    torch.save({"model": model.state_dict(), "epoch": epoch}, "last.pt")\n',
        "",
        "2 checkpoints ",
    ),
    "another file": ('"last.pt"', '"best.pt"', "it does not write "),
    "no file": (METRICS, "", "it does not write "),
    "another content": ('"right": right', '"right": 1 - right', "it writes something else to "),
}
RIGHT = {
    "sums in another order": ("y].mean()", "y].flip(0).cumsum(0)[-1] / len(y)", Grade.ROUNDING),
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
    "a later sync": ("total += loss.item()", "total = total + float(loss.detach())", Grade.BITWISE),
}
DECODING = {
    "off by one": ("said.append(tokens)", "said.append(said[-1] if said else source)", "at step 1 output 0.0 differs"),
    "no stop": ("        if done.all():\n            break\n", "", "at step 2 output 0.0 differs by inf"),
    "too early a stop": ("done.all()", "done.any()", "at step 1 output 0.0 differs by inf"),
    "wrong axis": (".softmax(-1)", ".softmax(0)", "at step 1 output 0."),
    "memory that is used again": (
        "torch.stack(said, 1), sure",
        "torch.stack(said, 1), globals().setdefault('shared', torch.empty(4)).copy_(sure)",
        "at step 2 output before 0.1 differs",
    ),
    "half precision": ("(hidden @ output)", "(hidden.bfloat16() @ output.bfloat16()).float()", "output 0.1 differs"),
}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench("classifier.py", tmp_path_factory.mktemp("classifier"), steps=11) as made:
        yield made


@pytest.fixture(scope="module")
def translates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("translates")
    with bench("translates.py", folder, steps=7, unit=CALLS, calls=["decoded"]) as made:
        yield made


@pytest.mark.parametrize("wrong", TRAINING)
def test_a_wrong_change_of_training_is_rejected_for_what_is_wrong(classifier: Bench, wrong: str) -> None:
    old, new, words = TRAINING[wrong]
    found = classifier.likeness(old, new)
    assert found.grade is Grade.DIFFERENT
    assert any(words in each for each in found.evidence), found.evidence


@pytest.mark.parametrize("wrong", DECODING)
def test_a_wrong_change_of_decoding_is_rejected_for_what_is_wrong(translates: Bench, wrong: str) -> None:
    old, new, words = DECODING[wrong]
    found = translates.likeness(old, new)
    assert found.grade is Grade.DIFFERENT
    assert any(words in each for each in found.evidence), found.evidence


@pytest.mark.parametrize("right", RIGHT)
def test_a_right_change_is_no_more_than_it_is(classifier: Bench, right: str) -> None:
    old, new, grade = RIGHT[right]
    found = classifier.likeness(old, new)
    assert found.grade is grade, found.evidence


def test_another_order_of_sums_is_rounding_in_decoding_too(translates: Bench) -> None:
    found = translates.likeness("hidden @ across", "(hidden.unsqueeze(2) * across).sum(1)")
    assert found.grade is Grade.ROUNDING, found.evidence


def test_a_swallowed_exception_is_noticed(tmp_path: Path) -> None:
    with bench("fails.py", tmp_path, steps=5) as fails:
        found = fails.likeness('raise RuntimeError("out of data")', "pass")
    assert found.evidence[0] == (
        "it ended with exit code 0, where the original ended with exit code 1: RuntimeError: out of data"
    )


def test_what_runs_write_is_compared_and_put_away(classifier: Bench) -> None:
    assert {Path(name).name for name in classifier.records.standard.run.files} == {"last.pt", "metrics.json"}
    assert not [file for name in classifier.records.standard.run.files for file in Path(name).parent.iterdir()]


def test_two_runs_of_a_seeded_program_are_bitwise_equal(classifier: Bench, translates: Bench) -> None:
    assert classifier.records.own.grade is Grade.BITWISE
    assert translates.records.own.grade is Grade.BITWISE
