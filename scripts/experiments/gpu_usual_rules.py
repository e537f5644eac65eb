#!/usr/bin/env python3
"""What do the usual rules keep of identical candidates on this GPU?  For comparison with gpu_error_rates.

Every candidate is the incumbent's source with another comment, read three times by do_bench in a process of its own;
the incumbent is read anew beside each, in a process of its own as well. Processes are forked from one that has
imported torch and triton.

    scripts/experiments/gpu_usual_rules.py softmax --candidates 60 --output docs/evidence/gpu_usual_softmax.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import gpu_calibration
import gpu_cases
import torch
import usual_rules

READINGS = 3


def main() -> None:
    options = _parse()
    found: dict[str, Any] = {"kind": options.kind, "rows": []}
    if options.output.exists():
        found = json.loads(options.output.read_text())
    deadline = time.perf_counter() + options.seconds
    with tempfile.TemporaryDirectory(prefix="hillclimb-usual-") as folder:
        while len(found["rows"]) < options.candidates and time.perf_counter() < deadline:
            i = len(found["rows"])
            sides = [
                gpu_cases.write_workspace(
                    Path(folder, f"{name}-{i}"), options.kind, gpu_cases.NO_TAIL, f"{name} {i}"
                )
                for name in ("candidate", "incumbent")
            ]
            candidate, incumbent = (_read_apart(side, options.kind) for side in sides)
            found["rows"].append(
                {
                    "verdicts": usual_rules.verdicts(candidate, incumbent),
                    "ms": [_mean(candidate[0]), _mean(incumbent[0])],
                }
            )
            kept = usual_rules.kept_by([row["verdicts"] for row in found["rows"]])
            found |= {"device": options.device, "candidates": len(found["rows"]), "kept": kept}
            options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({key: found[key] for key in ("kind", "candidates", "kept")}))


def _read_apart(workspace: Path, kind: str) -> list[list[float]]:
    """Readings of one side, in a forked process; CUDA is never touched in this one."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_read, args=(theirs, str(workspace), kind))
    process.start()
    theirs.close()
    readings: list[list[float]] = ours.recv()
    process.join()
    return readings


def _read(end: Any, workspace: str, kind: str) -> None:
    module: Any = gpu_calibration.load(workspace, gpu_cases.NO_TAIL)
    slot = gpu_calibration.make_slots(kind)[0]
    module.run(*slot)
    torch.cuda.synchronize()
    end.send([usual_rules.read(lambda: module.run(*slot)) for _ in range(READINGS)])


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=gpu_cases.KINDS)
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no candidate after this time")
    parser.add_argument("--device", default="", help="the GPU's name, for the record")
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
