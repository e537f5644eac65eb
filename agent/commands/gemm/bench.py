"""The commands gemm bench shapes, square, range and model, which time providers beside each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.gemm.options import (
    DefinitionsOption,
    DtypeOption,
    GpusOption,
    ModelsOption,
    NamesOption,
    TokensOption,
    choose_shapes,
    gemm,
    split_names,
)
from hillclimb.agent.commands.gemm.winners import WinnersOption, read_winners
from hillclimb.agent.commands.options import JsonOption, duration
from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.shape import Dtype, GemmShape
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.harness.gemm.bench.bench import Bench

bench = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Time providers of kernels beside each other on this machine's GPU.

    Each provider has a process of its own. Every kernel is checked against float64, on outputs that were poisoned.
    Then the best of each provider meet in rounds, in an order drawn anew each time. A call's operands are not in the
    L2 cache.

    The same command goes on where it was stopped. `FOLDER/<provider>_results.json` are for `gemm compare`.

    Examples:

    - `hillclimb gemm bench shapes --shapes qkv_m16_n6144_k4096 --output-dir times`

    - `hillclimb gemm bench square --dim-start 1024 --dim-end 8192 --dim-increment 1024 --dtype fp8`

    - `hillclimb gemm bench range --dim-start 1024 --dim-end 4096 --dim-increment 1024 --m-constant 16`

    - `hillclimb gemm bench model --models Qwen/Qwen3-32B --tp-sizes 4 --batch-sizes 1,64`

    - `hillclimb gemm bench model --models Qwen/Qwen3-30B-A3B --batch-sizes 16 --grouped`""",
)
gemm.add_typer(bench, name="bench")

BenchFolderOption = Annotated[
    Path, typer.Option("--output-dir", metavar="FOLDER", help="Where the times are kept.")
]
ProvidersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--providers",
        metavar="NAME",
        callback=split_names,
        help="cublas, cublaslt, triton, cute_dsl and generated. Default: all that are there.",
    ),
]
KernelsFolderOption = Annotated[
    Path, typer.Option("--kernels", metavar="FOLDER", help="Of `gemm generate`, for the provider generated.")
]
GraphOption = Annotated[
    int,
    typer.Option("--with-cuda-graph", min=0, metavar="N", help="Calls in one graph. 0: enough to be timed."),
]
PoolOption = Annotated[
    int,
    typer.Option("--with-arg-pool", min=0, metavar="N", help="Sets of operands. 0: more than the L2 holds."),
]
RoundsOption = Annotated[int, typer.Option("--rounds", min=1, help="How often the best of each are timed.")]
FinalistsOption = Annotated[
    int, typer.Option("--finalists", min=1, help="Kernels of a provider in the rounds.")
]
PdlOption = Annotated[
    bool,
    typer.Option(
        "--pdl/--no-pdl", help="Whether generated kernels may begin while the one before them ends."
    ),
]
GroupedOption = Annotated[
    bool, typer.Option("--grouped", help="The products of experts, instead of the single ones.")
]
BudgetOption = Annotated[
    str,
    typer.Option("--seconds", metavar="TIME", callback=duration, help="No shape is begun after it, as 10m."),
]
StartOption = Annotated[int, typer.Option("--dim-start", min=1, help="The first size.")]
EndOption = Annotated[int, typer.Option("--dim-end", min=1, help="The last one.")]
StepOption = Annotated[int, typer.Option("--dim-increment", min=1, help="From one to the next.")]
ConstantOption = Annotated[int | None, typer.Option(min=1, help="This size instead of the range's.")]

KERNELS = Path("build/gemm-kernels")


@dataclass(frozen=True)
class BenchWish:
    """What is the same for all modes."""

    folder: Path
    providers: Sequence[str]
    kernels: Path
    winners: Sequence[Path]
    calls: int
    pool: int
    pdl: bool
    rounds: int
    finalists: int
    seconds: float
    json: bool


@bench.command("shapes")
def bench_shapes(
    names: NamesOption = None,
    grouped: GroupedOption = False,
    dtype: DtypeOption = None,
    definitions: DefinitionsOption = None,
    output_dir: BenchFolderOption = Path("artifacts/gemm_bench"),
    providers: ProvidersOption = None,
    kernels: KernelsFolderOption = KERNELS,
    winners: WinnersOption = None,
    calls: GraphOption = 0,
    pool: PoolOption = 0,
    pdl: PdlOption = True,
    rounds: RoundsOption = 13,
    finalists: FinalistsOption = 3,
    seconds: BudgetOption = "10m",
    json: JsonOption = False,
) -> None:
    """The named shapes and the fixed grid, or those of --shapes.

    Tokens of a product of experts are spread over them evenly, and what is left by lot.

    Exit status 1: the time is over, and shapes are left.
    """
    chosen = choose_shapes(names, None, None, None, dtype, definitions)
    if names and grouped:
        raise UsageError("--shapes names them, those of experts too; leave --grouped out")
    if not names:
        chosen = _of_kind(chosen, grouped=grouped)
    _bench(
        chosen,
        _wish(output_dir, providers, kernels, winners, calls, pool, pdl, rounds, finalists, seconds, json),
    )


@bench.command("square")
def bench_square(
    start: StartOption,
    end: EndOption,
    step: StepOption,
    dtype: DtypeOption = None,
    output_dir: BenchFolderOption = Path("artifacts/gemm_bench"),
    providers: ProvidersOption = None,
    kernels: KernelsFolderOption = KERNELS,
    winners: WinnersOption = None,
    calls: GraphOption = 0,
    pool: PoolOption = 0,
    pdl: PdlOption = True,
    rounds: RoundsOption = 13,
    finalists: FinalistsOption = 3,
    seconds: BudgetOption = "10m",
    json: JsonOption = False,
) -> None:
    """All three sizes alike, from one to another.

    Exit status 1: the time is over, and shapes are left.
    """
    chosen = [_shape(size, size, size, dtype) for size in _sizes(start, end, step)]
    _bench(
        chosen,
        _wish(output_dir, providers, kernels, winners, calls, pool, pdl, rounds, finalists, seconds, json),
    )


@bench.command("range")
def bench_range(
    start: StartOption,
    end: EndOption,
    step: StepOption,
    m_constant: ConstantOption = None,
    n_constant: ConstantOption = None,
    k_constant: ConstantOption = None,
    dtype: DtypeOption = None,
    output_dir: BenchFolderOption = Path("artifacts/gemm_bench"),
    providers: ProvidersOption = None,
    kernels: KernelsFolderOption = KERNELS,
    winners: WinnersOption = None,
    calls: GraphOption = 0,
    pool: PoolOption = 0,
    pdl: PdlOption = True,
    rounds: RoundsOption = 13,
    finalists: FinalistsOption = 3,
    seconds: BudgetOption = "10m",
    json: JsonOption = False,
) -> None:
    """As square, with one or two of the sizes constant.

    Exit status 1: the time is over, and shapes are left.
    """
    sizes = _sizes(start, end, step)
    chosen = [_shape(m_constant or size, n_constant or size, k_constant or size, dtype) for size in sizes]
    _bench(
        list(dict.fromkeys(chosen)),
        _wish(output_dir, providers, kernels, winners, calls, pool, pdl, rounds, finalists, seconds, json),
    )


@bench.command("model")
def bench_model(
    models: ModelsOption = None,
    tp_sizes: GpusOption = None,
    batch_sizes: TokensOption = None,
    grouped: GroupedOption = False,
    dtype: DtypeOption = None,
    definitions: DefinitionsOption = None,
    output_dir: BenchFolderOption = Path("artifacts/gemm_bench"),
    providers: ProvidersOption = None,
    kernels: KernelsFolderOption = KERNELS,
    winners: WinnersOption = None,
    calls: GraphOption = 0,
    pool: PoolOption = 0,
    pdl: PdlOption = True,
    rounds: RoundsOption = 13,
    finalists: FinalistsOption = 3,
    seconds: BudgetOption = "10m",
    json: JsonOption = False,
) -> None:
    """The linear layers of models: those of all tokens, or with --grouped those of experts.

    Exit status 1: the time is over, and shapes are left.
    """
    if not models:
        raise UsageError("bench model needs --models, such as Qwen/Qwen3-32B")
    chosen = choose_shapes(None, models, tp_sizes, batch_sizes, dtype, definitions)
    _bench(
        _of_kind(chosen, grouped=grouped),
        _wish(output_dir, providers, kernels, winners, calls, pool, pdl, rounds, finalists, seconds, json),
    )


def _wish(
    folder: Path,
    providers: list[str] | None,
    kernels: Path,
    winners: list[Path] | None,
    calls: int,
    pool: int,
    pdl: bool,
    rounds: int,
    finalists: int,
    seconds: str,
    json: bool,
) -> BenchWish:
    from hillclimb.harness.gemm.bench.bench import providers_there

    return BenchWish(
        folder,
        tuple(providers or providers_there(kernels)),
        kernels,
        winners or (),
        calls,
        pool,
        pdl,
        rounds,
        finalists,
        float(seconds),
        json,
    )


def _of_kind(shapes: Sequence[GemmShape], *, grouped: bool) -> list[GemmShape]:
    """Raises UsageError where there are none."""
    found = [shape for shape in shapes if (shape.groups > 1) == grouped]
    if not found:
        raise UsageError(
            "there are no products of experts among these shapes; leave --grouped out"
            if grouped
            else "no shape is a single product; --grouped takes those of experts"
        )
    return found


def _sizes(start: int, end: int, step: int) -> range:
    if end < start:
        raise UsageError(f"--dim-end {end} is below --dim-start {start}")
    return range(start, end + 1, step)


def _shape(m: int, n: int, k: int, dtype: Dtype | None) -> GemmShape:
    shape = GemmShape("", m, n, k, dtype or "bf16")
    return shape.named(shape.sizes)


def _bench(shapes: Sequence[GemmShape], wish: BenchWish) -> None:
    from hillclimb.harness.gemm.bench.bench import Bench, held_gpu, worker_command
    from hillclimb.harness.gemm.bench.rounds import BenchPlan

    only = read_winners(wish.winners)
    plan = BenchPlan(
        rounds=wish.rounds,
        finalists=wish.finalists,
        calls=wish.calls,
        operand_sets=wish.pool,
        pdl=wish.pdl,
        whole="generated" if only else "",
    )
    commands = {name: worker_command(name, wish.kernels, only, pdl=wish.pdl) for name in wish.providers}
    with _kernels_held(wish), held_gpu() as gpu:
        run = Bench(wish.folder, commands, gpu, plan)
        try:
            left = run.run(shapes, wish.seconds, lambda shape, text: _show(run, shapes, shape, text))
        finally:
            run.close()
            paths = run.write_results(shapes)
    _print(run, shapes, left, paths, json=wish.json)
    if left:
        raise typer.Exit(1)


@contextmanager
def _kernels_held(wish: BenchWish) -> Iterator[None]:
    """Nobody generates others while they are timed."""
    from hillclimb.harness.gemm.folder import locked
    from hillclimb.harness.gemm.generator.catalog import catalog_folders

    with ExitStack() as held:
        if "generated" in wish.providers:
            for folder in sorted({wish.kernels, *catalog_folders(wish.kernels)}):
                held.enter_context(locked(folder, shared=True))
        yield


def _show(run: Bench, shapes: Sequence[GemmShape], shape: GemmShape, text: str) -> None:
    """On one line of a terminal; a line at the start of a shape elsewhere."""
    at = shapes.index(shape) + 1
    line = f"{at} of {len(shapes)} shapes, {shape.name}: {text}"
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
    elif text.startswith("round 1 "):
        print(line, file=sys.stderr, flush=True)


def _print(
    run: Bench, shapes: Sequence[GemmShape], left: Sequence[GemmShape], paths: Sequence[Path], *, json: bool
) -> None:
    ratios = run.control(shapes)
    apart = [exp(abs(log(ratio))) - 1 for ratio in ratios.values()]
    if json:
        import json as as_json

        told = {
            "timed": len(shapes) - len(left),
            "left": [shape.name for shape in left],
            "results": list(map(str, paths)),
            "same_kernel_twice": {"mean": fmean(apart), "worst": max(apart)} if apart else None,
        }
        print(as_json.dumps(told))
        return
    print(f"{count(len(shapes) - len(left), 'shape')} timed; written to {', '.join(map(str, paths))}")
    if apart:
        print(
            f"one kernel, timed twice, differed by {fmean(apart):.2%} in the mean, {max(apart):.2%} at worst"
        )
    if left:
        print(f"{count(len(left), 'shape')} left; the same command goes on with {left[0].name}")
