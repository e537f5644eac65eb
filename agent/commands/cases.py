"""`hillclimb new-case`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def new_case(
    family: Annotated[
        str,
        typer.Option("--family", "--model-slug", help="Folder of the family: a-z, 0-9, _."),
    ],
    case: Annotated[
        str, typer.Option("--case", "--case-slug", help="Folder of the case in it: a-z, 0-9, _.")
    ],
    device: Annotated[
        Literal["cpu", "cuda"],
        typer.Option(
            help="Where the kernel runs. cpu: a numba kernel that is handed NumPy arrays. cuda: a Triton kernel that "
            "is handed torch tensors on one NVIDIA GPU; without one, `check` compiles and interprets it."
        ),
    ] = "cpu",
    model_name: Annotated[str, typer.Option(help="The model or operator, in words.")] = "",
    model_path: Annotated[str, typer.Option(help="Where its files lie, if it is served.")] = "",
    hardware: Annotated[str, typer.Option(help="The target, in words.")] = "",
) -> None:
    """Stamp a new case, the sums of a matrix's rows, to put your own in its place; it passes `check` as it is.

    It comes from cases/_template, with cases/_template_cuda over it where the kernel is for a GPU.

    Examples:

    - `hillclimb new-case --family demo --case rowsum --model-name "Row sum" --hardware "any CPU"`

    - `hillclimb new-case --family demo --case rowsum_gpu --device cuda --hardware "one H200"`
    """
    from agent.stamp import stamp

    here = Path.cwd()
    root = next((p for p in (here, *here.parents) if (p / "cases" / "_template").is_dir()), here)
    folder = stamp(root, family, case, model_name, model_path, hardware, device)
    print(f"{folder}\nnext: edit contract.py and workspace/, then 'hillclimb check {family}/{case}'")
