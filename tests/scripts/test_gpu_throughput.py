"""The throughput experiments count right. No GPU is needed."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.knobs.knobs import contains

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "experiments"))

import gpu_throughput  # noqa: E402
import stopwatch  # noqa: E402

DEMO = ROOT / "cases" / "demo" / "triton_softmax"


def test_a_stopwatch_charges_the_innermost_phase() -> None:
    watch = stopwatch.Stopwatch()
    inner = watch.around(lambda: time.sleep(0.02), "inner")
    with watch.phase("outer"):
        time.sleep(0.01)
        inner()
        with pytest.raises(KeyError), watch.phase("inner"):
            raise KeyError
    lap = watch.lap()
    assert lap["inner"] >= 0.02 and lap["outer"] >= 0.01 and lap["rest"] >= 0
    assert sum(watch.cpu.values()) <= sum(lap.values())
    assert set(watch.lap()) == {"rest"}


def test_every_border_of_the_stopwatch_is_there() -> None:
    """Else a phase would silently count as another one's."""
    for module, owner, attribute in itertools.chain(
        *stopwatch.CONTROLLER.values(), *stopwatch.JUDGE.values()
    ):
        place: Any = __import__(module, fromlist=["_"])
        assert callable(getattr(getattr(place, owner) if owner else place, attribute))


def lap(wall: float, judge: dict[str, float], *, kept: bool = False) -> dict[str, Any]:
    controller = {"git": 0.01, "judge": sum(judge.values()) + 0.002}
    controller["rest"] = wall - sum(controller.values())
    cpus = {"controller_cpu": {"git": 0.004}, "judge_cpu": {"start": 0.003}, "git_cpu": 0.002}
    return {"wall": wall, "kept": kept, "controller": controller, "judge": judge, **cpus}


def test_overhead_is_what_is_neither_import_nor_compilation_nor_gate_nor_timing() -> None:
    work = {"import": 0.1, "compile": 0.2, "gate": 0.3, "timing": 0.4}
    found = stopwatch.overhead([lap(1.1, {**work, "start": 0.05})] * 3)
    assert found["evaluations"] == 3
    assert found["work"]["median"] == 1000 and found["overhead"]["median"] == 100
    assert found["parts"]["judge: start"]["median"] == 50
    assert found["parts"]["controller: git"]["median"] == 10
    assert found["parts"]["protocol"]["median"] == 2
    assert sum(part["median"] for part in found["parts"].values()) == pytest.approx(100)
    assert found["cpu"]["median"] == 9


def test_rates_and_shares_of_a_climb() -> None:
    laps = [lap(2.0, {"gate": 0.5, "timing": 1.0})] * 9 + [lap(12.0, {"timing": 11.0}, kept=True)]
    verdicts = ["slower"] * 9 + ["kept"]
    found = gpu_throughput.summarise({"laps": laps, "device": "d", "speedup": 1.1, "verdicts": verdicts})
    assert (found["candidates"], found["kept"], found["per_hour"]) == (10, 1, 1200)
    assert found["rejected_per_hour"] == 1800
    assert found["measuring_share"] == round((9 * 1.5 + 11) / 30, 3)
    assert found["timing_share"] == round(20 / 30, 3)
    assert found["verdicts"] == {"kept": 1, "slower": 9}


def test_two_gpus_are_compared_over_what_both_and_the_one_came_to() -> None:
    def climb(seconds: float, count: int) -> dict[str, Any]:
        slow = lap(100.0, {})  # the next in the list, which not all came to
        return {
            "laps": [*[lap(seconds, {})] * 4, *[slow] * count],
            "verdicts": ["slower"] * (4 + count),
            "device": "d",
        }

    found = gpu_throughput.side_by_side([climb(2.0, 1), climb(2.5, 0), climb(2.0, 2)])
    assert found["candidates"] == [5, 4, 6]
    assert (found["alone_per_hour"], found["both_per_hour"], found["factor"]) == (1800, [1440, 1800], 1.8)
    assert found["verdicts"] == {"compared": 4, "kept_by_some_only": []}


def test_verdicts_differ_where_some_kept_what_others_did_not() -> None:
    runs = [["slower", "kept", "kept"], ["no_proven_gain", "kept", "slower"], ["slower", "kept", "kept", "x"]]
    found = gpu_throughput.compare_verdicts(runs)
    assert found["compared"] == 3
    assert [row["n"] for row in found["kept_by_some_only"]] == [3]


def background() -> Any:
    case = Case(DEMO)
    files = {"kernel.py": (DEMO / "workspace" / "kernel.py").read_text()}
    return SimpleNamespace(case=case, seed=3, files=lambda commit: files)


def test_scripted_proposers_foresee_what_they_propose_and_repeat_nothing() -> None:
    for make in (gpu_throughput.Edits, gpu_throughput.Listed):
        proposer, ledger = make(background()), SimpleNamespace(candidates=[], incumbent="")
        foreseen = proposer.peek(ledger, 6)
        for expected in foreseen:
            assert proposer.propose(ledger) == expected
            ledger.candidates.append(expected)
    knobs = Case(DEMO).knobs
    assert all(contains(knobs[name], value) for p in foreseen for name, value in p.knobs.items())
    sources = [p.edits[0].content for p in gpu_throughput.Edits(background()).peek(ledger, 6)]
    assert len(set(sources)) == 6
    assert len({text.split("\n# edit ")[0] for text in sources}) == 4, "every other one changes a constant"
    for text in sources:
        compile(text, "kernel.py", "exec")
