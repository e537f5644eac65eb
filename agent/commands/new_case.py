"""`hillclimb new-case`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hillclimb.agent.commands.options import JsonOption
from hillclimb.harness.errors import UsageError

FamilyOption = Annotated[
    str,
    typer.Option(
        "--family", "--model-slug", help="Folder of the family: a-z, 0-9, _. With --from it may be left out."
    ),
]
NewCaseOption = Annotated[
    str,
    typer.Option(
        "--case", "--case-slug", help="Folder of the case in it: a-z, 0-9, _. With --from it may be left out."
    ),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        help="What to import: a KernelBench problem, a GPU MODE task's folder, a flashinfer-bench definition, "
        "FILE.py:function, FILE.py:Class, or a kernel_tuner space. A space may be given beside one of the others.",
    ),
]
ExampleOption = Annotated[
    list[str] | None,
    typer.Option(
        help="An argument of the function that is imported: x=float32[4096,1024], eps=1e-5. Repeatable."
    ),
]
KindOption = Annotated[
    Literal["kernel", "serving"],
    typer.Option(
        help="What is climbed. kernel: a function. serving: a server of a Llama, with backend, operators, tests, docs "
        "and scripts of its own; needs --model-path and hillclimb[serving]."
    ),
]
DeviceOption = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option(
        help="Where the kernel runs; cpu unless what is imported computes with torch. cpu: a kernel that is handed "
        "NumPy arrays. cuda: one that is handed torch tensors on one NVIDIA GPU; without one, `check` compiles and "
        "interprets it."
    ),
]


def new_case(
    family: FamilyOption = "",
    case: NewCaseOption = "",
    source: SourceOption = None,
    example: ExampleOption = None,
    kind: KindOption = "kernel",
    device: DeviceOption = None,
    model_name: Annotated[str, typer.Option(help="The model or operator, in words.")] = "",
    model_path: Annotated[str, typer.Option(help="Where its files lie, if it is served.")] = "",
    hardware: Annotated[str, typer.Option(help="The target, in words.")] = "",
    json: JsonOption = False,
) -> None:
    """Stamp a new case, the sums of a matrix's rows, to put your own in its place; it passes `check` as it is.

    It comes from cases/_template, with cases/_template_cuda over it where the kernel is for a GPU. With --kind serving
    it serves a model, and comes from cases/_template_serving. With --from the case is that of a problem that is there
    already, and what could not be carried over is told, a line each.

    Examples:

    - `hillclimb new-case --family demo --case rowsum --model-name "Row sum" --hardware "any CPU"`

    - `hillclimb new-case --family demo --case rowsum_gpu --device cuda --hardware "one H200"`

    - `hillclimb new-case --kind serving --family tiny --case cpu --model-path ~/models/tiny`

    - `hillclimb new-case --from KernelBench/level1/23_Softmax.py --family kernelbench --case softmax`

    - `hillclimb new-case --from blur.py:blur --example "image=float32[1080,1920]"`
    """
    from hillclimb.agent.stamp import StampedCase, create_case, repository

    root = repository(Path.cwd())
    if source:
        if kind != "kernel":
            raise UsageError(
                f"--kind {kind} and --from were both given; what is imported is a kernel, drop one"
            )
        from hillclimb.agent.importers.import_case import WantedCase, import_case

        wanted = WantedCase(family, case, model_name, hardware, device)
        found = import_case(root, source, example or (), wanted)
        folder, name, told = found.folder, found.case, list(found.told)
    else:
        if not family or not case or example:
            raise UsageError(
                "--family and --case are needed without --from, and --example is for --from; give them"
            )
        folder = create_case(root, family, case, model_name, model_path, hardware, device or "cpu", kind)
        name, told = f"{family}/{case}", []
    if json:
        print(StampedCase(folder=str(folder), case=name, told=tuple(told)).model_dump_json())
        return
    step = "read what follows" if told else "edit contract.py and workspace/"
    if kind == "serving":
        step = f"run {folder}/workspace/scripts/check_setup.sh --build"
    print(f"{folder}\nnext: {step}, then 'hillclimb check {name}'")
    print("\n".join(f"  {line}" for line in told), end="\n" if told else "")
