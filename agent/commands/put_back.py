"""`hillclimb put-back`."""

from __future__ import annotations

from typing import Annotated

import typer

from hillclimb.agent.commands.completion import complete_case
from hillclimb.agent.commands.options import CaseArgument, JsonOption


def put_back(
    case: CaseArgument,
    into: Annotated[
        str,
        typer.Option(
            metavar="CASE", autocompletion=complete_case, help="The server's case, whose model it is."
        ),
    ],
    version: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="PATH|REV", help="What of the kernel's workspace. Default: the working files."
        ),
    ] = None,
    claims: Annotated[
        list[str] | None,
        typer.Option(
            "--claim",
            metavar="FUNCTION",
            help="A kernel that is claimed to run; may be given again. Default: all that the files launch.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Put the kernel of an operator that `extract` took out of a model, or a session, into a server of that model.

    The kernel's files, what installs it, a test, a knob that chooses it and its claim in the manifest are written into
    the server's working files. Then the server's judge can say what the kernel is worth end to end. A session takes
    the place of the whole model, which must have the sizes that it is for.

    Example: `hillclimb put-back tiny/llama_mlp --from hillclimb/tiny/llama_mlp/first --into tiny/cpu`
    """
    from hillclimb.agent.evaluate.put_back import put_back as put_kernel_back
    from hillclimb.harness.case.case import Case, find_case

    server = find_case(into)
    done = put_kernel_back(Case(find_case(case)), version, Case(server), claims)
    if json:
        print(done.model_dump_json())
        return
    print("\n".join(f"{server}/workspace/{path}" for path in done.files))
    print(
        f'{done.knob}=kernel is the default there; next: {server}/workspace/run_hillclimb.sh "{done.family} put back"'
    )
