"""`hillclimb completion`, and what is completed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hillclimb.harness.errors import UsageError

COMPLETE_VARIABLE = "_HILLCLIMB_COMPLETE"
"""With it a shell asks for what may come next."""
SHELLS = ("bash", "zsh", "fish")


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell that you use.")],
) -> None:
    """Print a script that completes commands, options and cases in a shell.

    Examples:

    - `hillclimb completion bash >> ~/.bashrc`

    - `hillclimb completion zsh >> ~/.zshrc`

    - `hillclimb completion fish > ~/.config/fish/completions/hillclimb.fish`
    """
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        raise UsageError(
            f"completion {shell}: there is none for that shell; choose among {', '.join(SHELLS)}"
        )
    print(get_completion_script(prog_name="hillclimb", complete_var=COMPLETE_VARIABLE, shell=shell))


def complete_case(incomplete: str) -> list[str]:
    """`<family>/<case>` of the cases in the nearest folder `cases`."""
    folders = (folder / "cases" for folder in (Path.cwd(), *Path.cwd().parents))
    near = next((folder for folder in folders if folder.is_dir()), None)
    if near is None:
        return []
    names = (f"{p.parent.parent.name}/{p.parent.name}" for p in near.glob("[!_]*/*/case.yaml"))
    return sorted(name for name in names if name.startswith(incomplete))
