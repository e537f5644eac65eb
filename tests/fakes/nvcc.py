#!/usr/bin/env python3
"""Stands in for nvcc where it would take minutes: a source says what becomes of it, and a log says what was asked."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

here = Path(__file__).parent
if "--version" in sys.argv:
    print("Cuda compilation tools, release 13.0, V13.0.88")
    sys.exit(0)
if "--dryrun" in sys.argv:
    plan = here / "plan"
    sys.exit(plan.read_text() if plan.exists() else f"#$ _HERE_={here}\n#$ gcc -E source.cu")
output, inputs = (
    sys.argv[sys.argv.index("-o") + 1],
    [Path(word) for word in sys.argv[1:] if word.endswith((".cu", ".cpp"))],
)
if not inputs:
    if (here / "links forever").exists():
        time.sleep(600)
    objects = [Path(word) for word in sys.argv[1:] if not word.startswith("-") and word != output]
    for path in objects:
        if path.suffix != ".o":
            sys.exit(f"nvcc fatal   : Don't know what to do with '{path}'")
    Path(output).write_text("".join(path.read_text() for path in objects))
    sys.exit(0)
source = inputs[0].read_text()
with (here / "log").open("a") as log:
    print(hashlib.sha256(source.encode()).hexdigest(), *sys.argv[1:], file=log)
if "#error" in source:
    print(f"{inputs[0]}(1): error: #error directive", file=sys.stderr)
    sys.exit(2)
told = [line.removeprefix("// says ") for line in source.splitlines() if line.startswith("// says ")]
if told:
    sys.exit("\n".join(told))
if "// starts another" in source:
    child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
    (here / "child").write_text(str(child.pid))
if "// kills itself" in source:
    os.kill(os.getpid(), signal.SIGKILL)
if "// hangs" in source:
    Path(os.environ["TMPDIR"], "half").write_text("x")
    time.sleep(600)
if "// writes nothing" not in source:
    Path(output).write_text(f"// compiled\n{source}")
