"""The real disk, git and a simulated judge, each telling a watcher before and after every effect they have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeVar

from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.screen.events import Event, FinishedEvent
from hillclimb.harness.records import Comparison, Confirmation, GateReport, Profile, Screening, Side, Watch
from tests.fakes.clock import LedgerClock
from tests.fakes.judge import SimulatedJudge
from tests.fakes.proposer import PlannedProposer

T = TypeVar("T")
TAG = "night"
PLAN = ("tune", "crash", "outside", "improve", "near", "trick", "slower", "both")
"""Wins by knobs, by files and by both; rejections before, in and after the gate, and by the duel."""


class Witness(Protocol):
    """Is told of every effect, and may end the process there."""

    def reach(self, point: str) -> None:
        """`<effect>:before` or `<effect>:after`."""

    def tear(self, point: str, half_done: Callable[[], object]) -> None:
        """`<effect>:torn`: the witness may have the effect done by half, and end the process then."""


class WatchedDisk(Disk):
    """The real disk."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def append(self, path: Path, data: bytes) -> None:
        self._watch(_name(path, data), path, data, lambda: super(WatchedDisk, self).append(path, data))

    def replace(self, path: Path, data: bytes, mode: int = 0o644) -> None:
        beside = path.with_name(f".{path.name}.new")
        self._watch(
            f"{_name(path)}-replace", beside, data, lambda: super(WatchedDisk, self).replace(path, data, mode)
        )

    def create(self, path: Path, data: bytes, mode: int) -> None:
        self._watch(
            f"{_name(path)}-create", path, data, lambda: super(WatchedDisk, self).create(path, data, mode)
        )

    def rename(self, source: Path, target: Path) -> None:
        self._witness.reach(f"{_name(target)}-rename:before")
        super().rename(source, target)
        self._witness.reach(f"{_name(target)}-rename:after")

    def place(self, source: Path, target: Path) -> None:
        self._witness.reach(f"{_name(target)}-place:before")
        super().place(source, target)
        self._witness.reach(f"{_name(target)}-place:after")

    def remove_folder(self, path: Path) -> None:
        name = f"{_name(path)}-remove"
        if path.exists():
            self._witness.reach(f"{name}:before")
            self._witness.tear(f"{name}:torn", lambda: _remove_one(path))
        super().remove_folder(path)
        self._witness.reach(f"{name}:after")

    def lock(self, path: Path, owner: bytes) -> int | None:
        self._witness.reach("lock:before")
        descriptor = super().lock(path, owner)
        self._witness.reach("lock:after")
        return descriptor

    def _watch(self, name: str, torn: Path, data: bytes, action: Callable[[], None]) -> None:
        self._witness.reach(f"{name}:before")
        self._witness.tear(f"{name}:torn", lambda: _add(torn, data[: len(data) // 2]))
        action()
        self._witness.reach(f"{name}:after")


class WatchedRepository(Repository):
    """Real git."""

    witness: Witness

    def run_with_messages(self, *arguments: str, **options: Any) -> tuple[bytes, str]:
        def run() -> tuple[bytes, str]:
            return super(WatchedRepository, self).run_with_messages(*arguments, **options)

        return self._watched("git-update-index", "", run) if arguments[0] == "update-index" else run()

    def ask(self, verb: str, question: bytes, read: Callable[[IO[bytes]], T]) -> T:
        if verb in ("find", "read", "check out"):
            return super().ask(verb, question, read)
        ref, name = "", f"git-{verb}"
        if verb == "move":
            _, ref, _, old = question.decode().splitlines()[1].split(" ")
            where = "rejected" if "/rejected/" in ref else "start" if not old.strip("0") else "kept"
            name = f"git-move-{where}"
        return self._watched(name, ref, lambda: super(WatchedRepository, self).ask(verb, question, read))

    def _watched(self, name: str, ref: str, action: Callable[[], T]) -> T:
        self.witness.reach(f"{name}:before")
        self.witness.tear(f"{name}:torn", lambda: self._half(ref))
        answer = action()
        self.witness.reach(f"{name}:after")
        return answer

    def _half(self, ref: str) -> None:
        """What git leaves when it is killed itself: a lock of the ref, or a temporary object."""
        torn = self.common_dir / (f"{ref}.lock" if ref else "objects/tmp_obj_torn")
        torn.parent.mkdir(parents=True, exist_ok=True)
        _add(torn, b"half")


class WatchedJudge(SimulatedJudge):
    """The simulated judge."""

    def __init__(self, witness: Witness) -> None:
        super().__init__()
        self._witness = witness

    def gate(self, side: Side, watch: Watch) -> GateReport:
        return self._watched("gate", lambda: super(WatchedJudge, self).gate(side, watch))

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        return self._watched("screen", lambda: super(WatchedJudge, self).screen(candidate, incumbent, watch))

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        ask = super().confirm
        return self._watched("confirm", lambda: ask(candidate, incumbent, baseline, alpha, watch))

    def compare(
        self, first: Side, last: Side, stage: Literal["noise", "cumulative"], watch: Watch
    ) -> Comparison:
        return self._watched(stage, lambda: super(WatchedJudge, self).compare(first, last, stage, watch))

    def profile(self, side: Side, watch: Watch) -> Profile:
        return self._watched("profile", lambda: super(WatchedJudge, self).profile(side, watch))

    def _watched(self, name: str, question: Callable[[], T]) -> T:
        self._witness.reach(f"judge-{name}:before")
        answer = question()
        self._witness.reach(f"judge-{name}:after")
        return answer


class WatchedProposer(PlannedProposer):
    """The planned proposer."""

    def __init__(self, witness: Witness, seed: int) -> None:
        super().__init__(seed, PLAN)
        self._witness = witness

    def propose(self, ledger: Ledger) -> Proposal | None:
        self._witness.reach("propose:before")
        proposal = super().propose(ledger)
        self._witness.reach("propose:after")
        return proposal


def run_watched(repository: Path, witness: Witness, emit: Callable[[Event], None]) -> FinishedEvent:
    """One session of the toy's run in this world."""

    def open_repository(folder: Path) -> Repository:
        opened = WatchedRepository.open(folder)
        assert isinstance(opened, WatchedRepository)
        opened.witness = witness
        return opened

    def draw(folder: Path) -> str:
        witness.reach("draw:before")
        return ""

    tools = Tools(
        emit=emit,
        clock=LedgerClock(repository / "runs/demo/toy" / TAG / "ledger.jsonl"),
        disk=WatchedDisk(witness),
        open_repository=open_repository,
        draw=draw,
    )
    request = ClimbRequest(case=repository / "cases/demo/toy", tag=TAG)
    return climb(
        request,
        make_judge=lambda case, log: WatchedJudge(witness),
        make_proposer=lambda background: WatchedProposer(witness, background.seed),
        tools=tools,
    )


def _name(path: Path, data: bytes = b"") -> str:
    """What a file is to the run."""
    if path.name == "ledger.jsonl":
        line = json.loads(data)
        kept = ("-kept" if line["kept"] else "-rejected") if line["kind"] == "judged" else ""
        return f"ledger-{line['kind']}{kept}"
    for part in ("samples", "trees"):
        if part in path.parts:
            return part
    return {"results.tsv": "results", ".gitignore": "gitignore"}.get(path.name, path.name)


def _remove_one(folder: Path) -> None:
    """The first file below a folder, or the folder itself if it is empty."""
    files = [path for path in sorted(folder.rglob("*")) if not path.is_dir()]
    if files:
        files[0].unlink()
    else:
        folder.rmdir()


def _add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
