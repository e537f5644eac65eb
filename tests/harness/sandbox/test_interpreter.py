"""Which paths are granted: enough to run, and no prefix whole."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from hillclimb.harness.sandbox import interpreter


def test_what_python_needs_is_granted() -> None:
    granted = interpreter.readable_paths()
    needed = [sys.executable, str(Path(sys.executable).resolve()), sysconfig.get_path("stdlib")]
    for path in (*needed, sysconfig.get_path("purelib")):
        assert any(Path(path).is_relative_to(outer) for outer in granted), path


def test_no_prefix_no_home_and_no_lab_is_granted() -> None:
    granted = interpreter.readable_paths()
    lab = interpreter.harness_folder().parent
    closed = (
        Path("/"),
        Path("/usr"),
        Path("/etc"),
        Path.home(),
        Path(sys.prefix),
        Path(sys.base_prefix),
        lab,
    )
    assert not set(closed) & set(granted)
    assert not any(
        (lab / part).is_relative_to(outer) for outer in granted for part in ("cases", "agent", "runs")
    )


def test_nothing_is_granted_twice() -> None:
    granted = interpreter.readable_paths()
    assert not any(a != b and a.is_relative_to(b) for a in granted for b in granted)


def test_links_are_followed_hop_by_hop_and_not_for_ever(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "second").symlink_to(tmp_path / "real")
    (tmp_path / "first").symlink_to("second")
    assert [path.name for path in interpreter.symlink_chain(tmp_path / "first")] == [
        "first",
        "second",
        "real",
    ]
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert [path.name for path in interpreter.symlink_chain(tmp_path / "a")] == ["a", "b"]
