"""`python -m hillclimb.agent.importers.probing SOURCE`: a plan on standard input, its findings on standard output."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from hillclimb.agent.importers.formats.imported import Plan
from hillclimb.agent.importers.probing.exploration import explore
from hillclimb.harness.errors import HillclimbError


def main() -> None:
    """Whatever the source prints goes to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    plan = Plan.model_validate_json(sys.stdin.read())
    try:
        findings = explore(plan, Path(sys.argv[1]))
    except HillclimbError as error:
        print(str(error).replace(f"{Path(sys.argv[1]).parent}/", ""), file=sys.stderr)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - the source may raise anything; it is told by name
        frames = traceback.extract_tb(error.__traceback__)
        inside = [f for f in frames if f.filename.startswith(str(Path(sys.argv[1]).parent))]
        where = f"{Path(inside[-1].filename).name}:{inside[-1].lineno}: " if inside else ""
        print(f"{where}{''.join(traceback.format_exception_only(error)).strip()}", file=sys.stderr)
        sys.exit(1)
    answer.write(findings.model_dump_json())
    answer.flush()


if __name__ == "__main__":
    main()
