"""Kernels are copied out of a candidate's folder, and nothing else is, whatever it puts there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hillclimb.harness.duel.process import kernel_cache


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch" / "triton" / "KEY").mkdir(parents=True)
    (tmp_path / "scratch" / "triton" / "KEY" / "k.cubin").write_bytes(b"binary")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("SECRET")
    return tmp_path / "scratch"


def _copied(scratch: Path, tmp_path: Path) -> dict[str, bytes]:
    target = tmp_path / "target"
    target.mkdir()
    kernel_cache.copy_kernels(scratch, "triton", target)
    return {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}


def test_plain_files_are_copied(scratch: Path, tmp_path: Path) -> None:
    assert _copied(scratch, tmp_path) == {"KEY/k.cubin": b"binary"}


def test_no_link_is_followed(scratch: Path, tmp_path: Path) -> None:
    triton = scratch / "triton"
    (triton / "folder").symlink_to(tmp_path / "secret")
    (triton / "KEY" / "file").symlink_to(tmp_path / "secret" / "file")
    os.mkfifo(triton / "KEY" / "pipe")
    assert _copied(scratch, tmp_path) == {"KEY/k.cubin": b"binary"}


def test_the_cache_itself_may_be_no_link(scratch: Path, tmp_path: Path) -> None:
    (scratch / "triton").rename(scratch / "elsewhere")
    (scratch / "triton").symlink_to(tmp_path)
    assert _copied(scratch, tmp_path) == {}


def test_no_cache_is_no_kernels(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    assert _copied(tmp_path / "scratch", tmp_path) == {}


def test_there_is_an_end_to_it(scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "MAX_BYTES", 100)
    monkeypatch.setattr(kernel_cache, "MAX_FILES", 3)
    for i in range(5):
        (scratch / "triton" / "KEY" / f"a{i}").write_bytes(b"x" * 20)
    (scratch / "triton" / "KEY" / "a").write_bytes(b"x" * 101)
    assert sorted(_copied(scratch, tmp_path)) == ["KEY/a0", "KEY/a1", "KEY/a2"]
