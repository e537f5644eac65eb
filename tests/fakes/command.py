"""A case whose surface is shell_json: a command that counts what a workspace does, and tells of it with noise."""

from __future__ import annotations

from pathlib import Path

SETTINGS = """
schema: 1
surface: shell_json
summary: a workspace makes tokens, and a command counts them
command:
  run: [python, bench/measure.py]
  seconds: 20
  metrics:
    tokens_per_second: {unit: tok/s, direction: higher}
    memory: {unit: MiB, direction: lower}
objective: {metric: tokens_per_second, direction: higher, minimum_effect: 0.05}
guardrails:
  - {suite: main, metric: memory, max_slowdown: 0.05}
  - {suite: batch, max_slowdown: 0.05}
budgets: {memory_mib: 512}
policy: {imports: [os, pathlib, yaml]}
duel: {screen_blocks: 6, max_pairs: 8, report_pairs: 3}
"""

COMMAND = """
import json
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, os.environ["HILLCLIMB_WORKSPACE"])
import kernel

batch, secret = int(sys.argv[1]), int(os.environ["HILLCLIMB_SEED"])
made, ticks, memory = kernel.run(batch, secret)
print("warming up")
if made != [(secret + step) % 97 for step in range(batch)]:
    print(json.dumps({"wrong": f"{len(made)} tokens, and not those asked for"}))
    sys.exit()


def noisy(value):
    return value * (1 + 0.01 * (2 * random.SystemRandom().random() - 1))


print(json.dumps({
    "tokens_per_second": {"value": noisy(1000 * batch / ticks), "unit": "tok/s"},
    "memory": noisy(memory),
}))
"""

KERNEL = """
import os

TICKS = float(os.environ.get("TICKS", 100))


def run(batch, secret):
    return [(secret + step) % 97 for step in range(batch)], TICKS, 64
"""


SWEPT = KERNEL.replace(
    'float(os.environ.get("TICKS", 100))',
    'float(os.environ.get("TICKS") or yaml.safe_load(KNOBS.read_text())["TICKS"]["default"])',
).replace(
    "import os\n",
    "import os\nfrom pathlib import Path\n\nimport yaml\n\nKNOBS = Path(__file__).parent / 'knobs.yaml'\n",
)
"""The same, with a knob."""


def write_command_case(root: Path, kernel: str = KERNEL) -> Path:
    """The case's folder, `cases/test/counted` below `root`."""
    folder = root / "cases" / "test" / "counted"
    for place in ("bench", "benchmarks", "workspace"):
        (folder / place).mkdir(parents=True)
    (folder / "case.yaml").write_text(SETTINGS)
    (folder / "program.md").write_text("Make it faster.\n")
    (folder / "bench" / "measure.py").write_text(COMMAND)
    (folder / "benchmarks" / "main.yaml").write_text('arguments: ["8"]\n')
    (folder / "benchmarks" / "batch.yaml").write_text('arguments: ["32"]\n')
    (folder / "workspace" / "kernel.py").write_text(kernel)
    (folder / "workspace" / "knobs.yaml").write_text(
        "TICKS: {type: choice, choices: [100, 60], default: 100}\n"
    )
    return folder
