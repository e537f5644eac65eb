"""What ran on a real GPU is listed: a workspace's own kernels pass, a framework's are named, with nobody reading."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.duel.process import launcher
from hillclimb.harness.duel.process.launch_spec import thread_variables
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.judge.__main__ import PRELOADED
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.judge.open_device import open_device
from hillclimb.harness.profile.launched_kernels import launched_kernels, require_listed_kernels
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung, prefork_rung

DEMO = Path(__file__).resolve().parents[2] / "cases" / "demo" / "triton_softmax"

WHOLE = "    y.copy_(torch.softmax(x.float(), 1))\n"
FOREIGN = {
    "a finished softmax": WHOLE,
    "its parts": "    e = (x.float() - x.float().amax(1, keepdim=True)).exp()\n    y.copy_(e / e.sum(1, True))\n",
    "a product": WHOLE + "    torch.mm(x[:, :16].float(), x[:, :16].float().T[:, :8])\n",
    "beside its own kernel": "    honest(x, y)\n    torch.sort(x[:64, :64], 1)\n",
    "found by a dictionary": "    y.copy_(vars(torch)['soft' + 'max'](x.float(), 1))\n",
}


def _ignore(progress: Progress) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseJudge]:
    folder = tmp_path_factory.mktemp("listed")
    for path in (folder, *folder.parents):
        if path.stat().st_uid == folder.stat().st_uid and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    case = shutil.copytree(DEMO, folder / "cases" / "demo" / "softmax")
    device, plain = open_device("cuda"), choose_rung(trust_workspace=False)
    with (
        pytest.MonkeyPatch.context() as patch,
        prefork_rung(plain, PRELOADED, thread_variables(), device.nodes()) as rung,
        closing(CaseJudge(Case(case), rung, device)) as made,
    ):
        patch.setattr(launcher, "check_policy", lambda workspace, policy: None)
        yield made


def workspace(folder: Path, body: str = "") -> Side:
    tree = shutil.copytree(DEMO / "workspace", folder / "workspace")
    for path in (folder, *folder.parents):
        if path.stat().st_uid == folder.stat().st_uid and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    if body:
        source = (tree / "kernel.py").read_text().replace("def run(", "def honest(")
        (tree / "kernel.py").write_text(f"{source}\n\ndef run(x, y):\n{body}")
    return Side(tree=str(tree))


def test_the_demos_own_kernel_passes(judge: CaseJudge, tmp_path: Path) -> None:
    side = workspace(tmp_path)
    print(sorted(set(launched_kernels(judge._duels, side))))
    assert require_listed_kernels(judge._duels, side, side, _ignore) == ""


@pytest.mark.parametrize("name", FOREIGN)
def test_what_the_workspace_does_not_define_is_named(judge: CaseJudge, tmp_path: Path, name: str) -> None:
    side, start = workspace(tmp_path / "one", FOREIGN[name]), workspace(tmp_path / "other")
    with pytest.raises(
        CandidateFault, match="ran on the GPU, which no file of the workspace defines"
    ) as fault:
        require_listed_kernels(judge._duels, side, start, _ignore)
    print(name, "->", fault.value)
    assert fault.value.reason is Reason.POLICY


def test_one_that_cannot_be_listed_is_at_fault(judge: CaseJudge, tmp_path: Path) -> None:
    body = "    if torch.autograd._profiler_enabled():\n        raise RuntimeError('watched')\n    honest(x, y)\n"
    side, start = workspace(tmp_path / "one", body), workspace(tmp_path / "other")
    with pytest.raises(CandidateFault):
        require_listed_kernels(judge._duels, side, start, _ignore)
