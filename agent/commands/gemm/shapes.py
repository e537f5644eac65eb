"""The command gemm shapes."""

from __future__ import annotations

import json as as_json
from dataclasses import asdict

from hillclimb.agent.commands.gemm.options import (
    DefinitionsOption,
    DtypeOption,
    GpusOption,
    ModelsOption,
    NamesOption,
    TokensOption,
    choose_shapes,
    gemm,
)
from hillclimb.agent.commands.options import JsonOption
from hillclimb.harness.gemm.shape import GemmShape
from hillclimb.harness.wording import count


@gemm.command()
def shapes(
    names: NamesOption = None,
    models: ModelsOption = None,
    tp_sizes: GpusOption = None,
    batch_sizes: TokensOption = None,
    dtype: DtypeOption = None,
    definitions: DefinitionsOption = None,
    json: JsonOption = False,
) -> None:
    """List shapes: the single named ones and the fixed grid, or the layers of models.

    A shape has a name, m, n and k; of a mixture of experts also how many groups share the m rows. All of them stand in
    one file, to which yours can be added.

    Example: `hillclimb gemm shapes --shapes qkv_m16_n6144_k4096 --dtype fp8`
    """
    chosen = choose_shapes(names, models, tp_sizes, batch_sizes, dtype, definitions)
    if json:
        print(
            as_json.dumps([{**asdict(shape), "flops": shape.flops, "bytes": shape.bytes} for shape in chosen])
        )
        return
    _print_table(chosen)


def _print_table(chosen: list[GemmShape]) -> None:
    width = max(len(shape.name) for shape in chosen)
    kind = max(len("dtype"), *(len(shape.dtype) for shape in chosen))
    print(f"{'name':{width}}  {'m':>6}  {'n':>6}  {'k':>6}  groups  {'dtype':{kind}}  FLOP/byte")
    for shape in chosen:
        intensity = shape.flops / shape.bytes
        sizes = f"{shape.m:6}  {shape.n:6}  {shape.k:6}  {shape.groups:6}"
        print(f"{shape.name:{width}}  {sizes}  {shape.dtype:{kind}}  {intensity:9.4g}")
    print(count(len(chosen), "shape"))
