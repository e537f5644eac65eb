"""The command gemm won, by which what climbs of claims found goes back to a bench and a portfolio."""

from __future__ import annotations

import json as as_json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.gemm.options import gemm
from hillclimb.agent.commands.options import JsonOption
from hillclimb.harness.errors import UsageError

if TYPE_CHECKING:
    from hillclimb.agent.git.repository import Repository


@gemm.command()
def won(
    branches: Annotated[
        list[str],
        typer.Argument(metavar="BRANCH...", help="Of climbs: hillclimb/<family>/<case>/<tag>."),
    ],
    json: JsonOption = False,
) -> None:
    """Name the generated kernels that climbs of claims ended with, one a line.

    A climb that swept knobs ends with a kernel that can be generated. So it goes back to where its case came from:
    compile it, time it beside the others, and choose anew. One whose source was edited has no such name.

    Example: `hillclimb gemm won hillclimb/gemm/qkv_m16_n6144_k4096_bf16/sweep > won.txt`, then `hillclimb gemm generate
    --winners chosen/dispatch.json --winners won.txt` and `hillclimb gemm bench shapes` with the same two files
    """
    from hillclimb.agent.git.repository import Repository

    repository = Repository.open(Path.cwd(), for_reading=True)
    found = {branch: _kernel(repository, branch) for branch in branches}
    print(as_json.dumps(found) if json else "\n".join(dict.fromkeys(found.values())))


def _kernel(repository: Repository, branch: str) -> str:
    from hillclimb.agent.evaluate.review import find_case_path
    from hillclimb.harness.gemm.claims.won import won_kernel
    from hillclimb.harness.knobs.knobs import defaults, parse_knobs

    commit = repository.resolve(f"{branch}^{{commit}}")
    name = "/".join(branch.split("/")[-3:-1])
    if commit is None or "/" not in name:
        raise UsageError(f"{branch} is no branch of a climb here; one is hillclimb/<family>/<case>/<tag>")
    workspace = f"{find_case_path(repository, commit, name, branch)}/workspace"
    files = repository.list_files(commit)
    known = {file: files.get(f"{workspace}/{file}") for file in ("gemm.cu", "knobs.yaml")}
    for file, entry in known.items():
        if entry is None:
            raise UsageError(f"{branch} has no {workspace}/{file}; it is no climb of a case of `gemm claim`")
    source, knobs = (
        one.decode() for one in repository.read([entry.sha for entry in known.values() if entry])
    )
    try:
        return won_kernel(source, defaults(parse_knobs(knobs, Path(f"{branch}:{workspace}/knobs.yaml"))))
    except UsageError as error:
        raise UsageError(f"{branch}: {error}") from None
