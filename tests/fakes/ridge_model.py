"""A model that half knows a ridge; what it knows is stated in tests/fakes/ridge.py."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping

from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.proposer import ProposerContext
from hillclimb.agent.record.entries import CalledEntry, Idea
from hillclimb.agent.record.ledger import Ledger
from hillclimb.harness.knobs.knobs import contains, defaults
from tests.fakes.ridge import NEW_SIZE, TUNING, Ridge, Trait, knob_entry, parse_cached, traits_of


class RidgeModel:
    """Has the interface of hillclimb.agent.proposers.mixed.Editor; a proposer by itself where nobody names a family."""

    FLAIR = 0.12
    """How far off, in log speed, the model is about an idea."""
    TURNS_KNOBS = 0.15
    """How often it turns a knob where it is free."""

    def __init__(self, background: ProposerContext, ridge: Ridge) -> None:
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
            CalledEntry(
                k=k, time=now, seconds=1.0, model="half-knowing", incumbent=incumbent, family=family,
                outcome="proposal", idea=proposal.idea, ideas=ideas,
            )
        )  # fmt: skip
        return proposal.model_copy(update={"call": k})

    is_down = False

    def is_ready(self, ledger: Ledger) -> bool:
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
            declared = files["knobs.yaml"] + knob_entry(trait.knob, NEW_SIZE)
            edits.append(Edit(path="knobs.yaml", content=declared))
        return Proposal(author="llm", idea=trait.name, family=trait.family, edits=tuple(edits))

    def _turn_a_knob(self, files: Mapping[str, str], rng: random.Random) -> Proposal | None:
        knobs = parse_cached(files["knobs.yaml"])
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
