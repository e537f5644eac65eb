"""Which figure a sweep should remember of a decided candidate: `python -m scripts.experiments.winners_curse`.

The sweep, the ledger, the landscape and the keep rule's statistics are the real ones. The landscape is made up: four
knobs with 360 configurations, of which each pair of knobs has effects of its own. A judge is simulated on recorded
noise: whenever it takes a pair of processes, it takes the blocks of one recorded pair of identical programs, one side
or the other for the candidate by a coin, and adds the true difference. A screening has one pair, a decision several.

Two readings are compared, on the same landscapes and the same noise of each configuration:

screening   a rejected candidate counts with what its screening pair saw, whatever the decision saw
last stage  it counts with what the last stage saw

Of each sweep it is reported which configuration its landscape names best, by how much the figure recorded for that one
exceeds the truth (bias), and by how much its truth falls short of the best of all configurations (regret). Log ratios.
Each scale multiplies the recorded noise; on an H200 of one's own it is small.

--noise names a JSON list, gzipped, of {kind, pair, n, k, blocks}: a block is [order, segments, environment], `order`
has 0 for one side and 1 for the other, and a segment begins with its milliseconds.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.entries import JudgedEntry, ProposedEntry, SettledEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.sweep.landscape import KnobObservation, build_landscape
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.harness.judge.trial import SCREEN_ALPHA, deciding_estimate
from hillclimb.harness.knobs.knobs import Knobs, KnobValue, defaults, parse_knobs
from hillclimb.harness.records import Estimate, Interval, Reason
from hillclimb.harness.statistics import evidence
from scripts.experiments import frame

Reading = Literal["screening", "last stage"]
READINGS: tuple[Reading, ...] = ("screening", "last stage")
RecordedPairs = Mapping[str, Sequence[Sequence[float]]]
"""Kind of kernel -> the log ratios of each recorded pair's blocks."""

SEEDS, CANDIDATES = 96, 60
SCALES = (1.0, 10.0, 50.0)
MINIMUM_EFFECT, ALPHA = 0.01, 0.05
SCREEN_BLOCKS, PAIR_BLOCKS, MAX_PAIRS, REPORT_PAIRS = 12, 5, 20, 5
EFFECT_SD, INTERACTION_SD = 0.05, 0.015
"""Log ratios by which a value, and a pair of values, moves the speed."""
KNOBS = """
A: {type: choice, choices: [0, 1, 2, 3, 4, 5], default: 0}
B: {type: choice, choices: [0, 1, 2, 3, 4], default: 0}
C: {type: choice, choices: [0, 1, 2, 3], default: 0}
D: {type: choice, choices: [0, 1, 2], default: 0}
"""


@dataclass(frozen=True)
class SimulatedVerdict:
    """What a judge says of one candidate."""

    screened: float
    decided: Estimate | None = None
    reported: Interval | None = None
    """None: it is rejected."""


@dataclass(frozen=True)
class SweepEnd:
    """Where one sweep ended; log ratios over the baseline."""

    bias: float
    regret: float
    is_rejected: bool
    """Whether the configuration named best was tried and not kept."""


class NullDisk(Disk):
    """Keeps nothing: these ledgers live in memory."""

    def append(self, path: Path, content: bytes) -> None:
        pass


class PairSource:
    """Draws recorded pairs of one kind."""

    def __init__(self, pairs: Sequence[Sequence[float]], scale: float, rng: random.Random) -> None:
        self._pairs, self._scale, self._rng = pairs, scale, rng

    def draw_blocks(self, gain: float, count: int) -> list[float]:
        """Log ratios of one pair's first blocks, from a random one on, for a candidate of this true gain."""
        pair, sign = self._rng.choice(self._pairs), self._rng.choice((-1, 1))
        start = self._rng.randrange(len(pair))
        return [gain + sign * self._scale * pair[(start + i) % len(pair)] for i in range(count)]

    def draw_values(self, gain: float) -> Iterator[float]:
        """One value a pair, for ever."""
        while True:
            yield statistics.median(self.draw_blocks(gain, PAIR_BLOCKS))


def main() -> int:
    parser = frame.make_parser(__doc__)
    parser.add_argument(
        "--noise", type=Path, required=True, metavar="FILE", help="recorded pairs, gzipped JSON"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    arguments = parser.parse_args()
    recorded = read_pairs(json.loads(gzip.decompress(arguments.noise.read_bytes())))
    output = frame.Output(arguments.output, {"seeds": arguments.seeds, "candidates": CANDIDATES})
    output.provenance["command"] = "scripts/experiments/winners_curse.py"
    output.save(pair_sd={kind: round(_pair_sd(pairs), 6) for kind, pairs in recorded.items()})
    for scale in SCALES:
        if f"{scale:g}" not in output.found.get("scales", {}):
            found = compare_readings(recorded, scale, arguments.seeds)
            output.save(scales={**output.found.get("scales", {}), f"{scale:g}": found})
        print(f"noise x{scale:g}: {json.dumps(output.found['scales'][f'{scale:g}'])}")
    return 0


def read_pairs(recorded: Sequence[Mapping[str, Any]]) -> dict[str, list[list[float]]]:
    """The recording as log ratios of blocks, by kind."""
    found: dict[str, list[list[float]]] = {}
    for pair in recorded:
        found.setdefault(str(pair["kind"]), []).append([_log_ratio(*block[:2]) for block in pair["blocks"]])
    return found


def compare_readings(recorded: RecordedPairs, scale: float, seeds: int) -> dict[str, dict[str, float]]:
    """Both readings over the same seeds; seed s has the noise of kind s modulo their number."""
    kinds = sorted(recorded)
    ends: dict[Reading, list[SweepEnd]] = {
        reading: [sweep(recorded[kinds[seed % len(kinds)]], scale, seed, reading) for seed in range(seeds)]
        for reading in READINGS
    }
    return {reading: _summarise(found) for reading, found in ends.items()}


def sweep(pairs: Sequence[Sequence[float]], scale: float, seed: int, reading: Reading) -> SweepEnd:
    """One sweep to its end."""
    knobs, truth = parse_knobs(KNOBS, Path("knobs.yaml")), make_truth(seed)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.jsonl", NullDisk())
        proposer, incumbent = SweepProposer(knobs, seed), dict(defaults(knobs))
        for _ in range(CANDIDATES):
            proposal = proposer.propose(ledger)
            if proposal is None:
                break
            tried = {**incumbent, **proposal.knobs}
            noise = PairSource(pairs, scale, random.Random(f"{seed}/{sorted(tried.items())}"))
            gain = truth(tried) - truth(incumbent)
            verdict = judge(gain, noise, ledger.confirmations + 1)
            _record(ledger, proposal, verdict, truth(tried) - truth(defaults(knobs)), reading)
            incumbent = tried if verdict.reported else incumbent
        return _end(ledger, knobs, truth)


def make_truth(seed: int) -> Callable[[Mapping[str, KnobValue]], float]:
    """A made-up log speed of each configuration."""
    knobs, rng = parse_knobs(KNOBS, Path("knobs.yaml")), random.Random(f"truth/{seed}")
    names, effects = sorted(knobs), dict[tuple[object, ...], float]()
    for at, name in enumerate(names):
        for value in knobs[name].values() or ():
            effects[name, value] = rng.gauss(0, EFFECT_SD)
            for other in names[at + 1 :]:
                for beside in knobs[other].values() or ():
                    effects[name, value, other, beside] = rng.gauss(0, INTERACTION_SD)

    def truth(configuration: Mapping[str, KnobValue]) -> float:
        items = sorted(configuration.items())
        pairs = ((*one, *two) for at, one in enumerate(items) for two in items[at + 1 :])
        return sum(effects[key] for key in (*items, *pairs))

    return truth


def judge(gain: float, noise: PairSource, k: int) -> SimulatedVerdict:
    """The keep rule without gate, guardrails and clocks, on simulated pairs."""
    blocks = noise.draw_blocks(gain, SCREEN_BLOCKS)
    seen, is_open = _screen(blocks)
    screened = math.exp(statistics.fmean(seen))
    if not is_open:
        return SimulatedVerdict(screened)
    values: list[float] = []
    for value in noise.draw_values(gain):
        values.append(value)
        if evidence.proves_gain(values, MINIMUM_EFFECT, evidence.alpha_share(ALPHA, k)):
            break
        if evidence.is_futile(values, MINIMUM_EFFECT) or len(values) == MAX_PAIRS:
            return SimulatedVerdict(screened, deciding_estimate(values))
    report = noise.draw_values(gain)
    reported = evidence.interval([next(report) for _ in range(REPORT_PAIRS)])
    return SimulatedVerdict(screened, deciding_estimate(values), reported if reported.low > 1 else None)


def _screen(blocks: Sequence[float]) -> tuple[list[float], bool]:
    """The blocks looked at, and whether fresh pairs follow."""
    for count in range(1, len(blocks) + 1):
        seen = list(blocks[:count])
        if evidence.proves_gain(seen, MINIMUM_EFFECT, SCREEN_ALPHA):
            return seen, True
        if evidence.is_futile(seen, MINIMUM_EFFECT):
            return seen, False
    return list(blocks), statistics.median(blocks) > math.log1p(MINIMUM_EFFECT)


def _record(
    ledger: Ledger, proposal: Proposal, verdict: SimulatedVerdict, true_log_speed: float, reading: Reading
) -> None:
    """The ledger's lines. What a win has over the baseline is taken as exact: it is not what is compared here."""
    n, kept = len(ledger.candidates) + 1, verdict.reported is not None
    total = math.exp(true_log_speed)
    ledger.append(ProposedEntry(n=n, time=float(n), proposal=proposal))
    if verdict.decided:
        ledger.confirmations += 1
    ledger.append(
        JudgedEntry(
            n=n,
            time=float(n),
            kept=kept,
            reason=None if kept else Reason.NO_PROVEN_GAIN,
            screened=verdict.screened,
            decided=verdict.decided if reading == "last stage" else None,
            speedup=verdict.reported,
            cumulative=Interval(estimate=total, low=total, high=total, pairs=REPORT_PAIRS) if kept else None,
            parent="0" * 40,
            commit=f"{n:040x}" if kept else None,
        )
    )
    ledger.append(SettledEntry(n=n))


def _end(ledger: Ledger, knobs: Knobs, truth: Callable[[Mapping[str, KnobValue]], float]) -> SweepEnd:
    landscape, start = build_landscape(knobs, ledger), truth(defaults(knobs))
    best = max(landscape.observations, key=_value)
    valid = landscape.valid_configs
    assert valid is not None
    reached = truth(best.configuration) - start
    highest = max(truth(valid.configuration(row)) - start for row in range(len(valid)))
    return SweepEnd(
        bias=_value(best) - reached,
        regret=highest - reached,
        is_rejected=best.n > 0 and best.reason is not None,
    )


def _value(seen: KnobObservation) -> float:
    return -math.inf if seen.value is None else seen.value


def _log_ratio(order: Sequence[int], segments: Sequence[Sequence[float]]) -> float:
    sides: tuple[list[float], list[float]] = ([], [])
    for side, segment in zip(order, segments, strict=True):
        sides[side].append(math.log(segment[0]))
    return statistics.fmean(sides[1]) - statistics.fmean(sides[0])


def _pair_sd(pairs: Sequence[Sequence[float]]) -> float:
    return statistics.stdev(statistics.median(pair) for pair in pairs)


def _summarise(ends: Sequence[SweepEnd]) -> dict[str, float]:
    biases, regrets = ([getattr(end, name) for end in ends] for name in ("bias", "regret"))
    return {
        "mean_bias": round(statistics.fmean(biases), 4),
        "largest_bias": round(max(biases), 4),
        "mean_regret": round(statistics.fmean(regrets), 4),
        "largest_regret": round(max(regrets), 4),
        "names_a_rejected_one": sum(end.is_rejected for end in ends),
        "sweeps": len(ends),
    }


if __name__ == "__main__":
    raise SystemExit(main())
