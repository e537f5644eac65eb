"""The case of docs/guides/measure-by-a-command.md is one, and can be judged."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.surfaces.shell_json.output import OutputFault

PAGE = (Path(__file__).resolve().parents[2] / "docs/guides/measure-by-a-command.md").read_text()


def blocks(language: str) -> list[str]:
    return [part.split("```")[0] for part in PAGE.split(f"```{language}\n")[1:]]


def ignore(progress: Progress) -> None:
    pass


def write_case(root: Path) -> Path:
    folder = root / "cases" / "text" / "split"
    for place in ("bench", "benchmarks", "workspace"):
        (folder / place).mkdir(parents=True)
    (settings, suite), (command, kernel) = blocks("yaml"), blocks("python")
    (folder / "case.yaml").write_text(settings)
    (folder / "benchmarks" / "main.yaml").write_text(suite)
    (folder / "bench" / "measure.py").write_text(command)
    (folder / "workspace" / "split.py").write_text(kernel)
    return folder


def test_the_case_is_sound_and_a_faster_one_wins(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    slow = Side(tree=str(folder / "workspace"))
    for name, body in (("fast", "text.split(' ')"), ("wrong", "text.split(' ')[1:]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "split.py").write_text(f"def words(text):\n    return {body}\n")
    fast, wrong = (Side(tree=str(tmp_path / name)) for name in ("fast", "wrong"))
    with closing(LocalJudge(folder, tmp_path / "judge.log")) as judge:
        report = judge.gate(slow, ignore)
        assert report.passed, report.detail
        screening = judge.screen(fast, slow, ignore)
        assert screening.speedup is not None and screening.speedup > 2, screening.detail
        assert judge.gate(wrong, ignore).reason is Reason.WRONG_RESULT


def test_every_fault_of_what_is_printed_is_listed() -> None:
    assert all(f"`{fault}`" in PAGE for fault in OutputFault)
