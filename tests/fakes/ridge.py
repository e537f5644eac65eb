"""A landscape of knobs and edits whose truth is known; ridge_judge sees it through noise, ridge_model half knows it.

What is assumed, drawn anew from each seed:

- Log speed is the sum of what the knobs give and what the traits (edits that were made) give. A knob's part is a rough
  bowl over its values; three pairs of knobs interact; a corner of the space fails the gate.
- Edits come in families, two strong, two middling, two that lead nowhere. The ideas of a family pay less and less,
  the more of them are in; most ideas do not pay at all, and about one in six fails the gate.
- Four good ideas in ten move the best value of a knob by a step or two, two in ten bring a knob of their own, and some
  pairs of ideas spoil each other, so what was won earlier may turn.
- The model sees the gain of an idea through heavy noise, and prefers what looks better; left free, it goes by its own
  hunch about the families and leaves one that fails it. It sometimes turns a knob instead, six times in ten the right
  way. It is the same model with the rhythm and without; the rhythm may name the family.
- Kinds of landscape: what knobs and edits can give is 1.6 and 0.4 in log speed, 0.4 and 1.6, or 1.0 and 1.0.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from hillclimb.harness.knobs.knobs import Knobs, environment_text, parse_knobs

Kind = Literal["knobs", "edits", "balanced"]
KINDS: tuple[Kind, ...] = ("knobs", "edits", "balanced")

PAIR_SD = 0.006
MINIMUM_EFFECT = 0.01
PAIRS = 8
FAMILIES = ("layout", "vectorise", "fuse", "prefetch", "unroll", "branches")
TUNING = "tuning"
IDEAS, GOOD = 30, 6
_WORTH: dict[Kind, tuple[float, float]] = {"knobs": (1.6, 0.4), "edits": (0.4, 1.6), "balanced": (1.0, 1.0)}
_SIZES = {"TILE": 6, "DEPTH": 6, "STAGES": 5, "WIDTH": 6, "ORDER": 4, "PACK": 2}
NEW_SIZE = 5

SETTINGS = f"""\
schema: 1
summary: a ridge
mutable: ["*.py", "knobs.yaml", "docs/**"]
objective: {{minimum_effect: {MINIMUM_EFFECT}}}
budgets: {{candidates: 200, seconds: 100000000, patience: 200}}
"""


@dataclass(frozen=True)
class Trait:
    """One idea of a family, as it truly is."""

    name: str
    family: str
    gain: float
    """Log speed, alone on the baseline; shrinks with every trait of its family that is in already."""
    fails: bool
    shifts: Mapping[str, int]
    """How far the best values of knobs move."""
    knob: str = ""
    """The knob that it brings."""


@dataclass(frozen=True)
class Ridge:
    """One landscape."""

    kind: Kind
    seed: int

    @cached_property
    def traits(self) -> dict[str, Trait]:
        """Every idea there is, by name."""
        rng = self._rng("traits")
        shares = [0.35, 0.3, 0.18, 0.12, 0.05, 0.0]
        rng.shuffle(shares)
        found = {}
        for family, share in zip(FAMILIES, shares, strict=True):
            for trait in self._family(family, share * _WORTH[self.kind][1], rng):
                found[trait.name] = trait
        return found

    @cached_property
    def bowls(self) -> dict[str, tuple[int, float, tuple[float, ...]]]:
        """Knob -> where its best value lies, its weight, and the roughness of each value."""
        rng = self._rng("bowls")
        sizes = _SIZES | {trait.knob: NEW_SIZE for trait in self.traits.values() if trait.knob}
        shares = [rng.expovariate(1) + 0.2 for _ in _SIZES]
        worth = [share / sum(shares) * _WORTH[self.kind][0] for share in shares]
        found = {}
        for index, (name, size) in enumerate(sizes.items()):
            weight = worth[index] if index < len(worth) else rng.uniform(0.05, 0.2)
            rough = tuple(rng.gauss(0, 0.08 * weight) for _ in range(size))
            found[name] = (rng.randrange((size + 1) // 2, size), weight, rough)
        return found

    @cached_property
    def pairs(self) -> dict[tuple[str, str], float]:
        """Pairs of knobs that interact, and of traits that spoil (or help) each other."""
        rng = self._rng("pairs")
        knobs = list(_SIZES)
        found = {(a, b): rng.uniform(-0.15, 0.15) for a, b in (rng.sample(knobs, 2) for _ in range(3))}
        good = [trait.name for trait in self.traits.values() if trait.gain > 0]
        spoilt = [(a, b) for i, a in enumerate(good) for b in good[i + 1 :] if rng.random() < 0.1]
        return found | {pair: rng.gauss(-0.06, 0.08) for pair in spoilt}

    def log_speed(self, present: frozenset[str], positions: Mapping[str, int]) -> float | None:
        """Of a source with these traits and knobs at these positions of their domains; None: the gate fails."""
        if any(self.traits[name].fails for name in present) or self._cornered(positions):
            return None
        return self._of_traits(present) + self._of_knobs(present, positions)

    def shares(self, present: frozenset[str]) -> dict[str, float]:
        """A profile's buckets: what a family could still give takes the time."""
        left = {
            family: 0.02 + math.fsum(max(t.gain, 0) for t in self._of(family) if t.name not in present)
            for family in FAMILIES
        }
        return {name: value / math.fsum(left.values()) for name, value in left.items()}

    def _family(self, family: str, worth: float, rng: random.Random) -> list[Trait]:
        gains = [worth * 0.45 * 0.6**rank for rank in range(GOOD)]
        gains += [rng.choice((0.0, 0.0, -0.03, -0.1, -0.25)) for _ in range(IDEAS - GOOD)]
        rng.shuffle(gains)
        return [self._trait(family, index, gain, rng) for index, gain in enumerate(gains)]

    def _trait(self, family: str, index: int, gain: float, rng: random.Random) -> Trait:
        shifted = [rng.choice(list(_SIZES)[:4])] if gain > 0 and rng.random() < 0.4 else []
        shifts = {name: rng.choice((-2, -1, -1, 1, 1, 2)) for name in shifted}
        brings = f"{family.upper()}_{index}" if gain > 0 and rng.random() < 0.2 else ""
        return Trait(f"{family}/{index}", family, gain, rng.random() < 1 / 6, shifts, brings)

    def _of(self, family: str) -> list[Trait]:
        return [trait for trait in self.traits.values() if trait.family == family]

    def _cornered(self, positions: Mapping[str, int]) -> bool:
        return positions["TILE"] == _SIZES["TILE"] - 1 and positions["DEPTH"] >= _SIZES["DEPTH"] - 2

    def _of_traits(self, present: frozenset[str]) -> float:
        total = math.fsum(value for (a, b), value in self.pairs.items() if a in present and b in present)
        for family in FAMILIES:
            inside = sorted((t.gain for t in self._of(family) if t.name in present), reverse=True)
            total += math.fsum(gain * (0.85**rank if gain > 0 else 1) for rank, gain in enumerate(inside))
        return total

    def _of_knobs(self, present: frozenset[str], positions: Mapping[str, int]) -> float:
        total = 0.0
        for name, position in positions.items():
            best, weight, rough = self.bowls[name]
            shift = sum(self.traits[trait].shifts.get(name, 0) for trait in present)
            best = min(max(best + shift, 0), len(rough) - 1)
            distance = (position - best) / (len(rough) - 1)
            total += rough[position] - weight * abs(distance)
        for (a, b), value in self.pairs.items():
            if a in _SIZES:
                total += (
                    value * (positions[a] / (_SIZES[a] - 1) - 0.5) * (positions[b] / (_SIZES[b] - 1) - 0.5)
                )
        return total

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self.kind}/{self.seed}/{what}")


KERNEL = f"""\
# what it does is the landscape's affair; every family and any knob may matter
import os
import {", ".join(FAMILIES)}

KNOBS = dict(os.environ)
run = None
"""


def knob_entry(name: str, size: int) -> str:
    """A knob's line in knobs.yaml; its default is its first value."""
    return f"{name}: {{type: choice, choices: {list(range(size))}, default: 0}}\n"


def write_ridge(root: Path) -> Path:
    """The case folder below `root`; the landscape is the judge's."""
    folder = root / "cases" / "demo" / "ridge"
    files = {
        "case.yaml": SETTINGS,
        "contract.py": "# the simulated judge needs no contract\n",
        "program.md": "Climb.\n",
        "benchmarks/main.yaml": "problems: [only]\ndistribution: normal\n",
        "workspace/kernel.py": KERNEL,
        "workspace/knobs.yaml": "".join(knob_entry(name, size) for name, size in _SIZES.items()),
    }
    files |= {f"workspace/{family}.py": f"# {family}\n" for family in FAMILIES}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def traits_of(files: Mapping[str, str]) -> frozenset[str]:
    """The traits written in a workspace's files."""
    texts = (files.get(f"{family}.py", "") for family in FAMILIES)
    return frozenset(line for text in texts for line in text.splitlines() if line and line[0] != "#")


def true_log_speed(
    ridge: Ridge, present: frozenset[str], knobs: Knobs, environment: Mapping[str, str]
) -> float | None:
    """Without noise; None where the gate would fail."""
    positions = {}
    for name, knob in knobs.items():
        texts = [environment_text(value) for value in knob.values() or ()]
        positions[name] = texts.index(environment.get(name, environment_text(knob.default)))
    return ridge.log_speed(present, positions)


@lru_cache(maxsize=256)
def parse_cached(text: str) -> Knobs:
    return parse_knobs(text, Path("knobs.yaml"))
