"""Sessions on a GPU: weights and cache in its memory, calls replayed as graphs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from tests.fakes.cases import write_workspace
from tests.fakes.session import TORCH_KERNEL, write_session_for_gpu


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalJudge]:
    folder = tmp_path_factory.mktemp("lab")
    for path in (folder, *folder.parents):
        if path.stat().st_uid == folder.stat().st_uid and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    judge = LocalJudge(write_session_for_gpu(folder), folder / "judge.log")
    yield judge
    judge.close()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sides")
    made.chmod(0o755)
    return made


def side(folder: Path, source: str, name: str = "side") -> Side:
    return Side(tree=str(write_workspace(folder / name, source)))


SLOW = TORCH_KERNEL.replace("# LAYER", "norm(x, w['norm']); norm(x, w['norm']); norm(x, w['norm'])")


def test_an_honest_session_passes(judge: LocalJudge, folder: Path) -> None:
    report = judge.gate(side(folder, TORCH_KERNEL), ignore)
    assert report.passed, report.detail
    print("worst", report.worst, report.worst_at)


def test_a_faster_one_is_screened(judge: LocalJudge, folder: Path) -> None:
    fast, slow = side(folder, TORCH_KERNEL, "fast"), side(folder, SLOW, "slow")
    started = time.perf_counter()

    def tell(progress: Progress) -> None:
        print(
            f"{time.perf_counter() - started:.1f} s: {progress.stage} {progress.done} of {progress.of}",
            flush=True,
        )

    found = judge.screen(fast, slow, tell)
    print(found.speedup, found.seconds)
    assert found.reason is None, found.detail
    assert found.speedup is not None and found.speedup > 1.1


WRONG = {
    "a matrix is scaled": TORCH_KERNEL.replace(
        "# PREPARED", 'self.w["o"] = self.w["o"].clone(); self.w["o"][1] *= 0.98'
    ),
    "it reads its own token": TORCH_KERNEL.replace("tokens[:, step] + shifts[:, step]", "tokens[:, step]"),
    "a layer is left out": TORCH_KERNEL.replace('for layer in range(len(w["q"])):', "for layer in range(1):"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_is_rejected(judge: LocalJudge, folder: Path, name: str) -> None:
    assert WRONG[name] != TORCH_KERNEL
    report = judge.gate(side(folder, WRONG[name]), ignore)
    assert report.reason == Reason.WRONG_RESULT, report
