"""Parameters in a GPU's memory, which both sides map and neither may change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from tests.fakes.cases import write_workspace
from tests.fakes.weighted import TRITON, write_weighted_for_gpu


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalJudge]:
    folder = tmp_path_factory.mktemp("lab")
    for path in (folder, *folder.parents):
        if path.stat().st_uid == folder.stat().st_uid and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    judge = LocalJudge(write_weighted_for_gpu(folder), folder / "judge.log")
    yield judge
    judge.close()


def side(folder: Path, source: str, name: str = "side") -> Side:
    return Side(tree=str(write_workspace(folder / name, source)))


def again(times: int) -> str:
    """Launches so many times."""
    return TRITON.replace("        affine[", f"        for _ in range({times}):\n            affine[")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sides")
    made.chmod(0o755)
    return made


def test_a_right_kernel_passes(judge: LocalJudge, folder: Path) -> None:
    report = judge.gate(side(folder, TRITON), ignore)
    assert report.passed, report.detail


def test_a_faster_one_is_kept(judge: LocalJudge, folder: Path) -> None:
    fast, slow = side(folder, again(1), "fast"), side(folder, again(4), "slow")
    found = judge.confirm(fast, slow, slow, 0.01, ignore)
    print(found.speedup)
    assert found.reason is None, found.detail
    assert found.speedup is not None and found.speedup.estimate > 1.5
    screening = judge.screen(slow, fast, ignore)
    assert screening.speedup is not None and screening.speedup < 1


WRITES = {
    "when it is made": "        self.gain, self.offset = gain, offset\n        gain[3] += 1\n",
    "all of one": "        self.gain, self.offset = gain, offset\n        gain.zero_()\n",
    "by a bit": "        self.gain, self.offset = gain, offset\n        gain.view(torch.int32)[5] ^= 1\n",
}


@pytest.mark.parametrize("name", WRITES)
def test_who_writes_to_them_is_rejected(judge: LocalJudge, folder: Path, name: str) -> None:
    source = TRITON.replace("        self.gain, self.offset = gain, offset\n", WRITES[name])
    assert source != TRITON
    report = judge.gate(side(folder, source), ignore)
    print(report.reason, report.detail)
    assert report.reason == Reason.INPUTS_CHANGED, report.detail
    assert "wrote to its parameters" in report.detail


@pytest.mark.parametrize(
    "store",
    ["tl.store(gain + at, tl.load(gain + at) * 1.0001)", "tl.store(gain + WIDTH + 2, 0.0)"],
    ids=["to them", "beside them"],
)
def test_who_writes_in_a_call_is_rejected(judge: LocalJudge, folder: Path, store: str) -> None:
    source = TRITON.replace("    tl.store(y +", f"    {store}\n    tl.store(y +")
    report = judge.gate(side(folder, source), ignore)
    assert report.reason == Reason.INPUTS_CHANGED, report.detail
    assert "wrote to its parameters" in report.detail


def test_an_honest_one_passes_after_those(judge: LocalJudge, folder: Path) -> None:
    report = judge.gate(side(folder, TRITON), ignore)
    assert report.passed, report.detail


def test_it_is_profiled(judge: LocalJudge, folder: Path) -> None:
    found = judge.profile(side(folder, TRITON), ignore)
    print(found.detail)
    assert found.problems and found.buckets
