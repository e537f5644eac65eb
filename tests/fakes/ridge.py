"""A landscape of knobs and edits whose truth is known, a judge over it with noise, and a model that half knows it.

What is assumed, drawn anew from each seed:

- Log speed is the sum of what the knobs give and what the traits (edits that were made) give. A knob's part is a rough
  bowl over its values; three pairs of knobs interact; a corner of the space fails the gate.
- Edits come in families, two strong, two middling, two that lead nowhere. The ideas of a family pay less and less,
  the more of them are in; most ideas do not pay at all, and about one in six fails the gate.
- Four good ideas in ten move the best value of a knob by a step or two, two in ten bring a knob of their own, and some
  pairs of ideas spoil each other, so what was won earlier may turn.
- The model sees the gain of an idea through heavy noise, and prefers what looks better; left free, it goes by its own
  hunch about the families and leaves one that fails it. It sometimes turns a knob instead, six times in ten the right
  way. Who decides the family is the only difference between climbing with the rhythm and without.
- Kinds of landscape: what knobs and edits can give is 1.6 and 0.4 in log speed, 0.4 and 1.6, or 1.0 and 1.0.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from agent.background import Background
from agent.entries import Called, Idea
from agent.ledger import Ledger
from agent.proposal import Edit, Proposal
from harness.case.knobs import Knobs, contains, defaults, environment_text, parse_knobs
from harness.judge.protocol import Watch
from harness.records import (
    Bucket,
    Comparison,
    Confirmation,
    GateReport,
    Interval,
    ProblemTime,
    Profile,
    Provenance,
    Reason,
    Screening,
    Side,
)
from tests.fakes.judge import PROVENANCE

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
_NEW_SIZE = 5

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
        sizes = _SIZES | {trait.knob: _NEW_SIZE for trait in self.traits.values() if trait.knob}
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
        "workspace/kernel.py": "# what it does is the landscape's affair\n",
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


class RidgeJudge:
    """Implements harness.judge.protocol.Judge: true log speeds, seen through the noise of pairs of processes."""

    def __init__(self, ridge: Ridge, provenance: Provenance = PROVENANCE) -> None:
        self._ridge, self._provenance = ridge, provenance

    def describe(self) -> Provenance:
        return self._provenance

    def gate(self, side: Side, watch: Watch) -> GateReport:
        if self._true(side) is None:
            return GateReport(
                passed=False, reason=Reason.WRONG_RESULT, detail="off the ridge", runs=1, worst=3.0
            )
        return GateReport(passed=True, runs=8, worst=0.25)

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        gate, ratio = self.gate(candidate, watch), self._ratio(candidate, incumbent)
        if ratio is None:
            return Screening(gate=gate, reason=gate.reason, detail=gate.detail)
        seen = ratio + self._noise("screen", candidate, incumbent, 1)
        reason = None if seen > math.log1p(MINIMUM_EFFECT) else Reason.NO_PROVEN_GAIN
        if seen < -2 * PAIR_SD:
            reason = Reason.SLOWER
        return Screening(gate=gate, reason=reason, speedup=math.exp(seen))

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        gate, ratio = self.gate(candidate, watch), self._ratio(candidate, incumbent)
        if ratio is None:
            return Confirmation(gate=gate, reason=gate.reason, detail=gate.detail, alpha=alpha)
        seen = ratio + self._noise("decide", candidate, incumbent, PAIRS)
        kept = seen - 3 * PAIR_SD / math.sqrt(PAIRS) > math.log1p(MINIMUM_EFFECT)
        total = self._ratio(candidate, baseline) or 0.0
        return Confirmation(
            gate=gate,
            reason=None if kept else Reason.NO_PROVEN_GAIN,
            alpha=alpha,
            speedup=_interval(seen),
            cumulative=_interval(total + self._noise("total", candidate, baseline, PAIRS)),
            seconds_per_call=1e-3 / math.exp(total),
        )

    def compare(
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch
    ) -> Comparison:
        seen = (self._ratio(last, first) or 0.0) + self._noise(stage, last, first, PAIRS)
        return Comparison(speedup=_interval(seen), seconds_per_call=(1e-3, 1e-3), pair_sd=PAIR_SD)

    def profile(self, side: Side, watch: Watch) -> Profile:
        shares = sorted(self._ridge.shares(_read(side.tree)[0]).items(), key=lambda item: -item[1])
        buckets = tuple(
            Bucket(name=name, share=s, seconds_per_call=s * 1e-3, calls=1.0) for name, s in shares
        )
        problem = ProblemTime(problem="only", seconds_per_call=1e-3, flops=1e6, bytes=1e5)
        return Profile(problems=(problem,), buckets=buckets)

    def close(self) -> None:
        """It holds nothing."""

    def _true(self, side: Side) -> float | None:
        present, knobs = _read(side.tree)
        return true_log_speed(self._ridge, present, knobs, side.knobs)

    def _ratio(self, candidate: Side, incumbent: Side) -> float | None:
        above, below = self._true(candidate), self._true(incumbent)
        return None if above is None or below is None else above - below

    def _noise(self, stage: str, a: Side, b: Side, pairs: int) -> float:
        key = "/".join((stage, Path(a.tree).name, str(sorted(a.knobs.items())), Path(b.tree).name))
        return random.Random(f"{self._ridge.seed}/{key}").gauss(0, PAIR_SD / math.sqrt(pairs))


def true_log_speed(
    ridge: Ridge, present: frozenset[str], knobs: Knobs, environment: Mapping[str, str]
) -> float | None:
    """Without noise; None where the gate would fail."""
    positions = {}
    for name, knob in knobs.items():
        texts = [environment_text(value) for value in knob.values() or ()]
        positions[name] = texts.index(environment.get(name, environment_text(knob.default)))
    return ridge.log_speed(present, positions)


def _read(tree: str) -> tuple[frozenset[str], Knobs]:
    folder = Path(tree)
    files = {path.name: path.read_text() for path in folder.glob("*.py")}
    return traits_of(files), _parse((folder / "knobs.yaml").read_text())


@lru_cache(maxsize=256)
def _parse(text: str) -> Knobs:
    return parse_knobs(text, Path("knobs.yaml"))


def _interval(log_ratio: float) -> Interval:
    low, high = math.exp(log_ratio - 0.005), math.exp(log_ratio + 0.005)
    return Interval(estimate=math.exp(log_ratio), low=low, high=high, pairs=PAIRS)


class RidgeModel:
    """Has the interface of agent.proposers.mixed.Editor; a proposer by itself where nobody names a family."""

    FLAIR = 0.12
    """How far off, in log speed, the model is about an idea."""
    TURNS_KNOBS = 0.15
    """How often it turns a knob where it is free."""

    def __init__(self, background: Background, ridge: Ridge) -> None:
        self._background, self._ridge = background, ridge

    def propose(self, ledger: Ledger, family: str = "", reason: str = "") -> Proposal | None:
        rng = random.Random(f"{self._background.seed}/{self._ridge.seed}/{len(ledger.candidates)}")
        files = self._background.files(ledger.incumbent)
        chosen = family or (TUNING if rng.random() < self.TURNS_KNOBS else "")
        proposal = self._turn_a_knob(files, rng) if chosen == TUNING else None
        if proposal is None:
            proposal = self._edit(self._pick(ledger, files, chosen, rng), files)
        if proposal is None:
            return None
        k = len(ledger.calls) + 1
        ideas = tuple(Idea(family=trait.family, idea=trait.name) for trait in self._liked(ledger, files, rng))
        now = self._background.clock.now()
        incumbent = ledger.incumbent
        ledger.append(
            Called(
                k=k, time=now, seconds=1.0, model="half-knowing", incumbent=incumbent, family=family,
                outcome="proposal", idea=proposal.idea, ideas=ideas,
            )
        )  # fmt: skip
        return proposal.model_copy(update={"call": k})

    def ready(self, ledger: Ledger) -> bool:
        return True

    def importances(self, ledger: Ledger) -> dict[str, float]:
        return {}

    def finish(self, ledger: Ledger) -> None:
        """Nothing is under way."""

    def _untried(self, ledger: Ledger, files: Mapping[str, str]) -> list[Trait]:
        done = {candidate.proposal.idea for candidate in ledger.candidates} | traits_of(files)
        return [trait for trait in self._ridge.traits.values() if trait.name not in done]

    def _pick(
        self, ledger: Ledger, files: Mapping[str, str], family: str, rng: random.Random
    ) -> Trait | None:
        """What looks best to it, of the family if one is named and has anything left."""
        untried = self._untried(ledger, files)
        wanted = family or self._favourite(ledger, sorted({trait.family for trait in untried}), rng)
        pool = [trait for trait in untried if trait.family == wanted] or untried
        return max(pool, key=lambda trait: self._appeal(trait, rng), default=None)

    def _appeal(self, trait: Trait, rng: random.Random) -> float:
        return trait.gain + rng.gauss(0, self.FLAIR)

    def _favourite(self, ledger: Ledger, choice: list[str], rng: random.Random) -> str:
        """By a hunch about what each could give, halved for every failure in a row that it met there."""
        weights = []
        for family in choice:
            worth = math.fsum(max(t.gain, 0) for t in self._ridge.traits.values() if t.family == family)
            hunch = random.Random(f"{self._ridge.seed}/{family}").gauss(0, 0.3)
            failures = 0
            for candidate in reversed(ledger.candidates):
                if candidate.proposal.family == family and candidate.proposal.author == "llm":
                    if candidate.judged and candidate.judged.kept:
                        break
                    failures += 1
            weights.append(math.exp(2 * (worth + hunch)) * 0.5**failures)
        return rng.choices(choice, weights)[0] if choice else ""

    def _liked(self, ledger: Ledger, files: Mapping[str, str], rng: random.Random) -> list[Trait]:
        """What it would try next."""
        untried = self._untried(ledger, files)
        return sorted(untried, key=lambda trait: -self._appeal(trait, rng))[: rng.choice((0, 1, 2))]

    def _edit(self, trait: Trait | None, files: Mapping[str, str]) -> Proposal | None:
        if trait is None:
            return None
        path = f"{trait.family}.py"
        edits = [Edit(path=path, content=files.get(path, "") + trait.name + "\n")]
        if trait.knob and f"{trait.knob}:" not in files["knobs.yaml"]:
            declared = files["knobs.yaml"] + knob_entry(trait.knob, _NEW_SIZE)
            edits.append(Edit(path="knobs.yaml", content=declared))
        return Proposal(author="llm", idea=trait.name, family=trait.family, edits=tuple(edits))

    def _turn_a_knob(self, files: Mapping[str, str], rng: random.Random) -> Proposal | None:
        knobs = _parse(files["knobs.yaml"])
        name = rng.choice(list(knobs))
        now, best = defaults(knobs)[name], self._ridge.bowls[name][0]
        assert isinstance(now, int)
        up = best > now if rng.random() < 0.6 else rng.random() < 0.5
        step = 1 if up else -1
        value = now + step if contains(knobs[name], now + step) else now - step
        if not contains(knobs[name], value):
            return None
        idea = f"{name}={value} {hashlib.sha256(str(files).encode()).hexdigest()[:6]}"
        return Proposal(author="llm", idea=idea, family=TUNING, knobs={name: value})
