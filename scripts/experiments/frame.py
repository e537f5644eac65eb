"""What the experiments share: their arguments, an output that goes on after a kill, and where they ran."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
PACKAGES = ("torch", "triton")


def make_parser(
    doc: str | None, *, default: Path | None = None, required: bool = False
) -> argparse.ArgumentParser:
    """A parser whose help is the module's docstring, with --output PATH. Without a default it is None if not given."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    text = "a JSON file where every finished part is saved; the same command goes on with it"
    text += f" (default: {_shorten(default)})" if default else ""
    parser.add_argument("--output", type=Path, metavar="PATH", default=default, required=required, help=text)
    return parser


class Output:
    """A JSON object in a file. A script that is started again finds there what earlier starts have finished."""

    def __init__(self, path: Path | None, arguments: Mapping[str, object]) -> None:
        """Open the file, or begin a new one; without a path nothing is saved.

        `arguments` are those that the figures depend on. Raises SystemExit where the file is not a JSON object, or
        was made with other arguments.
        """
        script = {"script": Path(sys.argv[0]).stem, **arguments}
        self._path = path
        self.found: dict[str, Any] = {"arguments": json.loads(json.dumps(script, default=str))}
        """All that is saved. Scripts change it and call `save`."""
        self.provenance = provenance()
        """Of this start. Scripts may add to it."""
        self._is_saved = False
        if path is None:
            return
        if not path.parent.is_dir():
            raise SystemExit(f"{path}: there is no folder {path.parent}; make it, or name another --output")
        if path.exists():
            self.found = _read(path, self.found["arguments"])
            print(f"{path}: goes on with {self._describe()}", file=sys.stderr)

    def save(self, **figures: Any) -> None:
        """Add these figures, and replace the file at once: a kill leaves the old one or the new one."""
        if not self._is_saved and "provenance" in self.found:
            self.found.setdefault("earlier_provenance", []).append(self.found["provenance"])
        self._is_saved = True
        self.found |= {"provenance": self.provenance, **figures}
        if self._path is None:
            return
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(json.dumps(self.found, indent=1) + "\n")
        beside.replace(self._path)

    def _describe(self) -> str:
        own = ("arguments", "provenance", "earlier_provenance")
        figures = {name: value for name, value in self.found.items() if name not in own}
        sizes = [f"{n} ({len(v)})" if isinstance(v, list | dict) else n for n, v in figures.items()]
        return ", ".join(sizes) or "nothing yet"


def _read(path: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """What the file holds. Raises SystemExit where a script with these arguments cannot go on with it."""
    remedy = "name another --output, or remove the file"
    if not path.is_file():
        raise SystemExit(f"{path}: is not a regular file; name another --output")
    text = path.read_text(errors="replace")
    try:
        found = json.loads(text)
    except ValueError:
        raise SystemExit(f"{path}: is not JSON, it begins with {text[:40]!r}; {remedy}") from None
    if not isinstance(found, dict):
        raise SystemExit(f"{path}: holds a JSON {type(found).__name__}, not an object; {remedy}")
    given = found.get("arguments")
    if not isinstance(given, dict):
        raise SystemExit(f"{path}: does not say with which arguments it was made; {remedy}")
    for name in sorted(given.keys() | wanted.keys()):
        if given.get(name) != wanted.get(name):
            seen, now = json.dumps(given.get(name)), json.dumps(wanted.get(name))
            raise SystemExit(
                f"{path}: was made with {name} = {seen}, not {now}; use the same arguments, {remedy}"
            )
    return found


def provenance() -> dict[str, Any]:
    """Which command, of which commit, on which machine."""
    commit, changes = _ask("git", "-C", ROOT, "rev-parse", "HEAD"), None
    if commit:
        changes = _ask("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no")
    gpus = _ask("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return {
        "command": shlex.join([_shorten(Path(sys.argv[0])), *sys.argv[1:]]),
        "commit": commit,
        "dirty": None if changes is None else bool(changes),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "os": platform.platform(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "gpus": gpus.splitlines() if gpus else [],
    }


def _ask(*command: str | Path) -> str | None:
    """What the program prints; None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def _shorten(path: Path) -> str:
    """From the root of the checkout, where it lies in it."""
    path = path.absolute()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
