"""`hillclimb new-case`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def new_case(
    model_slug: Annotated[str, typer.Option(help="Family folder: a-z, 0-9, _.")],
    case_slug: Annotated[str, typer.Option(help="Case folder: a-z, 0-9, _.")],
    model_name: Annotated[str, typer.Option(help="The model or operator, in words.")] = "",
    model_path: Annotated[str, typer.Option(help="Where its files lie, if it is served.")] = "",
    hardware: Annotated[str, typer.Option(help="The target, in words.")] = "",
) -> None:
    """Stamp a new case from cases/_template; it passes `check` as it is.

    Example: `hillclimb new-case --model-slug demo --case-slug rowsum --model-name "Row sum" --hardware "any CPU"`
    """
    from agent.stamp import stamp

    here = Path.cwd()
    root = next((p for p in (here, *here.parents) if (p / "cases" / "_template").is_dir()), here)
    folder = stamp(root, model_slug, case_slug, model_name, model_path, hardware)
    print(f"{folder}\nnext: edit contract.py and workspace/, then 'hillclimb check {model_slug}/{case_slug}'")
