"""How a workspace is imported: by its sources alone."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

PRINTS = """
import sys
from hillclimb.harness.candidate.runner import import_kernel
print(import_kernel(sys.argv[1], "kernel.py:run")())
"""
WITHOUT_CHECK = py_compile.PycInvalidationMode.UNCHECKED_HASH


def result_of(workspace: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRINTS, str(workspace)]
    writes = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, env=writes, capture_output=True, text=True, check=False)


def compiled(folder: Path, name: str, source: str, to: Path) -> None:
    """Somebody else's bytes, which Python would take without a look at the source."""
    other = folder / "other.py"
    other.write_text(source)
    py_compile.compile(str(other), str(to), dfile=name, doraise=True, invalidation_mode=WITHOUT_CHECK)
    other.unlink()


@pytest.mark.parametrize("package", ["", "inner"])
def test_what_lies_compiled_beside_a_source_is_left_alone(tmp_path: Path, package: str) -> None:
    folder = tmp_path / package
    folder.mkdir(exist_ok=True)
    name = f"{package}.helper" if package else "helper"
    (folder / "helper.py").write_text("VALUE = 'source'\n")
    (tmp_path / "kernel.py").write_text(f"from {name} import VALUE\n\ndef run():\n    return VALUE\n")
    cache = f"__pycache__/helper.{sys.implementation.cache_tag}.pyc"
    compiled(tmp_path, "helper.py", "VALUE = 'compiled'\n", folder / cache)
    done = result_of(tmp_path)
    assert (done.stdout, done.stderr) == ("source\n", "")


def test_the_entry_is_taken_from_its_source(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("def run():\n    return 'source'\n")
    cache = tmp_path / f"__pycache__/kernel.{sys.implementation.cache_tag}.pyc"
    compiled(tmp_path, "kernel.py", "def run():\n    return 'compiled'\n", cache)
    assert result_of(tmp_path).stdout == "source\n"


@pytest.mark.parametrize("name", ["helper.pyc", "helper.so", "helper/__init__.pyc"])
def test_what_has_no_source_is_no_module(tmp_path: Path, name: str) -> None:
    (tmp_path / "kernel.py").write_text("from helper import VALUE\n\ndef run():\n    return VALUE\n")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    compiled(tmp_path, "helper.py", "VALUE = 1\n", path)
    told = result_of(tmp_path).stderr
    is_namespace = "/" in name
    assert ("cannot import name 'VALUE'" if is_namespace else "No module named 'helper'") in told


def test_nothing_is_compiled_into_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("VALUE = 1\n")
    (tmp_path / "kernel.py").write_text("from helper import VALUE\n\ndef run():\n    return VALUE\n")
    assert result_of(tmp_path).stdout == "1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["helper.py", "kernel.py"]
