#!/usr/bin/env python3
"""Says whether a Discord webhook is configured, and tries it with --send; --help teaches the rest."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    python = ROOT / ".venv" / "bin" / "python"
    if not python.exists():
        print("check_webhook_status.py: there is no environment yet; run scripts/setup", file=sys.stderr)
        raise SystemExit(3)
    os.execv(python, [str(python), "-P", "-m", "hillclimb.agent.notify.status", str(ROOT), *sys.argv[1:]])


if __name__ == "__main__":
    main()
