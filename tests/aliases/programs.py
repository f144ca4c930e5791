"""Puts programs together: a template, a name in it, an alias of that, an effect on the alias, and where they stand."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from tests.aliases.part import FOLDER, Kind, Part, catalogue, filled, imports, indented

_SLOT = re.compile(r"(?m)^([ \t]*)# slot (\w+): (.*)\n")
ALIASES = {Kind.TENSOR: (*catalogue("bindings"), *catalogue("views"))} | dict.fromkeys(
    (Kind.LIST, Kind.ROWS, Kind.NUMBER), catalogue("bindings")
)
EFFECTS = {
    Kind.TENSOR: catalogue("writes"),
    Kind.LIST: catalogue("lists"),
    Kind.ROWS: catalogue("rows"),
    Kind.NUMBER: catalogue("numbers"),
}
PLACES = catalogue("places")
COPIES, READS = catalogue("copies"), catalogue("reads")
HERE = PLACES[0]
_RARE = 0.02  # how often a template is drawn whose fix starts processes, as against others


@dataclass(frozen=True)
class Slot:
    """Where code may be put into a template, the function that it is in, and the names that are bound there.

    Names with a `!` are `sensitive`: the fix of the template does not bear an effect on them there.
    """

    name: str
    scope: str
    targets: tuple[tuple[str, Kind], ...]
    sensitive: frozenset[str]


@dataclass(frozen=True)
class Template:
    """A small complete program that is fixed, with slots."""

    name: str
    text: str
    slots: tuple[Slot, ...]

    @property
    def is_slow(self) -> bool:
        """Does its fix start processes?"""
        return self.name.startswith("loader")

    @property
    def targets(self) -> list[tuple[Slot, tuple[str, Kind]]]:
        """Each name of each slot."""
        return [(slot, target) for slot in self.slots for target in slot.targets]

    @property
    def sensitive(self) -> list[tuple[Slot, tuple[str, Kind]]]:
        """Those that the fix of the template does not bear an effect on."""
        return [(slot, target) for slot, target in self.targets if target[0] in slot.sensitive]


@dataclass(frozen=True)
class Case:
    """One program; `is_inside`: the effect stands in the block of the alias where that has one."""

    template: Template
    target: str
    kind: Kind
    aliases: tuple[Part, ...]
    effect: Part
    place: Part
    alias_at: str
    effect_at: str
    is_inside: bool = True

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that is put into the template."""
        return (*self.aliases, self.effect, self.place)

    @property
    def is_control(self) -> bool:
        """Is it harmless by construction: something else is written, or nothing?"""
        return any(alias in COPIES for alias in self.aliases) or self.effect in READS

    def __str__(self) -> str:
        through = " > ".join(alias.name for alias in self.aliases) or "no alias"
        where = self.effect_at if self.alias_at == self.effect_at else f"{self.alias_at}..{self.effect_at}"
        return f"{self.template.name}:{where} {self.target} | {through} | {self.effect.name} | {self.place.name}"


@cache
def templates() -> tuple[Template, ...]:
    """All templates."""
    paths = sorted((FOLDER / "templates").glob("*.py"))
    return tuple(_template(path.stem, path.read_text(encoding="utf-8")) for path in paths)


def _template(name: str, text: str) -> Template:
    scopes = re.compile(r"(?m)^[ \t]*def (\w+)")
    slots = [_slot(match, scopes.findall(text[: match.start()])[-1]) for match in _SLOT.finditer(text)]
    return Template(name, text, tuple(slots))


def _slot(match: re.Match[str], scope: str) -> Slot:
    words = match[3].split()
    sensitive = frozenset(_target(word.strip("!"))[0] for word in words if word.endswith("!"))
    return Slot(match[2], scope, tuple(_target(word.strip("!")) for word in words), sensitive)


def _target(word: str) -> tuple[str, Kind]:
    name, _, kind = word.partition("=")
    return name, Kind(kind or "tensor")


def empty(text: str) -> str:
    """The text of a template without its slots."""
    return _SLOT.sub("", text)


def has_slots(template: Template, text: str) -> bool:
    """Does `text`, a changed template, have each slot of it once, in the same order?"""
    return [match[2] for match in _SLOT.finditer(text)] == [slot.name for slot in template.slots]


def rendered(case: Case, text: str = "") -> str:
    """The program, made of another `text` of the template if one is given."""
    names = [case.target, *(f"z{number}" for number in range(1, len(case.aliases) + 1))]
    effect = filled(case.effect.code, DST=names[-1])
    place = filled(case.place.code, HERE=effect, EFFECT=effect)
    late = case.place.late or place
    early = place if case.place.late else ""
    if case.alias_at == case.effect_at:
        early = f"{early}\n{late}" if early else late
    code = _chained(case, names, effect, early)
    fill = {case.effect_at: late} | {case.alias_at: code}
    tops = [part.top for part in case.parts if part.top]
    needed = imports("\n".join([*tops, code, late]))
    text = text or case.template.text
    heads = [line for line in dict.fromkeys(needed) if f"\n{line}\n" not in text]
    top = "".join(f"{line}\n" for line in heads) + "".join(f"\n\n{top}\n" for top in dict.fromkeys(tops))
    text = text.replace("\nkept = []\n", f"\n{top}\n\nkept = []\n", 1)
    lines = {name: code.strip("\n") for name, code in fill.items()}
    return _SLOT.sub(lambda match: f"{indented(lines[match[2]], match[1])}\n" if lines.get(match[2]) else "", text)


def _chained(case: Case, names: list[str], effect: str, tail: str) -> str:
    """The aliases one behind the other, or one within the other, and `tail` at their end."""
    for alias, source, name in reversed(list(zip(case.aliases, names, names[1:], strict=False))):
        code = filled(alias.code, SRC=source, DST=name)
        if alias.wants_expression:
            tail = filled(code, EFFECT=effect)
        elif re.search(r"(?m)^[ \t]*HERE$", code) and case.is_inside:
            tail = filled(code, HERE=tail or "pass")
        else:
            tail = f"{filled(code, HERE='pass')}\n{tail}"
    return tail


def drawn(rng: random.Random, among: tuple[Template, ...] = ()) -> Case:
    """A program drawn by chance."""
    among = among or templates()
    weights = [_RARE if template.is_slow else 1.0 for template in among]
    template = rng.choices(among, weights)[0]
    if rng.random() < 0.5:
        first, (target, kind) = rng.choice(template.sensitive or template.targets)
    else:
        first, (target, kind) = rng.choice(template.targets)
    later = [slot for slot in template.slots[template.slots.index(first) :] if slot.scope == first.scope]
    last = first if rng.random() < 0.4 else rng.choice(later)
    aliases = tuple(rng.choice(ALIASES[kind]) for _ in range(rng.choices((0, 1, 2), (5, 75, 20))[0]))
    effect, place = rng.choice(EFFECTS[kind]), HERE if rng.random() < 0.5 else rng.choice(PLACES)
    if kind is Kind.TENSOR and rng.random() < 0.15:
        if rng.random() < 0.5:
            effect = rng.choice(READS)
        else:
            aliases = (rng.choice(COPIES), *aliases[1:])
    return settled(Case(template, target, kind, aliases, effect, place, first.name, last.name, rng.random() < 0.7))


def settled(case: Case) -> Case:
    """`case` without what can't be: two places for an expression, or a statement where one has to be."""
    *first, last = case.aliases or (None,)
    plain = tuple(alias for alias in first if not alias.wants_expression)
    if last and last.wants_expression and case.effect.is_expression:
        return replace(case, aliases=(*plain, last), place=HERE, alias_at=case.effect_at)
    aliases = plain if not last or last.wants_expression else (*plain, last)
    place = HERE if case.place.wants_expression and not case.effect.is_expression else case.place
    return replace(case, aliases=aliases, place=place)


def every(among: tuple[Template, ...] = ()) -> Iterator[Case]:
    """Programs in each of which one part is tried, all others plain, at each name that the fix does not bear it on."""
    for template in among or templates():
        for slot, (target, kind) in template.sensitive:
            plain = Case(template, target, kind, (), EFFECTS[kind][0], HERE, slot.name, slot.name)
            yield from (settled(replace(plain, effect=each)) for each in EFFECTS[kind])
            yield from (settled(replace(plain, aliases=(each,))) for each in ALIASES[kind])
            later = template.slots[template.slots.index(slot) :]
            for last in (each for each in later if each.scope == slot.scope):
                yield from (settled(replace(plain, place=each, effect_at=last.name)) for each in PLACES)


def covering() -> Iterator[Case]:
    """Programs in each of which one part is tried, all others plain, where the fix of the template does not bear it."""
    for number, kind in enumerate(Kind):
        aliases = ALIASES[kind] if kind is Kind.TENSOR else ALIASES[kind][number::3]
        places = PLACES if kind is Kind.TENSOR else ()
        for part in (*aliases, *EFFECTS[kind], *places):
            plain = random.Random(f"{kind.value} {part.name}").choice(_plain(kind))
            if part in aliases:
                yield settled(replace(plain, aliases=(part,)))
            elif part in places:
                yield settled(replace(plain, place=part))
            else:
                yield settled(replace(plain, effect=part))


@cache
def _plain(kind: Kind) -> list[Case]:
    return [
        Case(template, target, kind, ALIASES[kind][:1], EFFECTS[kind][0], HERE, slot.name, slot.name)
        for template in templates()
        for slot, (target, found) in template.sensitive
        if found is kind and not template.is_slow
    ]


def simpler(case: Case) -> Iterator[Case]:
    """Cases like `case` with one part left out or replaced by the plainest of its kind."""
    name, effect = ALIASES[case.kind][0], EFFECTS[case.kind][0]
    if case.aliases:
        yield replace(case, aliases=())
        yield replace(case, aliases=(name,))
        for index in range(len(case.aliases)):
            yield replace(case, aliases=(*case.aliases[:index], *case.aliases[index + 1 :]))
    yield replace(case, place=HERE)
    yield replace(case, effect=effect)
    yield replace(case, alias_at=case.effect_at)
    yield replace(case, effect_at=case.alias_at)
    yield replace(case, is_inside=True)
