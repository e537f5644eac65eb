"""`hillclimb extract`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hillclimb.agent.commands.options import JsonOption
from hillclimb.harness.errors import UsageError

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A snapshot: a folder with config.json and safetensors, or a GGUF file. Or FILE.py:NAME, a "
        "torch.nn.Module with example_inputs() beside it, or a function that returns a module and its arguments. "
        "Or a case, whose model_path is taken.",
    ),
]
StepKindOption = Annotated[
    Literal["decode", "prefill"], typer.Option("--phase", help="Of a language model: a token, or the prompt.")
]
WriteOption = Annotated[
    list[str] | None,
    typer.Option(metavar="OPERATOR", help="Make a kernel case of it, by its name in the table. Repeatable."),
]
CasesOption = Annotated[str, typer.Option(help="Folder of these cases. Default: the model's name.")]
PlaceOption = Annotated[str, typer.Option(help="Where it runs: cpu, cuda or cuda:N.")]
WeightsDtypeOption = Annotated[
    Literal["float32", "bfloat16", "float16"], typer.Option(help="Of a snapshot's weights.")
]
PromptOption = Annotated[int, typer.Option(min=1, help="Tokens before the one that is timed.")]
StepsOption = Annotated[int, typer.Option(min=1, help="Tokens, prompts or calls that are timed at a time.")]
TopOption = Annotated[int, typer.Option(min=1, help="Rows of the table.")]
HardwareOption = Annotated[str, typer.Option(help="The target of the cases, in words.")]


def extract(
    model: ModelArgument,
    phase: StepKindOption = "decode",
    write: WriteOption = None,
    family: CasesOption = "",
    device: PlaceOption = "cpu",
    dtype: WeightsDtypeOption = "float32",
    prompt_tokens: PromptOption = 32,
    steps: StepsOption = 16,
    top: TopOption = 12,
    hardware: HardwareOption = "",
    json: JsonOption = False,
) -> None:
    """Profile a model, list its operators by their share of the time, and make kernel cases of those you choose.

    Beside each share stands what a step could gain if the operator took no time (Amdahl's law). A case gets the sizes
    and dtypes that were seen, and weights drawn like the model's own.

    Examples:

    - `hillclimb extract ~/models/tiny`

    - `hillclimb extract ~/models/tiny --write llama_mlp --family tiny`

    - `hillclimb extract block.py:Block --device cuda`
    """
    from hillclimb.agent.importers.extraction import describe_profile, extract_operators
    from hillclimb.agent.screen.escaping import escape_lines
    from hillclimb.agent.stamp import repository
    from hillclimb.harness.extract.profiled import ProfileQuestion

    path, name = _locate(model)
    question = ProfileQuestion(
        model=path,
        name=name,
        phase=phase,
        device=device,
        dtype=dtype,
        prompt_tokens=prompt_tokens,
        steps=steps,
        write=tuple(write or ()),
    )
    found = extract_operators(repository(Path.cwd()), question, family, hardware)
    if json:
        print(found.model_dump_json())
        return
    made = [f"{case} is made; next: hillclimb check {case}" for case in found.cases]
    print(escape_lines("\n".join([*describe_profile(found.profile, top), *made, *found.told])))


def _locate(given: str) -> tuple[str, str]:
    """A snapshot's path, or a file and a name in it. Raises UsageError."""
    from hillclimb.harness.case.case import Case, find_case

    path, colon, name = given.rpartition(":")
    if colon and name.isidentifier() and Path(path).is_file():
        return str(Path(path).absolute()), name
    if Path(given).expanduser().exists() and not (Path(given) / "case.yaml").is_file():
        return str(Path(given).expanduser().absolute()), ""
    try:
        found = Case(find_case(given)).model_path
    except UsageError as error:
        raise UsageError(f"{given!r} is no snapshot, no FILE.py:NAME and no case; {error}") from None
    if found is None:
        raise UsageError(f"{given}: its case.yaml names no model_path; give the snapshot's path")
    return str(found), ""
