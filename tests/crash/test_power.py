"""A power cut loses what was not flushed: whatever a Disk has said to be durable must be there after one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.ledger import Ledger
from tests.agent.record.test_ledger import OPENED, judged, proposed
from tests.crash.power import PowerCut


@pytest.fixture
def base(fast_folder: Path) -> Iterator[Path]:
    """An empty folder in memory."""
    with tempfile.TemporaryDirectory(dir=fast_folder) as name:
        yield Path(name)


@pytest.fixture
def root(base: Path) -> Path:
    """An empty folder in `base`."""
    (base / "root").mkdir()
    return base / "root"


def test_the_model_forgets_what_nobody_flushed(root: Path, base: Path) -> None:
    (root / "before").write_text("there")
    with PowerCut(root).watching() as cut:
        (root / "written").write_text("not flushed")
        Disk().replace(root / "flushed", b"whole")
        (root / "flushed").write_text("more, not flushed")
        (root / "late").write_text("its name is not flushed")
        left = cut.survivors(base / "left")
    assert {path.name: path.read_text() for path in left.iterdir()} == {
        "before": "there",
        "written": "",
        "flushed": "whole",
    }


def test_every_line_of_the_ledger_survives(root: Path, base: Path) -> None:
    path = root / "runs" / "ledger.jsonl"
    with PowerCut(root).watching() as cut:
        Disk().make_folder(path.parent)
        ledger = Ledger.open(path, Disk())
        for step, entry in enumerate([OPENED, proposed(1), judged(1, kept=False)]):
            ledger.append(entry)
            left = cut.survivors(base / f"after {step}")
            assert (left / "runs" / "ledger.jsonl").read_bytes() == path.read_bytes()


def test_a_ledger_that_was_mended_stays_mended(root: Path, base: Path) -> None:
    path = root / "ledger.jsonl"
    Ledger.open(path, Disk()).append(OPENED)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "propo')
    with PowerCut(root).watching() as cut:
        Ledger.open(path, Disk())
        assert (cut.survivors(base / "left") / "ledger.jsonl").read_bytes() == whole


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "replace", "rename"]), st.sampled_from("abc"), st.binary(max_size=9)
        )
    )
)
def test_what_returned_is_durable(fast_folder: Path, steps: list[tuple[str, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory(dir=fast_folder) as base:
        root, disk = Path(base, "root"), Disk()
        root.mkdir()
        with PowerCut(root).watching() as cut:
            for action, name, data in steps:
                folder = root / "a folder" / name
                disk.make_folder(folder)
                if action == "append":
                    disk.append(folder / "file", data)
                else:
                    disk.replace(folder / "file", data)
                if action == "rename":
                    disk.rename(folder / "file", folder / "moved")
            left = cut.survivors(Path(base, "left"))
        assert tree(left) == tree(root)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every path below, with its content or, of a folder, None."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}
