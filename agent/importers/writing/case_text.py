"""case.yaml, program.md and the notes of an imported case, as text."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hillclimb.agent.importers.formats.imported import DeviceKind, Findings, Plan

LARGE_BYTES = 64 << 20

CPU = """device: cpu
objective: {metric: time, direction: lower, minimum_effect: 0.01, suite: main}
budgets: {seconds: 28800, candidates: 10000, patience: 200, prepare_seconds: 120, call_seconds: 60, memory_mib: 8192}
duel: {segment_ms: 4}
"""
CUDA = """device: cuda
objective: {metric: time, direction: lower, minimum_effect: 0.0025, suite: main}
budgets: {seconds: 28800, candidates: 10000, patience: 200, prepare_seconds: 120, call_seconds: 10, memory_mib: 16384}
duel: {segment_ms: 8, pair_blocks: 2, max_pairs: 30}
"""


def case_text(
    name: str,
    plan: Plan,
    model: str,
    hardware: str,
    device: DeviceKind,
    library_calls: bool,
    imports: Sequence[str],
) -> str:
    """case.yaml."""
    calls = "true " if library_calls else "false"
    note = "the baseline calls torch or NumPy's operators; set it to false once a kernel does not"
    return (
        f"# The case {name}, imported from a {plan.format}. docs/reference/case-format.md explains every key.\n"
        "schema: 1\n"
        f"summary: {json.dumps(plan.title or plan.operator.name, ensure_ascii=False)}\n"
        f"model: {json.dumps(model, ensure_ascii=False)}\n"
        f"hardware: {json.dumps(hardware, ensure_ascii=False)}\n"
        f"{CPU if device == 'cpu' else CUDA}"
        'mutable: ["*.py", "*.cu", "*.ptx", "knobs.yaml", "docs/**", "tests/**"]\n'
        "policy:\n"
        f"  library_calls: {calls}    # {note if library_calls else 'finished operators; read off the source'}\n"
        f"  imports: {json.dumps(list(imports))}\n"
    )


def program_text(name: str, plan: Plan, found: Findings, told: Sequence[str], library_calls: bool) -> str:
    """program.md."""
    inputs = ", ".join(f"`{n}`" for n in found.input_names if n not in found.unread)
    outputs = ", ".join(f"`{n}`" for n in found.output_names)
    timed = "; ".join(f"`{n}` {found.problems[n]}" for n in found.timed)
    first = (
        "The baseline calls finished operators of a library. The first job is a kernel of its own that does not: "
        "then set `policy.library_calls` to false."
        if library_calls
        else "The baseline is the source's own function. `policy.library_calls` is false."
    )
    doubts = "\n".join(f"- {line}" for line in told) or "- nothing"
    return f"""# {name}

<!-- Whoever proposes changes reads this file. Add what you know of the problem. -->

**What to make faster.** {plan.title or plan.operator.name}. `run` in `workspace/kernel.py` is called with
{inputs}, then the outputs {outputs}. `workspace/original.py` has the operator's own code. Timed: {timed}.

**What is possible.** One call of `{found.timed[-1]}` reads and writes {found.public_bytes:,} bytes at the least.

**Where to begin.** {first}

**What is not allowed.** What `policy` in case.yaml forbids. Nothing may be kept between calls that depends on inputs.

**What the import left open.**

{doubts}
"""


def readme_text(name: str) -> str:
    """workspace/README.md."""
    return f"""# The workspace of {name}

The only folder a proposal may change; everything beside it is fixed and hashed into each record.

| where | what |
|---|---|
| `kernel.py` | the entry: `run(*inputs, *outputs, **attributes)`, writes its outputs, returns nothing |
| `original.py` | the operator's own code, which the baseline calls |
| `knobs.yaml` | parameters worth sweeping; `knobs.py` reads them |
| `docs/notes.md` | what was tried and what came of it |

    hillclimb check {name}
    hillclimb climb {name}
"""


def notes_text(name: str, plan: Plan, told: Sequence[str]) -> str:
    """workspace/docs/notes.md."""
    lines = "\n".join(f"- {line}" for line in told) or "- nothing"
    return f"""# Notes on {name}

Imported from a {plan.format}. Not carried over, or doubtful:

{lines}

| idea | effect | remark |
|---|---|---|
"""


KNOBS_TEXT = (
    "# No knobs yet. Each is an environment variable; docs/reference/case-format.md shows the types.\n{}\n"
)
