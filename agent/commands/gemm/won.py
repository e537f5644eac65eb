"""The command gemm won, by which what climbs of claims found goes back to a bench and a portfolio."""

from __future__ import annotations

import json as as_json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hillclimb.agent.commands.gemm.claim import DEVICE, TEMPLATE, added_code
from hillclimb.agent.commands.gemm.options import gemm
from hillclimb.agent.commands.options import JsonOption
from hillclimb.harness.errors import UsageError

if TYPE_CHECKING:
    from hillclimb.agent.git.repository import Repository
    from hillclimb.harness.gemm.shape import Dtype

KNOBS = "knobs.yaml"
HOST = ("kernel.py", "launch.py", "plan.py")
"""Code of the template."""

CODE = (".py", ".cu", ".ptx")
OTHER_FOLDERS = ("docs/", "tests/")


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
    compile it, time it beside the others, and choose anew. One whose code was edited has no such name.

    Example: `hillclimb gemm won hillclimb/gemm/qkv_m16_n6144_k4096_bf16/sweep > won.txt`, then `hillclimb gemm generate
    --winners chosen/dispatch.json --winners won.txt --output-dir chosen/kernels`
    """
    from hillclimb.agent.git.repository import Repository

    repository = Repository.open(Path.cwd(), for_reading=True)
    found = {branch: _kernel(repository, branch) for branch in branches}
    print(as_json.dumps(found) if json else "\n".join(dict.fromkeys(found.values())))


def _kernel(repository: Repository, branch: str) -> str:
    from hillclimb.harness.gemm.claims.won import won_kernel
    from hillclimb.harness.knobs.knobs import defaults, parse_knobs

    files = _workspace(repository, branch)
    dtype = _dtype(files, branch)
    try:
        knobs = files[KNOBS].decode()
    except UnicodeDecodeError:
        raise UsageError(f"{branch}: {KNOBS} is no text") from None
    values = defaults(parse_knobs(knobs, Path(f"{branch}:{KNOBS}")))
    try:
        return won_kernel(dtype, values)
    except UsageError as error:
        raise UsageError(f"{branch}: {error}") from None


def _workspace(repository: Repository, branch: str) -> Mapping[str, bytes]:
    """Its knobs, and all that runs."""
    commit = repository.resolve(f"{branch}^{{commit}}")
    name = "/".join(branch.split("/")[-3:-1])
    if commit is None or "/" not in name:
        raise UsageError(f"{branch} is no branch of a climb here; one is hillclimb/<family>/<case>/<tag>")
    workspace = f"cases/{name}/workspace/"
    entries = {
        path.removeprefix(workspace): entry
        for path, entry in repository.list_files(commit).items()
        if path.startswith(workspace)
    }
    wanted = [
        path
        for path in entries
        if path == KNOBS or (path.endswith(CODE) and not path.startswith(OTHER_FOLDERS))
    ]
    for file in (DEVICE, KNOBS):
        if file not in wanted:
            raise UsageError(f"{branch} has no {workspace}{file}; it is no climb of a case of `gemm claim`")
    return dict(zip(wanted, repository.read([entries[path].sha for path in wanted]), strict=True))


def _dtype(files: Mapping[str, bytes], branch: str) -> Dtype:
    """That of the claim whose code this is. Raises UsageError where it was edited."""
    from hillclimb.harness.gemm.claims.claim import DTYPES

    code = {path: content for path, content in files.items() if path != KNOBS}
    known = {dtype: _code(dtype) for dtype in DTYPES}
    dtype = next((dtype for dtype, own in known.items() if own[DEVICE] == code[DEVICE]), DTYPES[0])
    edited = sorted(path for path in {*code, *known[dtype]} if code.get(path) != known[dtype].get(path))
    if edited:
        raise UsageError(
            f"{branch}: {edited[0]} is not what this version's claims have, so no generated kernel is like it"
        )
    return dtype


def _code(dtype: Dtype) -> Mapping[str, bytes]:
    """Of a claim's workspace."""
    from hillclimb.agent.stamp import repository, template_text

    root, filled = repository(Path.cwd()), {"dtype": dtype}
    host = {path: template_text(root, TEMPLATE, f"workspace/{path}", filled) for path in HOST}
    return {path: text.encode() for path, text in {**host, **added_code(root, dtype)}.items()}
