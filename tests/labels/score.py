"""Scores perflint's findings on checkouts of the labelled repositories.

    python -m tests.labels.score DIR [--show] [--only RULE,RULE]      (DIR holds folders OWNER+NAME)

A finding counts for a label of its rule that holds its line, or a line next to it; one without a label is a false one.
"""

import argparse
import collections
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
RULE_OF = {"unsynchronized-timing": "timing", "one-example-at-a-time": "hf-arguments"}
BATCH = 40


@dataclass(frozen=True, slots=True)
class Label:
    repo: str
    path: str
    line: int
    rule: str
    verdict: str
    why: str
    span: tuple[int, int]

    def distance(self, line: int) -> int:
        """Lines between `line` and the span, 0 inside it."""
        return max(self.span[0] - line, line - self.span[1], 0)


def read(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


def labels() -> list[Label]:
    rows = read("rules2.jsonl")
    return [Label(**{**row, "span": tuple(row.get("span", (row["line"], row["line"])))}) for row in rows]  # type: ignore[arg-type]


def findings(folder: Path, paths: list[str], rules: str) -> Iterator[tuple[str, str, int]]:
    """Yields rule, path and line of what perflint finds in `paths` of `folder` by the `rules`."""
    command = ["perflint", "check", "--isolated", "--no-cache", "--select", rules, "--output-format", "json"]
    for start in range(0, len(paths), BATCH):
        run = subprocess.run(
            [sys.executable, "-P", "-m", *command, *paths[start : start + BATCH]],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if run.returncode not in (0, 1) and not run.stdout:
            sys.exit(f"{folder}: exit {run.returncode}: {run.stderr[-500:]}")
        for found in json.loads(run.stdout):
            line = found["line"] + 1000 * (found.get("cell") or 0)
            yield RULE_OF.get(found["code"], found["code"]), str(Path(found["path"])), line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--show", action="store_true", help="print each mistake")
    parser.add_argument("--only", help="these rules, with commas between")
    args = parser.parse_args()
    known = [label for label in labels() if not args.only or label.rule in args.only.split(",")]
    at = collections.defaultdict(list)
    for label in known:
        at[label.repo, label.path, label.rule].append(label)
    rules = {label.rule for label in known}
    paths, only = collections.defaultdict(list), dict[tuple[str, str], set[str]]()
    rows = read("files.jsonl")
    whole = {row["repo"] for row in rows if "rules" not in row}  # those that were read for all rules of the time
    then = {label.rule for label in known if label.repo in whole}
    for row in rows:
        paths[str(row["repo"])].append(str(row["path"]))
        told = row.get("rules")
        only[str(row["repo"]), str(row["path"])] = set(told) if isinstance(told, list) else then
    missing = [repo for repo in sorted(paths) if not (args.dir / repo.replace("/", "+")).is_dir()]
    for repo in missing:
        print(f"not in {args.dir}: {repo}")
        del paths[repo]
    known = [label for label in known if label.repo not in missing]
    count: dict[str, collections.Counter[str]] = {rule: collections.Counter() for rule in rules}
    hit: set[Label] = set()
    renamed = [code for code, label in RULE_OF.items() if label in rules]
    selected = ",".join([*(rules - {"timing"}), *renamed]) if args.only else "ALL"
    for repo in sorted(paths):
        folder = args.dir / repo.replace("/", "+")
        for rule, path, line in sorted(set(findings(folder, sorted(paths[repo]), selected))):
            near = [label for label in at[repo, path, rule] if label.distance(line) <= 1]
            best = min(near, key=lambda it: (it.distance(line), it.span[1] - it.span[0], it.line), default=None)
            if rule not in rules or path not in paths[repo] or rule not in only[repo, path] or best in hit:
                continue
            if best is not None:
                hit.add(best)
            kind = "false" if best is None or best.verdict == "ok" else best.verdict
            count[rule][kind] += 1
            if args.show and kind == "false":
                print(f"FALSE {rule} {repo} {path}:{line} | {best.why if best else 'no label'}")
    for label in known:
        if label.verdict == "flag":
            count[label.rule]["flags"] += 1
            count[label.rule]["found"] += label in hit
            if args.show and label not in hit:
                print(f"MISS {label.rule} {label.repo} {label.path}:{label.line} | {label.why}")
    for rule in sorted(rules):
        c = count[rule]
        print(
            f"{rule:24s} precision {c['flag']:3d}/{c['flag'] + c['false']:<3d} recall {c['found']:3d}/{c['flags']:<3d}"
        )


if __name__ == "__main__":
    main()
