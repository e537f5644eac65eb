"""A copy of scripts/ in a repository of its own, its tools replaced by small programs that write down their calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class ScriptsRepo:
    """The copy's folder, and a folder of programs that comes first on PATH."""

    root: Path
    programs: Path

    def program(self, path: Path, body: str) -> Path:
        """An executable shell program."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        return path

    def on_path(self, name: str, body: str) -> Path:
        return self.program(self.programs / name, body)

    def hillclimb(self, body: str = 'printf "%s|" "$@"; echo "tag=${HILLCLIMB_RUN_TAG-}"') -> None:
        """A stand-in for the installed command; by default it prints its arguments."""
        self.program(self.root / ".venv" / "bin" / "hillclimb", body)

    def run(
        self, script: str, *arguments: str, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [str(self.root / script), *arguments],
            cwd=cwd,
            env={**_plain_environment(), "PATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )


def make_repo(folder: Path) -> ScriptsRepo:
    """Copies what the scripts need; the path has a space in it."""
    root, programs = folder / "a repo", folder / "programs"
    programs.mkdir()
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("experiments", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    repo = ScriptsRepo(root, programs)
    repo.on_path("bwrap", "exit 0")
    repo.on_path("chromium", "exit 0")
    return repo


def _plain_environment() -> dict[str, str]:
    dropped = ("CUDA_", "HILLCLIMB_", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if not k.startswith(dropped)}


UV = f"""
echo "uv $*" >>"$(dirname "$0")/calls"
case $1 in
    venv) mkdir -p "${{@: -1}}/bin" && ln -sf "{sys.executable}" "${{@: -1}}/bin/python" ;;
esac
exit 0
"""
"""Makes an environment that is a link to this Python, installs nothing and writes down each call."""
