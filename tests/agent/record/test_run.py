from __future__ import annotations

import json
import re
import time
from datetime import datetime
from pathlib import Path

import pytest

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.machine.clock import SystemClock
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.run import choose_tag, is_finished, list_runs, open_run, owner, run_folder
from hillclimb.harness.errors import UsageError
from tests.fakes.night import Night, make_repository

CASE = "demo/toy"


class Frozen:
    """Always noon of the same day."""

    def now(self) -> float:
        return datetime(2025, 11, 21, 12).timestamp()

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.delenv("HILLCLIMB_RUN_TAG", raising=False)
    return Repository.open(make_repository(tmp_path / "repo"))


def chosen(repository: Repository, given: str | None = None) -> str:
    return choose_tag(repository, CASE, given, Frozen())


def test_the_tag_asked_for_comes_first(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HILLCLIMB_RUN_TAG", "from-environment")
    assert chosen(repository, "mine") == "mine"
    assert chosen(repository) == "from-environment"


def test_a_first_run_is_named_after_the_day(repository: Repository) -> None:
    assert chosen(repository) == "nov21"


def test_an_unfinished_run_is_taken_up(repository: Repository) -> None:
    Night(repository.root, tag="old", plan=("tune",)).climb()
    Night(repository.root, tag="stopped", plan=("tune",)).climb()
    ledger = repository.root / "runs/demo/toy/stopped/ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().rsplit(b"\n", 2)[0] + b"\n")
    assert not is_finished(ledger.parent)
    assert chosen(repository) == "stopped"


def test_finished_runs_and_their_branches_are_not_taken_up(repository: Repository) -> None:
    Night(repository.root, tag="nov21", plan=("tune",)).climb()
    assert is_finished(repository.root / "runs/demo/toy/nov21")
    assert chosen(repository) == "nov21-2"


def test_runs_are_listed_last_written_first(repository: Repository) -> None:
    for tag in ("b", "a", "c"):
        Night(repository.root, tag=tag, budgets=BudgetOverrides(candidates=1)).climb()
        time.sleep(0.01)
    assert [folder.name for folder in list_runs(repository, CASE)] == ["c", "a", "b"]


@pytest.mark.parametrize("tag", ["a/b", "..", "a b", "x.lock", ""])
def test_a_tag_that_cannot_be_a_ref_is_refused(repository: Repository, tag: str) -> None:
    with pytest.raises(UsageError, match="cannot be part of a branch's name"):
        run_folder(repository, CASE, tag)


def test_the_owner_is_named_and_the_lock_comes_free(repository: Repository) -> None:
    with open_run(repository, CASE, "t", Disk(), Frozen()) as run:
        said = owner(run.folder)
        assert re.fullmatch(r"process \d+ on .+ since 2025-11-21 12:00:00", said)
        with (
            pytest.raises(UsageError, match=re.escape(said)),
            open_run(repository, CASE, "t", Disk(), SystemClock()),
        ):
            raise AssertionError("two owners")
    with open_run(repository, CASE, "t", Disk(), SystemClock()) as again:
        assert json.loads((again.folder / "lock").read_text())["since"] > Frozen().now()


def test_a_lock_file_that_says_nothing_is_another_process(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("[]")
    assert owner(tmp_path) == "another process"
