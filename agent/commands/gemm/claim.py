"""The command gemm claim, which makes cases of shapes and of the kernels that were their best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.gemm.options import gemm, split_names
from hillclimb.agent.commands.options import JsonOption
from hillclimb.harness.errors import UsageError

if TYPE_CHECKING:
    from hillclimb.harness.gemm.claims.claim import ClaimedKernel
    from hillclimb.harness.gemm.shape import Dtype

TEMPLATE, DEVICE, CUBLASLT_YARDSTICK = "_template_gemm", "gemm.cu", "cublaslt.py"


@gemm.command()
def claim(
    results: Annotated[
        Path, typer.Argument(metavar="FILE", help="Of `gemm bench`, of the provider generated.")
    ],
    names: Annotated[
        list[str],
        typer.Option(
            "--shapes", metavar="NAME", callback=split_names, help="A case for each; names by commas."
        ),
    ],
    baseline: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Of another provider, whose times the case tells; may be repeated."
        ),
    ] = None,
    family: Annotated[str, typer.Option(help="Folder below cases/ that the cases come into.")] = "gemm",
    json: JsonOption = False,
) -> None:
    """Make a case of a shape: it starts from the best kernel of our own, whose parameters are the case's knobs.

    The case is as any other: `hillclimb climb` sweeps its knobs and edits its kernel, and every win is duelled. A
    sweep begins with the kernels that the cost model of `gemm bench` takes for the fastest.

    Its yardstick.py is what torch calls, which is cuBLAS. With a `--baseline` of the provider cublaslt it has one more,
    cublaslt.py: the algorithm that was fastest. `hillclimb evaluate --against` judges a kernel against either.

    Example: `hillclimb gemm claim times/generated_results.json --baseline times/cublaslt_results.json
    --shapes qkv_m16_n6144_k4096`
    """
    from hillclimb.agent.stamp import SLUG, StampedCase, repository
    from hillclimb.harness.gemm.claims.claim import find_claim
    from hillclimb.harness.gemm.results import read_results

    own, others = read_results(results), [read_results(file) for file in baseline or ()]
    claims = [find_claim(own, name, others) for name in dict.fromkeys(names)]
    root = repository(Path.cwd())
    for one in claims:
        if not SLUG.fullmatch(one.case):
            raise UsageError(f"{one.case} is no name of a case, which has a-z, 0-9 and _; rename the shape")
    taken = [one.case for one in claims if (root / "cases" / family / one.case).exists()]
    if taken:
        raise UsageError(f"cases/{family}/{taken[0]} is there already; choose another --family, or remove it")
    stamped = []
    for one in claims:
        folder = _stamp(one, root, family, own.gpu.name)
        told = (one.kernel, one.told)
        stamped.append(StampedCase(folder=str(folder), case=f"{family}/{one.case}", told=told))
    if json:
        import json as as_json

        print(as_json.dumps([found.model_dump() for found in stamped]))
        return
    for found in stamped:
        print(f"{found.folder}\n  starts from {found.told[0]}\n  {found.told[1]}")
        print(f"  next: 'hillclimb check {found.case}', then 'hillclimb climb {found.case} --tag sweep'")


def added_code(root: Path, dtype: Dtype) -> Mapping[str, str]:
    """What a workspace has beside the files of TEMPLATE, by their paths in it."""
    from hillclimb.agent.stamp import template_text
    from hillclimb.harness.gemm.claims.claim import device_source

    return {
        DEVICE: device_source(dtype),
        "knobs.py": template_text(root, "_template", "workspace/knobs.py"),
    }


def _stamp(one: ClaimedKernel, root: Path, family: str, gpu: str) -> Path:
    from hillclimb.agent.stamp import stamp
    from hillclimb.harness.gemm.claims.claim import values_of
    from hillclimb.harness.knobs.knobs import replace_defaults

    def finish(folder: Path) -> None:
        knobs = folder / "workspace" / "knobs.yaml"
        knobs.write_text(replace_defaults(knobs.read_text(encoding="utf-8"), one.knobs), encoding="utf-8")
        settings = folder / "case.yaml"
        settings.write_text(settings.read_text(encoding="utf-8") + _to_sweep(one), encoding="utf-8")
        for path, text in added_code(root, one.shape.dtype).items():
            (folder / "workspace" / path).write_text(text, encoding="utf-8")
        if one.cublaslt is None:
            (folder / CUBLASLT_YARDSTICK).unlink()

    shape = one.shape
    name = f"a product of {shape.m} x {shape.k} and {shape.n} x {shape.k} in {shape.dtype}"
    values = {"model_name": name, "model_path": "", "hardware": gpu, **values_of(one)}
    return stamp(root, (TEMPLATE,), family, one.case, values, finish)


def _to_sweep(one: ClaimedKernel) -> str:
    """The section of case.yaml with the likeliest kernels."""
    import yaml

    lines = [
        yaml.safe_dump(values, default_flow_style=True, sort_keys=False, width=math.inf).strip()
        for values in one.likely
    ]
    if not lines:
        return ""
    told = "what the cost model takes for the fastest kernels"
    return "\n".join(
        ["", "sweep:", f"  first:                    # {told}", *(f"    - {line}" for line in lines), ""]
    )
