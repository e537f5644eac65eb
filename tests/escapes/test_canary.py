"""The canary: held in by every rung, out without one, and not to be silenced."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.canary import canary, escapes
from hillclimb.harness.sandbox.canary.attempts import files, granted, kernel, primitives, processes, sockets
from hillclimb.harness.sandbox.canary.escapes import ATTEMPTS
from hillclimb.harness.sandbox.confinement import Confinement, RungGuarantees
from hillclimb.harness.sandbox.kernel import syscalls
from hillclimb.harness.sandbox.process import SandboxedProcess
from hillclimb.harness.sandbox.rungs.choose import choose_rung, trusted_rung
from tests.escapes.conftest import MAKERS
from tests.escapes.outside import EVERYTHING, unsandboxed

UNNAMED_HEADERS = {
    0: ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    1: ("/usr/include/asm-generic/unistd.h",),
}


def test_nothing_gets_out_of_a_rung(rung: canary.Testable) -> None:
    assert len(ATTEMPTS) >= 115
    assert canary.escapes_from(rung) == []


def test_most_gets_out_without_one() -> None:
    outcome = unsandboxed()
    wanted = 0.85 if os.geteuid() == 0 else 0.6
    out = outcome.out()
    assert len(out) >= wanted * len(ATTEMPTS), (
        f"only {len(out)} of {len(ATTEMPTS)}: {set(outcome.reported) - set(out)}"
    )
    for sight in ("appear", "file change", "contacted", "kernels change", "repository change", "own end"):
        assert any(sight in line for line in outcome.seen), f"the judge saw no {sight}"


def test_every_attempt_is_made_once() -> None:
    names = [escapes.title(attempt) for attempt in ATTEMPTS]
    walls = (files, processes, sockets, kernel, granted)
    defined = [name for wall in walls for name, thing in vars(wall).items() if _is_attempt(thing)]
    assert sorted(names) == sorted(name.replace("_", " ") for name in defined)


def _is_attempt(thing: object) -> bool:
    return list(getattr(thing, "__annotations__", {})) == ["bait", "return"]


def test_what_only_the_judge_can_see_is_seen_where_nothing_holds() -> None:
    """Two attempts do not know themselves whether they got out."""
    with canary.place_bait(EVERYTHING) as lure:
        processes.end_a_process_of_the_judges_through_a_pipe(lure.bait)
        lure.decoy.wait(10)
        assert lure.violations() == ["the judge saw a process of its own end"]
    bare = Altered(trusted_rung(), f"from hillclimb.harness.sandbox.canary import escapes\n{OUTLIVES}")
    assert canary.escapes_from(bare) == []


OUTLIVES = """
import json
escapes.processes.outlive_the_run(None)
print(json.dumps({escapes.title(attempt): False for attempt in escapes.ATTEMPTS}))
"""


def test_the_numbers_of_calls_that_no_filter_names_are_the_kernels() -> None:
    compared = 0
    for column, headers in UNNAMED_HEADERS.items():
        header = next((Path(name) for name in headers if Path(name).exists()), None)
        known = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)", header.read_text())) if header else {}
        for name, numbers in primitives.UNFILTERED_CALLS.items():
            assert name not in syscalls.TABLE
            if known:
                assert int(known[name]) == numbers[column], name
                compared += 1
    if compared == 0:
        pytest.skip("kernel headers are not installed")


@dataclass(frozen=True)
class Altered:
    """A rung that runs another program than it was asked to."""

    rung: canary.Testable
    code: str
    name: str = "altered"

    def guarantees(self) -> RungGuarantees:
        return self.rung.guarantees()

    def spawn(self, argv: Sequence[str], confinement: Confinement) -> SandboxedProcess:
        return self.rung.spawn([sys.executable, "-c", self.code], confinement)


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "print('{}')",
        "print('nonsense')",
        "print('[1]')",
        "import os; os.abort()",
        "raise SystemExit(1)",
    ],
)
def test_a_canary_that_does_not_sing_is_no_good_news(rung: canary.Testable, code: str) -> None:
    with pytest.raises(SandboxError, match="canary in altered"):
        canary.escapes_from(Altered(rung, code))


def test_the_judge_looks_for_itself(rung: canary.Testable) -> None:
    """A program that reports nothing cannot hide what the judge sees."""
    names = json.dumps([escapes.title(attempt) for attempt in ATTEMPTS])
    quiet = Altered(rung, f"import json; print(json.dumps(dict.fromkeys({names}, False)))")
    assert canary.escapes_from(quiet) == []
    with canary.place_bait(rung.guarantees()) as lure:
        (lure.folder / "victim").write_text("changed")
        assert lure.violations() == ["the judge saw its file change"]
        (lure.folder / "kernels/KEY/removed.cubin").unlink()
        (lure.folder / "repository/.git/hooks/pre-commit").touch()
        assert lure.violations()[1:] == [
            "the judge saw compiled kernels change",
            "the judge saw a git repository change",
        ]


def test_nothing_of_the_bait_stays(rung: canary.Testable) -> None:
    with canary.place_bait(rung.guarantees()) as lure:
        mark = Path(lure.bait.marks[0])
        mark.touch()
        assert lure.decoy.poll() is None
    assert not mark.exists()
    assert not lure.folder.exists()
    assert lure.decoy.poll() is not None


@pytest.mark.parametrize("name", MAKERS)
def test_the_strongest_rung_that_holds_is_chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        MAKERS[name]()
    except SandboxError as error:
        pytest.skip(str(error))
    if name == "landlock":
        monkeypatch.setenv("PATH", "/nonexistent")
    assert choose_rung(trust_workspace=False).name == name


def test_the_rung_without_a_border_would_not_be_chosen() -> None:
    assert "read a secret" in canary.escapes_from(trusted_rung())
