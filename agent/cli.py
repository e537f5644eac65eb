"""The command line. Every command is thin: it reads what was typed, calls one function and shows what came back.

The commands stand in agent/commands; their imports stand inside them, so that `--help` and `history` start at once.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer
from typer._completion_classes import completion_init

from hillclimb.agent.commands.check import check
from hillclimb.agent.commands.climb import climb
from hillclimb.agent.commands.completion import COMPLETE_VARIABLE, completion
from hillclimb.agent.commands.config import config
from hillclimb.agent.commands.evaluate import evaluate
from hillclimb.agent.commands.extract import extract
from hillclimb.agent.commands.gemm.commands import gemm
from hillclimb.agent.commands.new_case import new_case
from hillclimb.agent.commands.options import MACHINE, USAGE
from hillclimb.agent.commands.profile import profile
from hillclimb.agent.commands.put_back import put_back
from hillclimb.agent.commands.read import history, rebuild, report, runs, show, watch
from hillclimb.agent.commands.review import review
from hillclimb.agent.commands.serve import serve
from hillclimb.agent.commands.study import study
from hillclimb.agent.screen.escaping import escape_lines
from hillclimb.harness.errors import HillclimbError, MachineError

app = typer.Typer(
    name="hillclimb",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Climbs kernels: proposes changes, judges them in a sandbox, and keeps only proven wins, as commits on a
    branch of their own. Your checkout, index and current branch are never touched.

    A CASE is a folder with a case.yaml, or `<family>/<case>` below the folder `cases` here or above.

    First steps:

    - `hillclimb new-case --family mine --case rows` makes a case of your own. The demo below lies in a checkout.

    - `hillclimb extract ~/models/llama` lists what of a model is worth a kernel, and makes cases of it.

    - `hillclimb check demo/cpu_matmul` says whether a case is sound.

    - `hillclimb climb demo/cpu_matmul --tag first --budget-seconds 3m` climbs it. The same command goes on later.

    - `hillclimb watch` follows it from another terminal.

    - `hillclimb history demo/cpu_matmul` lists the wins, `hillclimb show demo/cpu_matmul 1` one candidate.

    - `hillclimb evaluate demo/cpu_matmul --knob MM_TILE_N=64` judges what you changed.

    - `hillclimb config` shows what is configured, `hillclimb COMMAND -h` explains a command.

    Exit status: 0 done or kept, 1 rejected, 2 wrong usage or a wrong file, 3 the machine failed, 130 interrupted.""",
)


def main() -> None:
    """Entry point: runs a command; an error of ours is one line on stderr and an exit status, never a traceback."""
    try:
        if COMPLETE_VARIABLE in os.environ:
            completion_init()
        _expect_git()
        app()
    except MachineError as error:
        _fail(str(error), MACHINE)
    except HillclimbError as error:
        _fail(str(error), USAGE)
    except OSError as error:
        _fail(f"{error}; the machine refused it, so mend that and run the command again", MACHINE)


def _fail(message: str, status: int) -> None:
    print(escape_lines(f"hillclimb: {message}"), file=sys.stderr)
    sys.exit(status)


def _expect_git() -> None:
    if shutil.which("git") is None:
        raise MachineError("git is not on PATH; install it")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"hillclimb {version('hillclimb')}")
        raise typer.Exit


@app.callback()
def hillclimb(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print it and leave."),
    ] = False,
) -> None:
    """See the help of `app`."""


for command in (climb, check, evaluate, profile, history, show, review, watch, report, rebuild, runs):
    app.command()(command)
app.command()(extract)
app.command("put-back")(put_back)
app.command()(serve)
app.command()(config)
app.command()(completion)
app.command("new-case")(new_case)
app.add_typer(study, name="study")
app.add_typer(gemm, name="gemm")
