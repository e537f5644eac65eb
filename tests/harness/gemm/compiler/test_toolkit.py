"""Which nvcc and which CUTLASS are taken, and what is said where there is none."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.compiler import toolkit as toolkits
from hillclimb.harness.gemm.compiler.cutlass import find_cutlass
from hillclimb.harness.gemm.compiler.toolkit import Toolkit, find_toolkit, of_wheels

VERSION = "#define CUTLASS_MAJOR 9\n#define CUTLASS_MINOR 8\n#define CUTLASS_PATCH 7\n"


def test_the_one_that_is_named_comes_before_the_one_on_the_path(
    tmp_path: Path, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "nvcc"
    other.parent.mkdir()
    shutil.copy(toolkit.nvcc, other)
    monkeypatch.setenv("PATH", f"{toolkit.nvcc.parent}:/usr/bin:/bin")
    assert find_toolkit().nvcc == toolkit.nvcc and find_toolkit().release == "13.0"
    monkeypatch.setenv("CUDACXX", str(other))
    assert find_toolkit().nvcc == other and find_toolkit(toolkit.nvcc).nvcc == toolkit.nvcc


def test_the_wheels_have_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gcc", "g++"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolkits, "DEFAULT", tmp_path / "nvcc")
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    found = find_toolkit()
    assert "site-packages/nvidia" in str(found.nvcc) and f"nvcc {found.release}." in found.version
    monkeypatch.setattr(toolkits, "of_wheels", list)
    with pytest.raises(UsageError, match=r"no nvcc.*hillclimb\[gemm\]"):
        find_toolkit()


def test_what_is_no_compiler_is_told(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho hello\n")
    silent.chmod(0o755)
    planless = tmp_path / "planless"
    planless.write_text("#!/bin/sh\necho 'release 13.0, V13.0.88'\n")
    planless.chmod(0o755)
    for path, told in [
        (silent, "does not say which nvcc.*hello"),
        (planless, "does not tell what it would run"),
        (tmp_path / "none", "cannot be run"),
    ]:
        with pytest.raises(UsageError, match=told):
            find_toolkit(path)


def test_a_bare_name_is_of_the_path_and_a_file_is_itself(
    tmp_path: Path, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{toolkit.nvcc.parent}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDACXX", "nvcc")
    assert find_toolkit().nvcc == find_toolkit(Path("nvcc")).nvcc == toolkit.nvcc
    shutil.copy(toolkit.nvcc, tmp_path / "nvcc")
    assert find_toolkit(Path("nvcc")).nvcc == tmp_path / "nvcc" and find_toolkit().nvcc == toolkit.nvcc


def test_all_that_compiles_is_in_the_digest(
    tmp_path: Path, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake's plan names `tmp_path/tools` and `tmp_path/headers`."""
    tools, headers = tmp_path / "tools", tmp_path / "headers"
    compiler = tmp_path / "host" / "gcc"
    for path in (tools / "ptxas", tools / "cicc", tools / "libdevice.bc", headers / "a.h", compiler):
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\necho 1\n")
        path.chmod(0o755)
    plan = toolkit.nvcc.with_name("plan")
    plan.write_text(
        f'#$ _HERE_={tools}\n#$ CICC_PATH={tools}\n#$ NVVMIR_LIBRARY_DIR={tools}\n#$ INCLUDES="-I{headers}"  \n'
        f"#$ PATH=/bin\n#$ {compiler} -E -x c++ /tmp/tmpxft_0001_0002-6_source.ii\n"
    )
    digests = [find_toolkit(toolkit.nvcc).digest]
    plan.write_text(
        plan.read_text().replace("tmpxft_0001", "tmpxft_0003").replace("PATH=/bin", "PATH=/usr/bin")
    )
    assert find_toolkit(toolkit.nvcc).digest == digests[0]
    for change in (
        lambda: (tools / "ptxas").write_text("other"),
        lambda: (tools / "cicc").write_text("other"),
        lambda: (tools / "libdevice.bc").write_text("other"),
        lambda: (headers / "a.h").write_text("longer than before"),
        lambda: (headers / "a.h").rename(headers / "b.h"),
        lambda: monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G"),
        lambda: monkeypatch.setenv("CPATH", "/elsewhere"),
        lambda: plan.write_text(plan.read_text().replace("-x c++", "-x c++ -DX=1")),
        lambda: compiler.write_text("#!/bin/sh\necho 2\n"),
        lambda: toolkit.nvcc.write_text(toolkit.nvcc.read_text() + "\n"),
    ):
        change()
        digests.append(find_toolkit(toolkit.nvcc).digest)
    assert len(set(digests)) == len(digests)
    assert find_toolkit(toolkit.nvcc).digest == digests[-1]


def test_a_real_toolkit_names_its_programs_and_headers() -> None:
    found = find_toolkit(of_wheels()[0])
    plan = dict(toolkits.SETTING.findall(toolkits._plan(found.nvcc)))
    assert list(Path(plan["NVVMIR_LIBRARY_DIR"]).glob("*.bc"))
    assert Path(plan["CICC_PATH"], "cicc").is_file() and Path(plan["_HERE_"], "ptxas").is_file()
    assert [
        Path(name, "cuda_runtime.h").is_file() for name in toolkits.INCLUDED.findall(plan["INCLUDES"])
    ] == [True]


def tree(folder: Path) -> Path:
    version = folder / "cutlass_library/source/include/cutlass/version.h"
    version.parent.mkdir(parents=True)
    version.write_text(VERSION)
    (folder / "cutlass_library/generator.py").write_text("print()\n")
    return folder


def test_a_wheel_is_the_folder_that_it_holds(tmp_path: Path) -> None:
    folder = tree(tmp_path / "tree")
    with zipfile.ZipFile(tmp_path / "cutlass.whl", "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(folder))
        archive.writestr("other/file.py", "")
    of_folder = find_cutlass(folder, tmp_path / "unused")
    of_wheel = find_cutlass(tmp_path / "cutlass.whl", tmp_path / "unpacked")
    assert of_folder.version == of_wheel.version == "9.8.7" and of_folder.digest == of_wheel.digest
    assert find_cutlass(folder / "cutlass_library", tmp_path) == of_folder
    assert not (of_wheel.package.parent / "other").exists()
    (of_wheel.source / "include/cutlass/version.h").write_text("cut")
    again = find_cutlass(tmp_path / "cutlass.whl", tmp_path / "unpacked")
    assert again.digest == of_folder.digest


def test_two_wheels_do_not_mix(tmp_path: Path) -> None:
    """Also where their files are of the same size."""
    found = []
    for text in ("one", "two"):
        folder = tree(tmp_path / text)
        (folder / "cutlass_library/source/include/cutlass/a.h").write_text(text)
        (folder / f"cutlass_library/source/include/cutlass/{text}.h").write_text(text)
        with zipfile.ZipFile(tmp_path / f"{text}.whl", "w") as archive:
            for path in folder.rglob("*"):
                archive.write(path, path.relative_to(folder))
        found.append(find_cutlass(tmp_path / f"{text}.whl", tmp_path / "unpacked"))
        assert found[-1].digest == find_cutlass(folder, tmp_path).digest
    assert find_cutlass(tmp_path / "one.whl", tmp_path / "unpacked") == found[0] != found[1]


def test_the_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    folder = tree(tmp_path / "tree")
    digests = [find_cutlass(folder, tmp_path).digest]
    header = folder / "cutlass_library/source/include/cutlass/a.h"
    for change in (
        lambda: header.write_text("a"),
        lambda: header.write_text("b"),
        lambda: header.rename(header.with_name("b.h")),
    ):
        change()
        digests.append(find_cutlass(folder, tmp_path).digest)
    assert len(set(digests)) == 4


def test_where_there_is_no_cutlass_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "no.whl").write_text("no archive")
    for path, told in [(tmp_path / "no.whl", "cannot be read as a wheel"), (tmp_path, "no CUTLASS in")]:
        with pytest.raises(UsageError, match=told):
            find_cutlass(path, tmp_path / "unpacked")


def test_the_installed_one_is_found(tmp_path: Path) -> None:
    found = find_cutlass(None, tmp_path)
    assert found.version == "4.2.0" and all(path.is_dir() for path in found.headers.folders)
