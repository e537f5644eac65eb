"""The runner of all GPU experiments, over tiny entries of its own: no GPU is needed to order, limit and end them."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "experiments"))

import gpu_everything  # noqa: E402
from gpu_everything import ENTRIES, Entry, Night, choose, fill, plan, table  # noqa: E402


def shell(name: str, text: str, seconds: float = 20, gpus: int = 1, **more: object) -> Entry:
    return Entry(name, ("sh", "-c", text, name, "{out}"), seconds, gpus, **more)  # type: ignore[arg-type]


def night(
    output: Path, *entries: Entry, gpus: tuple[str, ...] = ("0", "1"), seconds: float = 60
) -> dict[str, str]:
    rows = Night(entries, gpus, seconds, output, root=ROOT).run()
    return {row["name"]: row["status"] for row in rows}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_everything, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(gpu_everything, "GRACE_SECONDS", 0.3)


def test_it_goes_on_after_failures_and_says_what_became_of_each(tmp_path: Path) -> None:
    found = night(
        tmp_path,
        shell("bad", "echo broken; exit 3"),
        shell("good", 'echo "{}" > "$1"'),
        shell("absent", "true", needs="scripts/experiments/there_is_none.py"),
        shell("wide", "true", gpus=3),
        Entry("nowhere", ("{python}", "-c", "raise SystemExit(0)"), 20),
    )
    assert found["bad"] == "failed (3)"
    assert found["good"] == found["nowhere"] == "done"
    assert found["absent"] == "skipped: there is no scripts/experiments/there_is_none.py"
    assert found["wide"] == "skipped: needs 3 GPUs, and there are 2"
    assert (tmp_path / "good.json").read_text() == "{}\n"
    rows = json.loads((tmp_path / "summary.json").read_text())
    assert {row["name"]: row["status"] for row in rows} == found
    assert "bad: broken" in table(rows, tmp_path)


def test_each_has_its_own_gpus_and_no_two_share_one(tmp_path: Path) -> None:
    show = 'date +%s.%N; echo "$CUDA_VISIBLE_DEVICES/$HILLCLIMB_GPU"; sleep 0.4; date +%s.%N'
    single = [shell(f"one{n}", show) for n in range(3)]
    found = night(tmp_path, *single, shell("both", show, gpus=2))
    assert set(found.values()) == {"done"}
    spans: dict[str, list[tuple[float, float]]] = {"0": [], "1": []}
    for name in found:
        _, began, gpus, ended = (tmp_path / f"{name}.log").read_text().split("\n")[:4]
        visible, chosen = gpus.split("/")
        assert chosen == ("" if name == "both" else visible)
        for gpu in visible.split(","):
            spans[gpu].append((float(began), float(ended)))
    for on_one in map(sorted, spans.values()):
        assert len(on_one) >= 2
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(on_one))


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    deaf = 'trap "" TERM; sleep 60 & echo $!; while true; do sleep 0.05; done'
    started = time.monotonic()
    found = night(tmp_path, shell("deaf", deaf, 0.3), shell("after", "true"), gpus=("0",))
    assert found == {"deaf": "over its time", "after": "done"}
    assert time.monotonic() - started < 8
    child = int((tmp_path / "deaf.log").read_text().splitlines()[1])
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]


def test_near_the_end_only_what_has_time_enough_is_begun(tmp_path: Path) -> None:
    found = night(
        tmp_path,
        shell("long", "true", 60),
        shell("modest", "true", 60, least=0.5),
        shell("short", "true", 1),
        seconds=2,
    )
    assert found["long"].startswith("skipped: ")
    assert found["modest"] == found["short"] == "done"


def test_what_is_done_is_not_repeated(tmp_path: Path) -> None:
    once = shell("once", f"echo x >> {tmp_path}/count"), shell("again", f"echo y >> {tmp_path}/count; exit 1")
    night(tmp_path, *once)
    night(tmp_path, *once)
    assert sorted((tmp_path / "count").read_text().split()) == ["x", "y", "y"]


def test_words_of_a_command_are_filled_in() -> None:
    values = {"out": ["a b"], "gpus": ["0", "1"]}
    assert fill(("run", "{out}", "{gpus}", "{else}"), values) == ["run", "a b", "0", "1", "{else}"]


def test_entries_are_chosen_by_name_or_by_its_beginning() -> None:
    entries = [Entry(name, (), 1) for name in ("tests_a", "tests_b", "test", "aa_small")]

    def names(only: list[str], without: list[str]) -> list[str]:
        return [entry.name for entry in choose(entries, only, without)]

    assert names([], []) == ["tests_a", "tests_b", "test", "aa_small"]
    assert names(["aa_small", "tests"], []) == ["aa_small", "tests_a", "tests_b"]
    assert names(["tests", "tests_a"], ["tests_b"]) == ["tests_a"]
    with pytest.raises(SystemExit, match="there is no entry tes, aa_; choose among tests_a"):
        names(["tes"], ["aa_"])


def test_the_plan_runs_nothing_and_names_what_is_there(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/experiments/gpu_everything.py"), "--plan", "--gpus", "2"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:-1] == plan(ENTRIES, 2, ROOT).splitlines()[:-1]
    assert not list(tmp_path.iterdir())


def test_every_option_is_one_that_its_script_declares() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    asked = 0
    for entry in ENTRIES:
        if entry.command[1] != entry.needs or not (ROOT / entry.needs).exists():
            continue
        source = (ROOT / entry.needs).read_text()
        for word in entry.command:
            if word.startswith("--"):
                asked += 1
                assert f'add_argument("{word}"' in re.sub(r"\(\s+", "(", source), (entry.name, word)
    assert asked > 30
