"""Races CleanRL's programs as published, with perflint's fixes, and as LeanRL rewrote them: whole programs, one GPU.

    python -m tests.gpu.measure_rl CLEANRL LEANRL OUT [SECONDS]

CLEANRL holds ppo_, sac_ and td3_continuous_action.py of vwxyzjn/cleanrl with its package cleanrl_utils, LEANRL their
*_torchcompile.py of meta-pytorch/LeanRL. They need gymnasium 0.29 with MuJoCo, tyro, tensordict, torchrl and tqdm;
for wandb there is a stub. A program is ended as soon as its rate has been measured. Tables go to OUT as well.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEARNING = 1000  # steps of the environment before SAC and TD3 begin to learn
ITERATION = 2048  # steps of the environment in one iteration of PPO
_REPORTED = re.compile(rb"SPS:")
_BAR = re.compile(rb"(\d+)/(\d+) \[")
_LEAST = 8.0  # seconds that are measured
_MOST = 80.0  # seconds that a program may take
_WANDB = "run = None\ndef init(*args, **kwargs): pass\ndef log(*args, **kwargs): pass\n"
_PERFLINT = ("-m", "perflint", "run", "--unsafe", "--extend-select", "launch-bound-step")
_ENVIRONMENT = """
import importlib.util, sys, time, gymnasium as gym
spec = importlib.util.spec_from_file_location("program", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
more = (0, False, "", 0.99) if "ppo" in sys.argv[1] else (1, 0, False, "")
envs = gym.vector.SyncVectorEnv([module.make_env("HalfCheetah-v4", *more)])
envs.reset(seed=1)
actions = [envs.action_space.sample() for _ in range(3000)]
for each in actions[:500]:
    envs.step(each)
begin = time.perf_counter()
for each in actions[500:]:
    envs.step(each)
print((time.perf_counter() - begin) / 2500 * 1e6)
"""


@dataclass(frozen=True)
class Rate:
    """Steps of the environment a second, over so many steps and seconds, and what went wrong."""

    program: str
    variant: str
    rate: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    started: float = 0.0  # seconds until it was measured
    trouble: str = ""


def variants(name: str, cleanrl: Path, leanrl: Path) -> Iterator[tuple[str, list[str]]]:
    """The commands of a program, as each of the three has it."""
    own = [str(cleanrl / f"{name}_continuous_action.py"), *_arguments(name)]
    theirs = [str(leanrl / f"{name}_continuous_action_torchcompile.py"), *_arguments(name)]
    yield "as published", own
    yield "perflint", [*_PERFLINT, *own]
    yield "LeanRL, graphs", [*theirs, "--cudagraphs"]
    yield "LeanRL, compiled graphs", [*theirs, "--compile", "--cudagraphs"]


def _arguments(name: str) -> list[str]:
    steps = ["--env-id", "HalfCheetah-v4", "--total-timesteps", "1000000"]
    return steps if name == "ppo" else [*steps, "--learning-starts", str(LEARNING)]


class Meter:
    """Tells from what a program prints how many steps it has taken, and when."""

    def __init__(self, name: str, *, has_bar: bool) -> None:
        self._each = ITERATION if name == "ppo" else 1 if has_bar else 100
        self._pattern = _BAR if has_bar else _REPORTED
        self._from = 4 * ITERATION if name == "ppo" else (LEARNING if has_bar else 0) + 600
        self._known: list[tuple[float, int]] = []
        self._lines = 0

    def see(self, chunk: bytes) -> None:
        """Take in what was printed just now."""
        found = self._pattern.findall(chunk)
        if not found:
            return
        self._lines += len(found)
        steps = (int(found[-1][0]) if self._pattern is _BAR else self._lines) * self._each
        if steps >= self._from:
            self._known.append((time.perf_counter(), steps))

    @property
    def seconds(self) -> float:
        return self._known[-1][0] - self._known[0][0] if len(self._known) > 2 else 0.0

    @property
    def steps(self) -> int:
        return self._known[-1][1] - self._known[0][1] if len(self._known) > 2 else 0


def measured(name: str, variant: str, command: Sequence[str], folder: str, most: float) -> Rate:
    """Run a program until its rate is known."""
    stub = Path(folder, "wandb.py")
    stub.write_text(_WANDB)
    paths = os.pathsep.join([folder, os.environ.get("PYTHONPATH", ""), str(ROOT)])
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-u", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    meter, tail = Meter(name, has_bar=variant.startswith("LeanRL")), b""
    pending = b""
    while process.poll() is None and time.perf_counter() - begin < most and meter.seconds < _LEAST:
        chunk = process.stdout.read() or b""
        pending, tail = pending + chunk, (tail + chunk)[-6000:]
        whole = max(map(pending.rfind, (b"\n", b"\r"))) + 1
        meter.see(pending[:whole])
        pending = pending[whole:]
        time.sleep(0.005)
    total = time.perf_counter() - begin
    _end(process)
    trouble = "" if meter.seconds else f"exit code {process.returncode}: " + tail.decode("utf-8", "replace")[-1200:]
    notes = re.findall(r"[^\n]*stays eager[^\n]*", tail.decode("utf-8", "replace"))
    rate = meter.steps / meter.seconds if meter.seconds else 0.0
    return Rate(name, variant, rate, meter.steps, meter.seconds, total - meter.seconds, trouble or "; ".join(notes))


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                continue


def microseconds(program: Path) -> float:
    """What a step of the environment takes by itself."""
    result = subprocess.run(
        [sys.executable, "-c", _ENVIRONMENT, str(program)],
        cwd=program.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return float(result.stdout.split()[-1]) if not result.returncode else float("nan")


def tuned(name: str, command: Sequence[str], folder: str, budget: int) -> str:
    """What `perflint tune` prints of a program within a budget."""
    words = [sys.executable, "-m", "perflint", "tune", "-q", "--budget", f"{budget}s", *command]
    paths = os.pathsep.join([folder, os.environ.get("PYTHONPATH", ""), str(ROOT)])
    process = subprocess.run(
        words, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    return f"tune {name}: exit code {process.returncode}\n{process.stdout}\n{process.stderr[-800:]}"


def table(rates: Sequence[Rate], steps: dict[str, float]) -> Iterator[str]:
    """A line for each variant: its rate, that over the program as published, and what the environment takes."""
    for rate in rates:
        first = next(each for each in rates if each.program == rate.program)
        ratio = f"{rate.rate / first.rate:5.2f}x" if first.rate and rate.rate else "    - "
        share = steps[rate.program] * 1e-6 * rate.rate
        learner = ""
        if first.rate and rate.rate:
            alone, base = 1e6 / rate.rate - steps[rate.program], 1e6 / first.rate - steps[rate.program]
            learner = f"; without the environment {base / alone:5.2f}x"
        how = f"{rate.steps} steps in {rate.seconds:.1f} s after {rate.started:.0f} s"
        yield (
            f"{rate.program:4} {rate.variant:24} {rate.rate:8.0f} steps/s {ratio}"
            f" (environment {share:4.0%} of it{learner}; {how}) {rate.trouble}"
        )


def main(cleanrl: str, leanrl: str, out: str, seconds: str = "450") -> None:
    """Measure, and print."""
    end = time.monotonic() + float(seconds)
    rates: list[Rate] = []
    published, theirs = Path(cleanrl).resolve(), Path(leanrl).resolve()
    names = ("td3", "sac", "ppo")
    steps = {name: microseconds(published / f"{name}_continuous_action.py") for name in names}
    print("microseconds of a step of the environment alone:", steps, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for variant, command in variants(name, published, theirs):
                most = min(_MOST, end - time.monotonic())
                if most < 15:
                    continue
                rates.append(measured(name, variant, command, folder, most))
                print(*list(table(rates, steps))[-1:], sep="\n", flush=True)
        Path(out, "rl.json").write_text(
            json.dumps({"environment_us": steps, "rates": list(map(asdict, rates))}, indent=1)
        )
        print(*table(rates, steps), sep="\n", flush=True)
        left = int(end - time.monotonic()) - 20
        if left > 60:
            command = [str(published / "td3_continuous_action.py"), *_arguments("td3")]
            print(tuned("td3", command, folder, min(left, 150)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
