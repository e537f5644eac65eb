"""For the other scripts: the command line of this checkout, in place of the script."""

import os
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]


def locate(given: str) -> str:
    """The case as named where this is called, else `<family>/<case>` of this checkout."""
    here = (Path(given), Path("cases") / given)
    ours = ROOT / "cases" / given
    known_here = any((folder / "case.yaml").is_file() for folder in here)
    return str(ours) if not known_here and (ours / "case.yaml").is_file() else given


def become_hillclimb(*words: str) -> NoReturn:
    """Ends with status 3 where there is no environment yet."""
    hillclimb = ROOT / ".venv" / "bin" / "hillclimb"
    if not hillclimb.exists():
        print(f"{Path(sys.argv[0]).name}: there is no environment yet; run scripts/setup", file=sys.stderr)
        raise SystemExit(3)
    os.execv(hillclimb, [str(hillclimb), *words])
