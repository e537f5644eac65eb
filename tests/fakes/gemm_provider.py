"""Stands in for a provider's process, which needs a GPU: what each kernel does stands in a file.

`python gemm_provider.py FILE`: kernel -> microseconds, or what goes wrong.
"""

import json
import os
import sys
import time
from pathlib import Path

kernels = json.loads(Path(sys.argv[1]).read_text())
asked = Path(sys.argv[1]).with_suffix(".asked")
short = Path(sys.argv[1]).with_suffix(".short")


def say(**answer) -> None:
    print(json.dumps(answer), flush=True)


for line in sys.stdin:
    ask = json.loads(line)
    kernel, does = ask["kernel"], kernels.get(ask["kernel"])
    with asked.open("a") as log:
        print(ask["action"], json.dumps(ask["best"]) if ask["action"] == "refine" else kernel, file=log)
    if ask["action"] == "start":
        software = Path(sys.argv[1]).with_suffix(".software")
        say(software={"stand-in": software.read_text() if software.exists() else "1"})
    elif (
        ask["action"] == "prepare"
        and short.exists()
        and asked.read_text().count("prepare") == int(short.read_text())
    ):
        say(fault="unsupported", detail="out of memory")
    elif ask["action"] == "prepare" and "unsupported" in kernels:
        say(fault="unsupported", detail="no such shape")
    elif ask["action"] == "prepare":
        say(kernels=[name for name in kernels if not name.startswith("_")])
    elif ask["action"] == "refine":
        say(kernels=[name for name in kernels if name.startswith("_") and name[1:] not in ask["best"]])
    elif does == "wrong" and ask["action"] == "check":
        say(fault="incorrect", detail="1 of 8 results is wrong")
    elif does == "breaks":
        say(fault="failed", detail="an illegal access", is_broken=True)
        sys.exit(0)
    elif does == "dies":
        print("Segmentation fault", file=sys.stderr)
        os.abort()
    elif does == "hangs":
        time.sleep(600)
    elif does == "babbles":
        print("not json", flush=True)
    elif (
        does == "wrong at last"
        and ask["action"] == "check"
        and asked.read_text().count(f"check {kernel}\n") > 1
    ):
        say(fault="incorrect", detail="8 of 8 results are wrong")
    elif ask["action"] == "time":
        number = does if isinstance(does, int | float) else 30.0
        say(seconds=number * 1e-6)
    else:
        say()
