"""Runs published under `runs/`: their bundles give back the branches that their ledgers and comparisons tell of."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.recorded_runs import find_runs

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = sorted((ROOT / "runs").glob("*/*/*/branch.bundle"))
COMPARED = [bundle for bundle in PUBLISHED if bundle.with_name("comparison.json").exists()]
YARDSTICKS = ("yardstick", "cublaslt")


def name(bundle: Path) -> str:
    return "/".join(bundle.parts[-4:-1])


def needs_other_commits(bundle: Path) -> bool:
    """A bundle's header names those that it does not have, each behind a minus sign."""
    header = bundle.read_bytes().partition(b"\n\n")[0]
    return b"\n-" in header


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    if git(ROOT, "rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("this clone is shallow: the commits that the bundles apply to may be missing")
    git(tmp_path, "clone", "--quiet", "--no-checkout", "--shared", str(ROOT), "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("bundle", PUBLISHED, ids=name)
def test_a_published_run_is_what_its_branch_says(bundle: Path, clone: Path) -> None:
    family, case, tag = bundle.parts[-4:-1]
    git(clone, "fetch", "--quiet", str(bundle), "refs/heads/*:refs/heads/*")
    repository = Repository.open(clone)
    branch = next(run for run in find_runs(repository, f"{family}/{case}") if run.tag == tag)
    ledger = Ledger.read(bundle.with_name("ledger.jsonl"))
    wins = branch.wins
    assert [win.commit for win in wins] == [kept.judged.commit for kept in ledger.wins if kept.judged]
    assert branch.commit == ledger.incumbent
    assert all(win.speedup.low > 1 for win in wins)
    assert ledger.opened is not None
    if needs_other_commits(bundle):
        git(ROOT, "merge-base", "--is-ancestor", ledger.opened.base, "HEAD")
    else:
        git(clone, "merge-base", "--is-ancestor", ledger.opened.base, branch.commit)
    assert (bundle.parent / "report.html").is_file()


@pytest.mark.parametrize("bundle", COMPARED, ids=name)
def test_a_published_run_goes_beyond_its_first_edit(bundle: Path) -> None:
    """Judged once more at the end, in fresh pairs against `optimized.py`."""
    told = json.loads(bundle.with_name("comparison.json").read_text())
    assert told["kept"], told["detail"]
    assert told["confirmation"]["speedup"]["low"] > 1


@pytest.mark.parametrize("bundle", sorted({*PUBLISHED} - {*COMPARED}), ids=name)
@pytest.mark.parametrize("yardstick", YARDSTICKS)
def test_a_claim_met_the_yardsticks_of_its_branch(bundle: Path, yardstick: str, clone: Path) -> None:
    family, case, _ = bundle.parts[-4:-1]
    git(clone, "fetch", "--quiet", str(bundle), "refs/heads/*:refs/heads/*")
    told = json.loads(bundle.with_name(f"against_{yardstick}.json").read_text())
    file = f"cases/{family}/{case}/{yardstick}.py"
    assert (told["case"], told["against"]) == (f"{family}/{case}", file)
    source = git(clone, "show", f"{told['candidate']}:{file}")
    assert told["yardstick"] == hashlib.sha256(source.encode()).hexdigest()
    ledger = Ledger.read(bundle.with_name("ledger.jsonl"))
    assert git(clone, "rev-parse", told["candidate"]).strip() == ledger.incumbent
    if told["kept"]:
        assert told["confirmation"]["speedup"]["low"] > 1
    else:
        assert told["reason"] == "slower" and told["screening"]["speedup"] < 1
