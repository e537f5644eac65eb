#!/usr/bin/env python3
"""Serve the workspace's own backend in the sandbox. Options are those of `hillclimb serve`, such as --port 8001."""

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

CASE = Path(__file__).resolve().parent


def find_hillclimb() -> str:
    """The command of a checkout above this case, else of this Python or of PATH. Ends with status 3 without one."""
    places = [folder / ".venv" / "bin" / "hillclimb" for folder in CASE.parents]
    places.append(Path(sys.executable).with_name("hillclimb"))
    found = next((str(place) for place in places if place.is_file()), None) or shutil.which("hillclimb")
    if found is None:
        print(
            "hillclimb is not installed: run scripts/setup, or pip install 'hillclimb[serving]'",
            file=sys.stderr,
        )
        raise SystemExit(3)
    return found


def serve(backend: str) -> NoReturn:
    """Become `hillclimb serve` for this case, with the options of the command line."""
    hillclimb = find_hillclimb()
    os.execv(hillclimb, [hillclimb, "serve", "--case", str(CASE), "--backend", backend, *sys.argv[1:]])


if __name__ == "__main__":
    serve("custom")
