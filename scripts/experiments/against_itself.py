"""A case's workspace against itself, in fresh pairs of processes or servers:
`python -m scripts.experiments.against_itself CASE [--pairs 12] [--suite S] [--output PATH]`.

Whatever differs is noise. A few pairs at a time are one part, as many as the case's `duel.report_pairs`, and the same
command goes on after a kill.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from hillclimb.harness.case.case import Case, find_case
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Pair, Progress, Side
from hillclimb.harness.statistics.evidence import interval
from hillclimb.harness.statistics.readings import log_ratio
from scripts.experiments import frame


def main() -> None:
    parser = frame.make_parser(__doc__)
    parser.add_argument("case", help="the case's folder, or its name")
    parser.add_argument("--pairs", type=int, default=12, help="fresh pairs, at the least (default: 12)")
    parser.add_argument("--suite", default="", help="of the case's (default: the objective's)")
    given = parser.parse_args()
    if given.pairs < 3:
        parser.error("--pairs: a scatter needs 3 at the least")
    output = frame.Output(given.output, {"case": given.case, "suite": given.suite})
    case = Case(find_case(given.case))
    pairs: list[dict[str, Any]] = output.found.setdefault("pairs", [])
    side = Side(tree=str(case.workspace))
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(LocalJudge(case.folder, Path(folder, "log"))) as judge,
    ):
        output.provenance["judge"] = judge.describe().model_dump(mode="json")
        while len(pairs) < given.pairs:
            found = judge.compare(side, side, "noise", _tell, given.suite)
            pairs += [pair.model_dump(mode="json") for pair in found.pairs]
            output.save(seconds=output.found.get("seconds", 0.0) + found.seconds, **spread(pairs))
            print(
                f"{len(pairs)} pairs: {output.found['speedup']}, a pair's scatter {output.found['pair_sd']:.4f}",
                flush=True,
            )


def spread(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the pairs say together, each by the median of its blocks, and how much blocks differ within them."""
    blocks = [[log_ratio(block) for block in Pair.model_validate(row).blocks] for row in rows]
    values = [statistics.median(ratios) for ratios in blocks]
    within = [statistics.stdev(ratios) for ratios in blocks if len(ratios) > 1]
    return {
        "speedup": str(interval(values)),
        "ratios": [round(math.exp(value), 4) for value in values],
        "pair_sd": statistics.stdev(values),
        "block_sd": statistics.median(within) if within else None,
    }


def _tell(progress: Progress) -> None:
    if progress.stage == "noise":
        print(f"  {progress.done} of {progress.of}", flush=True)


if __name__ == "__main__":
    main()
