"""Where CUTLASS is: installed, unpacked, or as the wheel."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.compiler.drafts import Draft
from hillclimb.harness.gemm.folder import locked, sha256_of

WHEEL, PACKAGE = "nvidia-cutlass", "cutlass_library"
"""And the folder of the wheel that has the generator and the sources."""

VERSION = re.compile(r"#define CUTLASS_(MAJOR|MINOR|PATCH) +(\d+)")
ABSENT = "Install it with `pip install --no-deps nvidia-cutlass==4.2.0.0`, or give --cutlass the wheel of it"
DIGEST = "digest"
"""File beside an unpacked wheel: sha256 of its sources when they were unpacked."""


@dataclass(frozen=True)
class Headers:
    """Folders for the compiler to look into, and sha256 of all in them."""

    folders: tuple[Path, ...] = ()
    digest: str = ""


@dataclass(frozen=True)
class Cutlass:
    """A tree of CUTLASS."""

    package: Path
    """Of Python, with `source` in it."""
    version: str
    digest: str
    """sha256 of its sources."""

    @property
    def source(self) -> Path:
        return self.package / "source"

    @property
    def headers(self) -> Headers:
        """For a kernel of one's own."""
        return self.headers_in("include", "tools/util/include")

    def headers_in(self, *folders: str) -> Headers:
        """These of its folders."""
        digest = hashlib.sha256(f"{self.digest} {folders}".encode()).hexdigest()
        return Headers(tuple(self.source / folder for folder in folders), digest)


def find_cutlass(given: Path | None, folder: Path) -> Cutlass:
    """The installed one, or the wheel or folder that is given. A wheel is unpacked into `folder`, once.

    Raises UsageError where there is none.
    """
    if given is None:
        package = _installed()
    elif given.is_file():
        package = _unpacked(given, folder)
    else:
        package = given if given.name == PACKAGE else given / PACKAGE
    version_file = package / "source/include/cutlass/version.h"
    if not version_file.exists():
        raise UsageError(f"no CUTLASS in {package}: it has no {version_file.name}. {ABSENT}")
    parts = dict(VERSION.findall(version_file.read_text()))
    version = ".".join(parts.get(part, "?") for part in ("MAJOR", "MINOR", "PATCH"))
    return Cutlass(package.resolve(), version, _digest(package / "source"))


def _installed() -> Path:
    try:
        return Path(str(importlib.metadata.distribution(WHEEL).locate_file(PACKAGE)))
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(f"no CUTLASS: {WHEEL} is not installed. {ABSENT}") from None


def _unpacked(wheel: Path, folder: Path) -> Path:
    """Each wheel has its own folder, by its content; it appears there whole."""
    place = folder / sha256_of(wheel)
    with locked(folder, waits=True):
        if not _is_whole(place):
            shutil.rmtree(place, ignore_errors=True)
            _unpack(wheel, folder, place)
    return place / PACKAGE


def _is_whole(place: Path) -> bool:
    expected = place / DIGEST
    return expected.exists() and expected.read_text() == _digest(place / PACKAGE / "source")


def _unpack(wheel: Path, folder: Path, place: Path) -> None:
    draft = Draft(folder)
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(f"{PACKAGE}/")]
            archive.extractall(draft.folder, names)
        (draft.folder / DIGEST).write_text(_digest(draft.folder / PACKAGE / "source"))
        draft.folder.rename(place)
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{wheel} cannot be read as a wheel ({error}). {ABSENT}") from None
    finally:
        draft.remove()


def _digest(source: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        content = path.read_bytes()
        found.update(f"{path.relative_to(source)} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()
