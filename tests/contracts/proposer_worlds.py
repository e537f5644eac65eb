"""A run without a climb around it for each implementation of Proposer: a real ledger and real trees, judged at once."""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pydantic import SecretStr

from hillclimb.agent.api.ask_tell import AskTellAdapter, Incumbent
from hillclimb.agent.api.runs import CandidateRecord
from hillclimb.agent.git.repository import REGULAR
from hillclimb.agent.git.version import File, Version
from hillclimb.agent.llm.client.endpoint import Endpoint
from hillclimb.agent.llm.client.messages import Message, Reply
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.llm.llm import LlmProposer
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.proposer import NotReady, Proposer, ProposerContext, peek, reads_profile
from hillclimb.agent.proposers.ablation import AblationProposer
from hillclimb.agent.proposers.mixed import MixedProposer
from hillclimb.agent.proposers.submission import Submission, SubmissionProposer
from hillclimb.agent.record.entries import (
    BaselinedEntry,
    JudgedEntry,
    ProfiledEntry,
    ProposedEntry,
    SettledEntry,
)
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.rhythm.rules import RhythmRules
from hillclimb.agent.sweep.retune import RetuneFirst
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import Paused, Plateau, Stop
from hillclimb.harness.knobs.knobs import KNOBS_FILE, Knobs, broken_constraint, parse_knobs, replace_defaults
from hillclimb.harness.records import Confirmation, GateReport, Progress, Reason, Side
from tests.agent.sweep.synthetic import interval, open_ledger
from tests.fakes.clock import LedgerClock
from tests.fakes.judge import SimulatedJudge
from tests.fakes.openai_server import Asked, Turn, answer, fault, openai_server
from tests.fakes.proposer import PlannedProposer
from tests.fakes.ridge import Ridge, write_ridge
from tests.fakes.ridge_judge import RidgeJudge
from tests.fakes.ridge_model import RidgeModel
from tests.fakes.toy import kernel, write_toy

TOY_KNOBS = """\
TILE: {type: log-int, low: 8, high: 64, default: 8, requires: [TILE * UNROLL <= 128]}
UNROLL: {type: choice, choices: [1, 2, 4], default: 1}
TRICK: {type: bool, default: false}
"""


def without_port(told: object) -> str:
    """What was told, without the port of a server, which is another each time."""
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", str(told))


SCALE = "SCALE: {type: float, low: 0.1, high: 10, log: true, default: 1.0, requires: [SCALE * UNROLL <= 4]}\n"
"""Makes a space that cannot be listed; half of its values break the constraint with one of UNROLL's."""

ALPHA = 0.01
AHEAD = 3
"""Proposals that a sweep foresees."""
PATIENCE_SECONDS = 30.0
"""For a model's reply, which comes in milliseconds."""
RULES = RhythmRules(first_sweep_patience=3, sweep_patience=2, edit_patience=3, max_fillers=2)
"""Short blocks, so that every phase comes up."""

Outcome = Proposal | str
"""What came of asking: a proposal, or how the ideas ended, in words."""
Files = Mapping[str, str]


@dataclass(frozen=True)
class Step:
    """One proposal asked for and judged."""

    outcome: Outcome
    incumbent: Files
    """The files that it was proposed on."""
    written: tuple[str, ...]
    """Kinds of the lines that the proposer appended."""
    kept: bool
    importances: dict[str, float]
    """As reckoned afterwards."""


class World:
    """A run: its ledger, the trees of its commits, and how its proposer is made."""

    def __init__(
        self, root: Path, case: Path, judge: SimulatedJudge | RidgeJudge, settings: str = ""
    ) -> None:
        (case / "case.yaml").write_text((case / "case.yaml").read_text() + settings)
        self.case, self.judge = Case(case), judge
        self._root, self.folder = root, root / "run"
        self.ledger = open_ledger(self.folder)
        workspace = self.case.workspace
        paths = (path for path in workspace.rglob("*") if path.is_file())
        files = {path.relative_to(workspace).as_posix(): path.read_text() for path in paths}
        self._base = self.ledger.incumbent
        self.trees: dict[str, Files] = {self._base: files}
        self.background = ProposerContext(
            case=self.case,
            seed=5,
            folder=self.folder,
            files=self.trees.__getitem__,
            clock=LedgerClock(self.folder / "ledger.jsonl"),
            lookahead_count=AHEAD,
        )
        self.make: Callable[[], Proposer] = lambda: SweepProposer(self.case.knobs, 5, AHEAD)
        self.settle: Callable[[], None] = lambda: None
        """Waits until nothing is under way that would change what comes next."""
        self.ending: type[Stop] = Plateau
        """What is raised where there are no more ideas, if anything is."""
        self.answers: list[object] = []
        """Everything that was said to `propose`."""
        gate, noise = GateReport(passed=True), interval(1.0)
        self.ledger.append(
            BaselinedEntry(time=0.0, gate=gate, seconds_per_call=1e-3, pair_sd=1e-3, noise=noise, seconds=1.0)
        )

    @property
    def incumbent(self) -> Files:
        return self.trees[self.ledger.incumbent]

    def ask(self, proposer: Proposer) -> tuple[Outcome, tuple[str, ...]]:
        """What comes next, waiting for it as a climb does, and the kinds of lines that the proposer appended."""
        written: list[str] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._look_inside(proposer)
            before = len(self.lines())
            try:
                said = proposer.propose(self.ledger)
            except self.ending as over:
                return f"{type(over).__name__}: {without_port(over)}", (*written, *self.lines()[before:])
            written += self.lines()[before:]
            self.answers.append(said)
            if not isinstance(said, NotReady):
                return said or "None", tuple(written)
            assert time.monotonic() < deadline, "waited in vain for a proposal"
            time.sleep(min(said.seconds, 0.05))

    def foresee(self, proposer: Proposer) -> Sequence[Proposal]:
        return peek(proposer, self.ledger, AHEAD)

    def begin(self, proposal: Proposal) -> None:
        n, now = len(self.ledger.candidates) + 1, self.background.clock.now()
        self.ledger.append(ProposedEntry(n=n, time=now, proposal=proposal))

    def judge_pending(self) -> bool:
        """Whether the candidate that was begun is kept, as its tree with the values as defaults is judged."""
        candidate = self.ledger.candidates[-1]
        after = apply(candidate.proposal, self.incumbent)
        found = self._confirm(candidate.proposal, after)
        kept, commit = found.reason is None, f"{candidate.n:040x}"
        line = JudgedEntry(
            n=candidate.n,
            time=self.background.clock.now(),
            kept=kept,
            reason=found.reason,
            detail=found.detail,
            gate=found.gate,
            screened=found.speedup.estimate if found.speedup else None,
            speedup=found.speedup if kept else None,
            cumulative=found.cumulative if kept else None,
            seconds_per_call=found.seconds_per_call,
            parent=self.ledger.incumbent,
            commit=commit if kept else None,
        )
        if kept:
            self.trees[commit] = after
        self.ledger.append(line)
        self.ledger.append(SettledEntry(n=candidate.n))
        return kept

    def _confirm(self, proposal: Proposal, after: Files) -> Confirmation:
        trouble = broken_constraint(declared(proposal, self.incumbent), proposal.knobs)
        if trouble:
            refused = GateReport(passed=False, reason=Reason.BAD_KNOBS, detail=trouble)
            return Confirmation(gate=refused, reason=refused.reason, detail=trouble, alpha=ALPHA)
        sides = [self._side(files) for files in (after, self.incumbent, self.trees[self._base])]
        return self.judge.confirm(*sides, ALPHA, ignore)

    def step(self, proposer: Proposer) -> Step:
        """Ask, judge, and reckon."""
        incumbent = self.incumbent
        outcome, written = self.ask(proposer)
        kept = False
        if isinstance(outcome, Proposal):
            self.begin(outcome)
            kept = self.judge_pending()
        self.settle()
        return Step(outcome, incumbent, written, kept, proposer.importances(self.ledger))

    def reopen(self) -> None:
        """Read the ledger anew, as a session that takes the run up."""
        self.ledger = Ledger.open(self.folder / "ledger.jsonl", Disk())

    def lines(self) -> list[str]:
        """The kinds of the ledger's lines."""
        content = (self.folder / "ledger.jsonl").read_text().splitlines()
        return [line.split('"kind":"')[1].split('"')[0] for line in content]

    def contents(self) -> dict[str, str]:
        """Digests of all files of the run and of its case."""
        files = (path for path in sorted(self._root.rglob("*")) if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def win(self, proposal: Proposal) -> None:
        """A candidate of somebody else's, kept."""
        self.begin(proposal)
        assert self.judge_pending(), f"{proposal.idea} was to be kept"

    def _look_inside(self, proposer: Proposer) -> None:
        if reads_profile(proposer, self.ledger) and not self.ledger.is_profiled:
            profile = self.judge.profile(self._side(self.incumbent), ignore)
            now = self.background.clock.now()
            self.ledger.append(ProfiledEntry(time=now, commit=self.ledger.incumbent, profile=profile))

    def _side(self, files: Files) -> Side:
        """The files as a tree on the disk."""
        folder = self._root / "trees" / hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return Side(tree=str(folder))


def ignore(progress: Progress) -> None:
    """Nobody watches."""


def apply(proposal: Proposal, files: Files) -> dict[str, str]:
    """The files with a proposal made, its knob values as defaults."""
    after = dict(files)
    for edit in proposal.edits:
        after.pop(edit.path, None)
        if edit.content is not None:
            after[edit.path] = edit.content
    if proposal.knobs:
        after[KNOBS_FILE] = replace_defaults(after[KNOBS_FILE], proposal.knobs)
    return after


def declared(proposal: Proposal, files: Files) -> Knobs:
    """The knobs that a proposal's values are values of."""
    edits_alone = proposal.model_copy(update={"knobs": {}})
    return parse_knobs(apply(edits_alone, files).get(KNOBS_FILE, ""), Path(KNOBS_FILE))


def toy(root: Path, knobs: str = TOY_KNOBS, settings: str = "") -> World:
    """A world over the toy case."""
    case = write_toy(root)
    (case / "workspace" / KNOBS_FILE).write_text(knobs)
    return World(root, case, SimulatedJudge(), settings)


def sweep(root: Path, stack: ExitStack) -> World:
    """Over a space that is listed, and that a few candidates exhaust."""
    return toy(root)


def endless_sweep(root: Path, stack: ExitStack) -> World:
    """Over a space that cannot be listed, which is TPE's."""
    return toy(root, TOY_KNOBS + SCALE)


def retuned(root: Path, stack: ExitStack) -> World:
    """After an edit that won, when it has steps of its own to try."""
    world = toy(root)
    world.win(edit(1.25))
    world.make = lambda: RetuneFirst(world.case.knobs, 5, SweepProposer(world.case.knobs, 5, AHEAD))
    return world


def ablation(root: Path, stack: ExitStack) -> World:
    """After two wins of knobs and an edit on top of them."""
    world = toy(root)
    for knobs in ({"TILE": 32}, {"UNROLL": 2}):
        world.win(Proposal(author="sweep", idea=str(knobs), knobs=knobs))
    world.win(edit(1.25))
    world.make = lambda: AblationProposer(world.background)
    return world


def bound_ablation(root: Path, stack: ExitStack) -> World:
    """After a win that a later one forbids to be taken back: TILE is 64 only since UNROLL is no longer 4."""
    world = toy(root, TOY_KNOBS.replace("[1, 2, 4], default: 1", "[1, 2, 4], default: 4"))
    world.win(Proposal(author="sweep", idea="UNROLL=1", knobs={"UNROLL": 1}))
    world.win(Proposal(author="sweep", idea="TILE=64", knobs={"TILE": 64}))
    world.win(edit(1.25))
    world.make = lambda: AblationProposer(world.background)
    return world


def hand(root: Path, stack: ExitStack, knobs: Sequence[str] = ("TILE=32",)) -> World:
    """With another kernel and values of knobs as they are typed."""
    world = toy(root)
    mine = version({**world.incumbent, "kernel.py": kernel(1.5)})
    brought = Submission("mine", mine, knobs, author="agent")
    world.make = lambda: SubmissionProposer(
        brought, lambda commit: version(world.trees[commit]), candidates_before=0
    )
    world.ending = Paused
    return world


def bound_hand(root: Path, stack: ExitStack) -> World:
    """With values that a constraint forbids."""
    return hand(root, stack, ("TILE=64", "UNROLL=4"))


def ask_tell(root: Path, stack: ExitStack) -> World:
    """Over a proposer that knows of the run what it was told."""
    world = toy(root)
    world.make = lambda: AskTellAdapter(Doubling(), world.background)
    return world


def planned(root: Path, stack: ExitStack) -> World:
    """The fake of most other tests, with those of its proposals that could be a real proposer's."""
    world = toy(root)
    plan = ("slower", "tune", "improve", "near", "ragged", "trick", "both")
    world.make = lambda: PlannedProposer(5, plan)
    return world


def ridge_model(root: Path, stack: ExitStack) -> World:
    """The model that half knows a landscape."""
    ridge = Ridge("balanced", 3)
    world = World(root, write_ridge(root), RidgeJudge(ridge))
    world.make = lambda: RidgeModel(world.background, ridge)
    return world


def llm(root: Path, stack: ExitStack) -> World:
    """One call at a time, and no more once the quota is used up."""
    return asking(toy(root, settings="llm: {in_flight: 1}\n"), stack, replies(quota=9), mixed=False)


def bound_llm(root: Path, stack: ExitStack) -> World:
    """Whose first reply has values that a constraint forbids."""
    script = [answer("IDEA: both\nFAMILY: number\nKNOB: TILE=64\nKNOB: UNROLL=4\n"), fault("quota")]
    return asking(toy(root, settings="llm: {in_flight: 1}\n"), stack, script, mixed=False)


def llm_of_three(root: Path, stack: ExitStack) -> World:
    """Three calls at a time whose replies win nothing, so that they wait and stay as they are."""
    numbers = count(1)

    def lose(asked: Asked) -> Turn:
        number = next(numbers)
        return answer(whole_kernel(number, 0.5, "KNOB: TILE=16\n" if number % 3 == 0 else ""))

    return asking(toy(root, settings="llm: {in_flight: 3}\n"), stack, lose, mixed=False)


def llm_at_work(root: Path, stack: ExitStack) -> World:
    """Two calls, to which no reply comes in a test's time."""
    script = [answer("too late", delay=60)]
    return asking(toy(root, settings="llm: {in_flight: 2}\n"), stack, script, mixed=False)


def mixed(root: Path, stack: ExitStack) -> World:
    """Sweep, model and re-ablation, as long as the model answers."""
    return asking(toy(root, settings="llm: {in_flight: 1}\n"), stack, replies(), mixed=True)


def mixed_to_its_end(root: Path, stack: ExitStack) -> World:
    """The same with a model whose quota is used up."""
    return asking(toy(root, settings="llm: {in_flight: 1}\n"), stack, replies(quota=4), mixed=True)


WORLDS: dict[str, Callable[[Path, ExitStack], World]] = {
    made.__name__: made
    for made in (
        sweep,
        endless_sweep,
        retuned,
        llm,
        llm_of_three,
        mixed,
        mixed_to_its_end,
        ablation,
        hand,
        ask_tell,
        planned,
        ridge_model,
    )
}


def asking(world: World, stack: ExitStack, script: object, *, mixed: bool) -> World:
    """With a model behind a server on loopback."""
    server = stack.enter_context(openai_server(script))  # type: ignore[arg-type]
    settings = ModelSettings(model="fake-1", base_url=server.base_url, api_key=SecretStr("sk-contract"))
    under_way: list[Future[Reply]] = []

    def make() -> Proposer:
        endpoint = Watched(settings, under_way)
        stack.callback(endpoint.close)
        model = LlmProposer(world.background, endpoint, settings)
        if not mixed:
            return model
        swept = SweepProposer(world.case.knobs, 5, AHEAD)
        return MixedProposer(world.background, swept, model, AblationProposer(world.background), RULES)

    def settle() -> None:
        assert not wait(under_way, PATIENCE_SECONDS).not_done, "waited in vain for a reply"

    world.make, world.settle = make, settle
    return world


class Watched(Endpoint):
    """An endpoint that tells which calls it was given."""

    def __init__(self, settings: ModelSettings, given: list[Future[Reply]]) -> None:
        super().__init__(settings, random.Random(5))
        self._given = given

    def submit(self, messages: Sequence[Message]) -> Future[Reply]:
        self._given.append(super().submit(messages))
        return self._given[-1]


def replies(quota: int = 10**6) -> Callable[[Asked], Turn]:
    """A model's: better and worse kernels, a knob, and one outside its domain; the call `quota` ends the asking."""
    numbers = count(1)

    def reply(asked: Asked) -> Turn:
        number = next(numbers)
        if number >= quota:
            return fault("quota")
        if number % 5 == 2:
            return answer(f"IDEA: odd tile {number}\nFAMILY: number\nKNOB: TILE=7\n")
        quality = round((1.1 if number % 2 else 0.9) ** number, 4)
        return answer(whole_kernel(number, quality, "KNOB: TILE=16\n" if number % 5 == 4 else ""))

    return reply


def whole_kernel(number: int, quality: float, knob: str = "") -> str:
    """A reply with a kernel.py that no other number has."""
    head = f"IDEA: kernel {number}\nFAMILY: number\nNEXT: memory: keep it all\n{knob}\n"
    return f"{head}FILE: kernel.py\n```python\n{kernel(quality)}NUMBER = {number}\n```\n"


def edit(quality: float) -> Proposal:
    edits = (Edit(path="kernel.py", content=kernel(quality)),)
    return Proposal(author="llm", idea=f"quality {quality}", edits=edits)


def version(files: Files) -> Version:
    return {path: File(REGULAR, text.encode()) for path, text in files.items()}


class Doubling:
    """Goes through values of a knob by the number of verdicts that it was told; says nothing where told out of turn."""

    VALUES = (16, 64, 32, 8)

    def __init__(self) -> None:
        self.told: list[int] = []

    def ask(self, incumbent: Incumbent) -> Proposal | None:
        done = len(self.told)
        if self.told != list(range(1, done + 1)) or done >= len(self.VALUES):
            return None
        value = self.VALUES[done]
        if incumbent.knobs["TILE"] == value:
            return Proposal(author="agent", idea="no trick", edits=(Edit(path="more.py", content="x = 1\n"),))
        return Proposal(author="agent", idea=f"TILE={value}", knobs={"TILE": value})

    def tell(self, candidate: CandidateRecord) -> None:
        assert candidate.verdict is not None
        self.told.append(candidate.n)
