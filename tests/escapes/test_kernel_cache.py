"""Compiled kernels: what one side puts where it can write comes to no other side, and to no figure that is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.duel.process.launch_spec import thread_variables
from hillclimb.harness.sandbox.rungs.choose import PreforkRung, Rung
from tests.escapes.conftest import MAKERS
from tests.harness.duel.process.test_precompile import SOFTMAX, Yard, binaries, files, yard

__all__ = ["yard"]

FORGER = (
    SOFTMAX
    + """

import pathlib

def forge_everywhere():
    '''Whatever looks like a compiled kernel, wherever it lies; and more of them than there are.'''
    for top in ("/tmp", "/var/tmp", "/dev/shm", os.getcwd(), os.environ["TRITON_HOME"]):
        for path in list(pathlib.Path(top).rglob("*.cubin")) + list(pathlib.Path(top).rglob("*.json")):
            forge(path)
    for key in ("A" * 52, "B" * 52):
        path = pathlib.Path("triton", key, "softmax.cubin")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"FORGED")

def forge(path):
    for deed in (
        lambda: path.write_bytes(b"FORGED"),
        lambda: path.chmod(0o666),
        lambda: pathlib.Path("forged").write_bytes(b"FORGED"),
        lambda: os.replace("forged", path),
        lambda: path.unlink(),
        lambda: path.write_bytes(b"FORGED"),
    ):
        try: deed()
        except OSError: pass

original = run
def run(x, y):
    original(x, y)
    forge_everywhere()
"""
)


@pytest.fixture(scope="module", params=MAKERS)
def rung(request: pytest.FixtureRequest) -> Iterator[Rung]:
    with PreforkRung(
        MAKERS[request.param](), ["hillclimb.harness.candidate.preload"], thread_variables()
    ) as made:
        yield made


def is_forged(folder: Path) -> bool:
    return any(b"FORGED" in data for data in files(folder).values())


@pytest.mark.slow(5)
def test_a_forger_reaches_its_own_kernels_alone(yard: Yard) -> None:
    """Not those it was given to start from, not another's, and not what is compiled from a source."""
    ahead, parent = yard.open(), yard.side(SOFTMAX)
    given = ahead.kernel_folder(parent)
    before = files(given)
    forger, honest, heir = yard.side(FORGER), yard.side(SOFTMAX + "# mine\n"), yard.side(SOFTMAX + "# next\n")
    ahead.begin(forger, parent)
    assert is_forged(ahead.kernel_folder(forger)), "it did not forge a thing, and nothing is shown"
    assert files(ahead.kernel_folder(parent)) == before
    ahead.begin(honest, parent)
    assert not is_forged(ahead.kernel_folder(honest))
    assert binaries(ahead.kernel_folder(honest)) == ["softmax.cubin"]
    ahead.begin(heir, forger)
    assert is_forged(ahead.kernel_folder(heir)), "who starts from a forger is given what that one left"
    reported = ahead.kernel_folder(heir, from_source=True)
    assert not is_forged(reported)
    assert binaries(reported) == ["softmax.cubin"]
    assert files(given) == before
    assert not any(path.stat().st_mode & 0o022 for path in given.parent.rglob("*")), (
        "others could write there"
    )
