"""The canary: held in by every rung, out without one, and not to be silenced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harness.errors import SandboxError
from harness.sandbox import bubblewrap, canary, launched
from harness.sandbox.confinement import Confinement, Promise
from harness.sandbox.escapes import ATTEMPTS
from harness.sandbox.process import Confined
from harness.sandbox.rungs import Rung, bubblewrap_rung, choose_rung, landlock_rung, trusted_rung

BUBBLEWRAP_WALLS = sorted({*bubblewrap.WALLS, *bubblewrap.MOUNTED_WALLS, *bubblewrap.LATER_WALLS} - {"life"})
"""That the candidate dies with its judge cannot be seen from inside; test_rungs has its own test."""

LANDLOCK_WALLS = launched.WALLS

ONLY_ROOT_NEEDS = {"user namespace", "masked proc", "capabilities", "user", "sealed dev", "sealed root"}
"""For an ordinary user the kernel itself holds these, or bubblewrap does unasked."""


def test_nothing_gets_out_of_a_rung(rung: canary.Testable) -> None:
    assert len(ATTEMPTS) >= 25
    assert canary.escapes_from(rung) == []


def test_most_gets_out_without_one(tmp_path: Path) -> None:
    everything = Promise(bubblewrap.NAMESPACES, capabilities=0, scratch_is_bounded=True, variables=())
    with canary.lay_bait(everything) as lure:
        program = subprocess.run(
            [sys.executable, "-m", "harness.sandbox.escapes", lure.bait.to_json()],
            cwd=tmp_path,
            capture_output=True,
            close_fds=False,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(canary.__file__).parents[2])},
            check=True,
        )
        out = [name for name, got_out in json.loads(program.stdout).items() if got_out]
        wanted = 0.75 if os.geteuid() == 0 else 0.5
        assert len(out) >= wanted * len(ATTEMPTS), f"only {len(out)} of {len(ATTEMPTS)}: {out}"
        seen = lure.disturbed()
    assert any("appear" in line for line in seen)
    assert any("change" in line for line in seen)
    assert any("contacted" in line for line in seen)
    assert not any(Path(mark).exists() for mark in lure.bait.marks)


@pytest.mark.parametrize("wall", BUBBLEWRAP_WALLS)
def test_every_wall_of_bubblewrap_is_missed(wall: str) -> None:
    if wall in ONLY_ROOT_NEEDS and os.geteuid() != 0:
        pytest.skip(f"{wall}: needs root to make a difference")
    assert canary.escapes_from(_or_skip(bubblewrap_rung, wall)) != []


@pytest.mark.parametrize("wall", LANDLOCK_WALLS)
def test_every_wall_of_landlock_is_missed(wall: str) -> None:
    if wall in ONLY_ROOT_NEEDS and os.geteuid() != 0:
        pytest.skip(f"{wall}: needs root to make a difference")
    assert canary.escapes_from(_or_skip(landlock_rung, wall)) != []


def test_the_rung_without_a_border_would_not_be_chosen() -> None:
    assert "read a secret" in canary.escapes_from(trusted_rung())


@dataclass(frozen=True)
class Altered:
    """A rung that runs another program than it was asked to."""

    rung: canary.Testable
    code: str
    name: str = "altered"

    def promise(self) -> Promise:
        return self.rung.promise()

    def spawn(self, argv: Sequence[str], confinement: Confinement) -> Confined:
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
    names = json.dumps([canary.escapes.title(attempt) for attempt in ATTEMPTS])
    quiet = Altered(rung, f"import json; print(json.dumps(dict.fromkeys({names}, False)))")
    assert canary.escapes_from(quiet) == []
    with canary.lay_bait(rung.promise()) as lure:
        (lure.folder / "victim").write_text("changed")
        assert lure.disturbed() == ["the judge saw its file change"]


def test_the_strongest_rung_that_holds_is_chosen(rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    if rung.name == "landlock":
        monkeypatch.setenv("PATH", "/nonexistent")
    assert choose_rung(trust_workspace=False).name == rung.name


NOWHERE = """
import sys
from harness.errors import SandboxError
from harness.sandbox import seccomp, syscalls
from harness.sandbox.rungs import choose_rung
rules = [
    seccomp.Rule("landlock_create_ruleset", seccomp.Action.UNKNOWN),
    seccomp.Rule("unshare", seccomp.Action.REFUSE),
    seccomp.Rule("clone", seccomp.Action.REFUSE, seccomp.When(0, "has", seccomp.NEW_NAMESPACE)),
]
seccomp.load(seccomp.assemble(rules, syscalls.machine()))
try:
    print(choose_rung(trust_workspace=len(sys.argv) > 1).name)
except SandboxError as error:
    print("refused:", error)
"""


def test_a_machine_without_any_rung_is_refused_with_reasons_and_remedies() -> None:
    said = _python(NOWHERE)
    assert said.startswith("refused: no sandbox works here. bubblewrap: ")
    assert "Landlock version 0 found" in said
    assert "install bubblewrap" in said
    assert "--trust-workspace" in said
    if bubblewrap.shutil.which("bwrap"):
        assert "bwrap: " in said


def test_a_trusted_workspace_runs_on_a_machine_without_any_rung() -> None:
    assert _python(NOWHERE, "trusted") == "none"


def _python(code: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def _or_skip(make: object, wall: str) -> canary.Testable:
    try:
        rung = make()  # type: ignore[operator]
    except SandboxError as error:
        pytest.skip(str(error))
    return replace(rung, without=frozenset({wall}))
