"""A process that is handed torch tensors, as the judge holds it: led in, timed, lied to, sealed. All of it is real."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from hillclimb.harness.channel.layout import CallSignature, lay_out
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.conversation import END_SECONDS
from hillclimb.harness.duel.process.launch_spec import (
    LaunchSpec,
    ProcessLimits,
    SegmentPlan,
    Timing,
)
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason, Side
from hillclimb.harness.sandbox.confinement import Confinement
from hillclimb.harness.sandbox.process import SandboxedProcess
from hillclimb.harness.sandbox.rungs.choose import Rung
from tests.open_descriptors import nothing_left_open

LIMITS = ProcessLimits(prepare_seconds=60, call_seconds=1, memory_bytes=2 << 30)
HURRIED = ProcessLimits(prepare_seconds=1, call_seconds=0.3, memory_bytes=2 << 30)

NUMBERED = """
made = 0

def run(x, y):
    global made
    made += 1
    y.fill_(made)
"""

HEAD = """
import os, sys, time
import torch
runner, wire = sys.modules["__main__"], sys.modules["hillclimb.harness.channel.wire"]
wait = 0.0

def say(text):
    os.write(int(sys.argv[1]), text)

def run(x, y):
    time.sleep(wait)
    torch.add(x, 1, out=y)

"""
"""An honest kernel, and the means of those that are not."""


@dataclass
class Start:
    """Starts a process for a kernel's source; all end with the test."""

    rung: Rung
    folder: Path
    started: list[CandidateProcess] = field(default_factory=list)

    def __call__(
        self,
        source: str,
        limits: ProcessLimits = LIMITS,
        dress: LaunchSpec | None = None,
        kind: type[CandidateProcess] = CandidateProcess,
    ) -> CandidateProcess:
        workspace = self.folder / f"workspace-{len(self.started)}"
        workspace.mkdir()
        (workspace / "kernel.py").write_text(source)
        side = Side(tree=str(workspace))
        process = kind(self.rung, side, "kernel.py:run", dress or LaunchSpec(tensors="torch"), limits)
        self.started.append(process)
        return process

    def loaded(
        self, source: str, limits: ProcessLimits = LIMITS, launch: Literal["graph", "eager"] = "graph"
    ) -> CandidateProcess:
        process = self(source, limits, LaunchSpec(tensors="torch", launch=launch))
        process.await_loaded()
        return process


@pytest.fixture
def start(rung: Rung, tmp_path: Path) -> Iterator[Start]:
    tmp_path.chmod(0o755)
    starting = Start(rung, tmp_path)
    yield starting
    for process in starting.started:
        process.close()


def make_arena(slots: int, size: int = 64) -> Arena:
    """Slot s holds s in every element of its input; outputs are poisoned."""
    arena = Arena(lay_out([("x", (size,), "float32")], [("y", (size,), "float32")], slots))
    for slot in range(slots):
        arena.fill(slot, {"x": torch.full((size,), float(slot))})
    arena.poison(range(slots))
    return arena


def written(arena: Arena) -> list[float]:
    """The first element of every slot's output."""
    return [float(arena.outputs(slot)["y"][0]) for slot in range(arena.layout.slots)]


@pytest.mark.slow(3)
@pytest.mark.parametrize("launch", ["graph", "eager"])
def test_the_lead_in_and_then_the_timed_slots_are_called_in_their_order(
    start: Start, launch: Literal["graph", "eager"]
) -> None:
    process, arena = start.loaded(NUMBERED, launch=launch), make_arena(8)
    process.time(arena, SegmentPlan(5, lead_in_calls=2, backlog_calls=1))
    assert written(arena) == [1, 2, 3, 4, 5, 6, 7, 8]
    process.time(arena, SegmentPlan(5, lead_in_calls=3))
    assert written(arena) == [9, 10, 11, 12, 13, 14, 15, 16]
    process.time(arena, SegmentPlan(2))
    assert written(arena) == [17, 18, 11, 12, 13, 14, 15, 16]
    assert arena.has_intact_guards()


def test_a_turn_is_made_of_runs() -> None:
    turn = SegmentPlan(5, lead_in_calls=2, backlog_calls=1)
    assert (turn.slots, turn.timed, turn.runs()) == (range(8), range(3, 8), [(0, 2), (2, 1), (3, 5)])
    assert (SegmentPlan(5).slots, SegmentPlan(5).timed, SegmentPlan(5).runs()) == (
        range(5),
        range(5),
        [(0, 5)],
    )


@pytest.mark.slow(3)
def test_three_clocks_say_what_each_has_seen(start: Start) -> None:
    process, arena = start.loaded(HEAD + "wait = 0.01\n"), make_arena(12)
    timing = process.time(arena, SegmentPlan(4, lead_in_calls=4, backlog_calls=4))
    assert 0.04 <= timing.event_seconds <= timing.wall_seconds - 0.04, (
        "the feeding calls are the judge's clock's alone"
    )
    assert timing.wall_seconds + 0.04 <= timing.wall_seconds_with_lead_in < 0.6
    alone = process.time(arena, SegmentPlan(8))
    assert alone.wall_seconds == alone.wall_seconds_with_lead_in == alone.event_seconds >= 0.08


def test_what_is_done_between_lead_in_and_word_to_go_is_not_timed_and_the_proof_is(start: Start) -> None:
    process, arena = start.loaded(HEAD + "wait = 0.01\n"), make_arena(6)
    seen: list[list[float]] = []

    def look() -> None:
        time.sleep(0.1)
        seen.append(written(arena))

    def fill() -> None:
        look()
        for slot in range(2, 6):
            arena.fill(slot, {"x": torch.full((64,), 100.0 + slot)})

    timing = process.time(arena, SegmentPlan(4, lead_in_calls=2), read_outputs=look, before_start=fill)
    assert seen[0][:2] == [1, 2]
    assert all(math.isnan(value) for value in seen[0][2:]), "it waits for the word to go"
    assert seen[1] == [1, 2, 103, 104, 105, 106]
    assert timing.wall_seconds < 0.12 + timing.event_seconds
    assert timing.wall_seconds_with_lead_in >= timing.wall_seconds + 0.2


def test_what_is_captured_ahead_is_not_captured_again(start: Start) -> None:
    process, arena = start.loaded(COUNTED, launch="graph"), make_arena(6)
    process.capture(arena, SegmentPlan(3, lead_in_calls=2, backlog_calls=1))
    process.capture(arena, SegmentPlan(4))
    process.time(arena, SegmentPlan(3, lead_in_calls=2, backlog_calls=1))
    assert written(arena)[0] == 1


@pytest.mark.clock
@pytest.mark.slow(6)
def test_two_processes_capture_at_the_same_time(start: Start) -> None:
    slow = "runner.Runner.capture = lambda self, **fields: time.sleep(2) or {}\n"
    both, arena = [start.loaded(HEAD + slow, launch="graph") for _ in range(2)], make_arena(6)
    began = time.perf_counter()
    for process in both:
        process.begin_capture(arena, SegmentPlan(4, lead_in_calls=2))
    for process in both:
        process.finish_capture()
        process.finish_capture()
    assert 2 <= time.perf_counter() - began < 3.9


def test_a_process_can_be_closed_again(start: Start) -> None:
    process = start.loaded(HEAD)
    assert not process.is_closed
    for _ in range(2):
        process.close()
        assert process.is_closed
    assert not Path(f"/proc/{process.pid}").exists()


def test_who_speaks_of_tuning_itself_is_known(start: Start) -> None:
    assert start(HEAD + "import triton\ntune = triton.autotune\n").has_autotuner
    assert not start(HEAD).has_autotuner


def test_a_call_is_its_share_of_what_was_timed() -> None:
    assert Timing(wall_seconds=8.0, wall_seconds_with_lead_in=10.0, event_seconds=6.0).per_call(
        SegmentPlan(8, lead_in_calls=2)
    ) == Timing(1.0, 1.0, 0.75)
    fed = Timing(wall_seconds=10.0, wall_seconds_with_lead_in=12.0, event_seconds=6.0).per_call(
        SegmentPlan(8, lead_in_calls=2, backlog_calls=2)
    )
    assert fed == Timing(1.0, 1.0, 0.75)


COUNTED = (
    HEAD
    + """
captured, capture = [], runner.Runner.capture

def noted(self, **fields):
    captured.append(fields)
    return capture(self, **fields)

runner.Runner.capture = noted

def run(x, y):
    y.fill_(len(captured))
"""
)


@pytest.mark.parametrize(("launch", "each"), [("graph", 1), ("eager", 0)])
def test_launches_are_captured_once_for_each_shape_of_a_segment(
    start: Start, launch: Literal["graph", "eager"], each: int
) -> None:
    process, arena, other = start.loaded(COUNTED, launch=launch), make_arena(6), make_arena(6)
    seen = []
    turn, single = SegmentPlan(3, lead_in_calls=2, backlog_calls=1), SegmentPlan(1, lead_in_calls=1)
    for taken, run in ((arena, turn), (arena, turn), (arena, single), (other, turn)):
        process.time(taken, run)
        seen.append(written(taken)[0])
    process.unmap(arena)
    process.time(arena, turn)
    assert [*seen, written(arena)[0]] == [each, each, 2 * each, 3 * each, 4 * each]


FORGED = {
    "negative": "-5",
    "zero": "0",
    "huge": "1e15",
    "beyond floats": "10 ** 400",
    "text": "'5'",
    "nothing": "None",
    "list": "[5]",
    "truth": "True",
    "no number": "float('nan')",
    "infinity": "float('inf')",
}


@pytest.mark.parametrize("told", FORGED.values(), ids=FORGED)
def test_a_told_time_that_is_none_breaks_the_protocol(start: Start, told: str) -> None:
    source = HEAD + f"runner.Runner.go = lambda self, first, count, fed: {{'ns': {told}}}\n"
    with pytest.raises(CandidateFault, match="as its own time") as caught:
        start.loaded(source).time(make_arena(4), SegmentPlan(2, lead_in_calls=2))
    assert caught.value.reason is Reason.BROKE_PROTOCOL


@pytest.mark.parametrize("packet", ["b'soon'", "b'[1]'", "b'3'", "b'null'", "b'\\xff'", "b'{' * 9"])
def test_a_packet_that_is_no_object_is_told_at_once(start: Start, packet: str) -> None:
    """Though the process lives on and says nothing more."""
    source = (
        HEAD + f"lead = runner.Runner.lead\ndef odd(self, **fields):\n    say({packet})\n    time.sleep(60)\n"
    )
    source += "runner.Runner.lead = odd\n"
    process = start.loaded(source)
    started = time.monotonic()
    with pytest.raises(CandidateFault, match="not a JSON object") as caught:
        process.time(make_arena(4), SegmentPlan(2, lead_in_calls=2))
    assert caught.value.reason is Reason.BROKE_PROTOCOL
    assert time.monotonic() - started < END_SECONDS / 2


def test_two_answers_for_one_are_one_too_many(start: Start) -> None:
    source = HEAD + "wait = 0.001\nwire.spin = lambda end: None\nlead = runner.Runner.lead\n"
    source += "def twice(self, **fields):\n    say(b'{\"ok\": true}')\n    say(b'{\"ok\": true}')\n"
    source += "    return lead(self, **fields)\nrunner.Runner.lead = twice\n"
    arena = make_arena(4)

    def until_it_has_said_both() -> None:
        while written(arena)[0] != 1:
            time.sleep(0.001)

    with pytest.raises(CandidateFault, match="without being asked") as caught:
        start.loaded(source).time(arena, SegmentPlan(2, lead_in_calls=2), before_start=until_it_has_said_both)
    assert caught.value.reason is Reason.BROKE_PROTOCOL


def test_an_answer_before_its_time_leaves_the_timed_slots_unwritten(start: Start) -> None:
    """Ahead by one answer, it is told to go while it still leads in, and stopped before it went."""
    source = HEAD + "wait = 0.3\nlead = runner.Runner.lead\n"
    source += 'def early(self, **fields):\n    say(b\'{"ok": true, "ns": 1}\')\n'
    source += "    return lead(self, **fields)\nrunner.Runner.lead = early\n"
    process, arena = start.loaded(source), make_arena(6)
    process.time(arena, SegmentPlan(4, lead_in_calls=2))
    assert arena.first_unwritten_slot(range(2, 6)) == 2


def test_an_answer_kept_for_later_is_found_at_the_next_question(start: Start) -> None:
    source = HEAD + "go = runner.Runner.go\ndef spare(self, **fields):\n    answer = go(self, **fields)\n"
    source += '    say(b\'{"ok": true, "ns": 1}\')\n    say(b\'{"ok": true, "ns": 1}\')\n    return answer\n'
    source += "runner.Runner.go = spare\n"
    process, arena = start.loaded(source), make_arena(4)
    assert process.time(arena, SegmentPlan(2, lead_in_calls=2)).event_seconds == 1e-9
    with pytest.raises(CandidateFault, match="without being asked"):
        process.time(arena, SegmentPlan(2, lead_in_calls=2))


ILL = {
    "hangs between lead-in and word to go": (
        Reason.HUNG,
        "running 1 timed calls",
        "wire.spin = lambda end: time.sleep(60)\n",
    ),
    "leaves there": (Reason.EXITED, "status 7", "wire.spin = lambda end: os._exit(7)\n"),
    "crashes there": (Reason.CRASHED, "SIGABRT", "wire.spin = lambda end: os.abort()\n"),
    "closes the channel there": (Reason.EXITED, "status 0", "wire.spin = lambda end: end.close()\n"),
    "hangs in the lead-in": (
        Reason.HUNG,
        "leading in",
        "def run(x, y):\n    time.sleep(60)\n",
    ),
    "hangs when timed": (
        Reason.HUNG,
        "running 1 timed calls",
        "runner.Runner.go = lambda self, first, count, fed: time.sleep(60)\n",
    ),
    "raises in the lead-in": (Reason.RAISED, "no lead", "def run(x, y):\n    raise ValueError('no lead')\n"),
    "raises when timed": (
        Reason.RAISED,
        "only in practice",
        "def run(x, y):\n    if x[0] == 2:\n        raise ValueError('only in practice')\n",
    ),
    "hangs while captured": (
        Reason.HUNG,
        "capturing its launches in a CUDA graph",
        "runner.Runner.capture = lambda self, **fields: time.sleep(60)\n",
    ),
    "raises while captured": (
        Reason.RAISED,
        "cannot be captured",
        "def capture(self, **fields):\n    raise RuntimeError('cannot be captured')\n"
        "runner.Runner.capture = capture\n",
    ),
    "answers text for an answer": (
        Reason.BROKE_PROTOCOL,
        "not a JSON object",
        "wire.spin = lambda end: say(b'soon')\n",
    ),
    "runs out of the GPU's memory": (
        Reason.OUT_OF_MEMORY,
        "tried to allocate",
        "def run(x, y):\n    raise torch.OutOfMemoryError('tried to allocate')\n",
    ),
    "runs out of it where a graph begins": (
        Reason.OUT_OF_MEMORY,
        "CUDA error",
        "def run(x, y):\n    raise torch.AcceleratorError('CUDA error: out of memory')\n",
    ),
    "runs out of it where Triton loads a kernel": (
        Reason.OUT_OF_MEMORY,
        "Triton Error",
        "def run(x, y):\n    raise RuntimeError('Triton Error [CUDA]: out of memory')\n",
    ),
    "raises what cannot be told": (
        Reason.RAISED,
        "Untold",
        "class Untold(Exception):\n    def __str__(self):\n        raise ValueError\n"
        "def run(x, y):\n    raise Untold\n",
    ),
    "starts a process": (Reason.STARTED_PROCESS, "seccomp", "wire.spin = lambda end: os.fork()\n"),
}


@pytest.mark.parametrize("name", ILL)
def test_what_goes_wrong_around_the_word_to_go_is_named(start: Start, name: str) -> None:
    reason, says, source = ILL[name]
    with pytest.raises(CandidateFault, match=says) as caught:
        start.loaded(HEAD + source, HURRIED).time(make_arena(3), SegmentPlan(1, lead_in_calls=2))
    assert caught.value.reason is reason, caught.value.detail


def test_an_arena_that_was_forgotten_is_mapped_again(start: Start) -> None:
    process, arena, other = start.loaded(HEAD), make_arena(6), make_arena(3)
    process.time(arena, SegmentPlan(4, lead_in_calls=2))
    process.time(other, SegmentPlan(2, lead_in_calls=1))
    process.unmap(arena)
    process.unmap(arena)
    arena.poison(range(6))
    other.poison(range(3))
    process.time(other, SegmentPlan(2, lead_in_calls=1))
    assert (written(other), arena.first_unwritten_slot(range(6))) == ([1, 2, 3], 0)
    process.time(arena, SegmentPlan(4, lead_in_calls=2))
    assert written(arena) == [1, 2, 3, 4, 5, 6]


def test_an_arena_never_seen_is_nothing_to_forget(start: Start) -> None:
    process = start.loaded(HEAD)
    process.unmap(make_arena(2))
    process.call(make_arena(2), 0, 2)


def test_what_was_forgotten_is_held_no_longer(start: Start) -> None:
    process, arena = start.loaded(HEAD), make_arena(4, size=4 << 20)
    before = process.resident_bytes()
    process.call(arena, 0, 4)
    mapped = process.resident_bytes()
    assert mapped - before > arena.layout.nbytes // 2
    process.unmap(arena)
    assert process.resident_bytes() < mapped - arena.layout.nbytes // 2
    arena.close()


class Sealed(CandidateProcess):
    """Compiles without a GPU, and is sealed afterwards like one that has it."""

    def seal(self) -> None:
        self._spec = replace(self._spec, tensors="cuda")
        super().seal()

    def compile_again(self) -> None:
        """What a kernel would do that compiles something after its preparation."""
        self._thaw_and_send({"op": "compile", "problems": {"main": asdict(PROBLEMS["main"])}})
        self._conversation.answer(20, "compiling again")


PROBLEMS = {"main": CallSignature([("x", (64,), "float32"), ("y", (64,), "float32")])}
META = LaunchSpec(tensors="meta", architecture=90)

COPY = """
import os, subprocess, sys, time
import torch, triton
import triton.language as tl

@triton.jit
def copy(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))

made = 32

def run(x, y):
    global made
    made *= 2
    copy[(1,)](x, y, BLOCK=made)

"""
"""Compiles another kernel at every call."""


@pytest.fixture
def prepared(start: Start) -> Callable[[str], Sealed]:
    """Makes a process that has compiled once."""

    def prepare(source: str) -> Sealed:
        process = start(source, kind=Sealed, dress=META)
        assert isinstance(process, Sealed)
        process.begin_precompile(PROBLEMS)
        told = process.finish_precompile()
        assert told["skipped"] == {}
        return process

    return prepare


def filters(process: CandidateProcess) -> int:
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition("\nSeccomp_filters:")[2].split()[0])


def test_a_compiler_is_not_sealed_and_kernels_on_the_host_are_from_the_start(start: Start) -> None:
    host, meta = start.loaded(HEAD), start(COPY, dress=META)
    meta.await_loaded()
    before = filters(host), filters(meta)
    for process in (host, meta):
        process.seal()
    assert (filters(host), filters(meta)) == before
    assert before[0] == before[1] + 1


def test_the_seal_ends_all_compiling(prepared: Callable[[str], Sealed]) -> None:
    process = prepared(COPY)
    process.seal()
    with pytest.raises(CandidateFault) as caught:
        process.compile_again()
    assert caught.value.reason is Reason.STARTED_PROCESS


COMPANY = {
    "a child": "if os.fork() == 0: time.sleep(60)\n",
    "a program": "subprocess.Popen(['sleep', '60'])\n",
    "a child of a child": "if os.fork() == 0:\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)\nos.wait()\n",
}


@pytest.mark.parametrize("source", COMPANY.values(), ids=COMPANY)
def test_company_kept_beyond_the_seal_is_found(prepared: Callable[[str], Sealed], source: str) -> None:
    process = prepared(COPY + source)
    with pytest.raises(CandidateFault, match="1 processes of its own live beside it") as caught:
        process.seal()
    assert caught.value.reason is Reason.STARTED_PROCESS


def test_a_child_that_ended_in_time_is_no_company(prepared: Callable[[str], Sealed]) -> None:
    prepared(COPY + "subprocess.run(['true'])\nif os.fork() == 0: os._exit(0)\ntime.sleep(0.05)\n").seal()


def test_company_is_found_whenever_it_is_looked_for(prepared: Callable[[str], Sealed]) -> None:
    prepared(COPY).require_alone()
    with pytest.raises(CandidateFault, match="1 processes of its own live beside it") as caught:
        prepared(COPY + COMPANY["a program"]).require_alone()
    assert caught.value.reason is Reason.STARTED_PROCESS


BOMB = "for _ in range({count}):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\ntime.sleep(60)\n"


@pytest.mark.slow(4, only=["import"])
@pytest.mark.parametrize(
    "source", [BOMB, f"def run(x, y):\n{textwrap.indent(BOMB, '    ')}"], ids=["import", "call"]
)
def test_a_crowd_is_not_waited_for(start: Start, source: str) -> None:
    """A fork bomb before the seal would have the machine for as long as compiling may take."""
    process = start(COPY + source.format(count=80), dress=META)
    process.begin_precompile(PROBLEMS)
    began = time.perf_counter()
    with pytest.raises(
        CandidateFault, match="processes of its own live beside it while it prepares"
    ) as caught:
        process.finish_precompile()
    assert caught.value.reason is Reason.STARTED_PROCESS
    assert time.perf_counter() - began < 20


def test_a_few_helpers_are_no_crowd(start: Start) -> None:
    helpers = BOMB.format(count=20).replace("60", "1") + "time.sleep(0.5)\n"
    process = start(COPY + helpers, dress=META)
    process.begin_precompile(PROBLEMS)
    process.finish_precompile()


UNSEALED = {
    "says so and is not": (Reason.BROKE_PROTOCOL, "which it is not", "lambda self, **fields: {}"),
    "raises": (Reason.RAISED, "never", "lambda self, **fields: never"),
    "says nothing": (Reason.HUNG, "being sealed", "lambda self, **fields: time.sleep(60)"),
    "leaves": (Reason.EXITED, "status 0", "lambda self, **fields: os._exit(0)"),
}


@pytest.mark.parametrize("name", UNSEALED)
def test_the_seal_asks_nothing_inside(prepared: Callable[[str], Sealed], name: str) -> None:
    process = prepared(COPY + f"sys.modules['__main__'].Runner.seal = {UNSEALED[name][2]}\n")
    process.seal()
    with pytest.raises(CandidateFault) as caught:
        process.compile_again()
    assert caught.value.reason is Reason.STARTED_PROCESS


@pytest.mark.parametrize("name", UNSEALED)
def test_where_the_border_cannot_seal_the_inside_is_seen_and_not_believed(
    prepared: Callable[[str], Sealed], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Linux 5.5."""
    reason, says, seal = UNSEALED[name]
    process = prepared(COPY + f"sys.modules['__main__'].Runner.seal = {seal}\n")
    monkeypatch.setattr(process._confined, "seal", lambda: False)
    with pytest.raises(CandidateFault, match=says) as caught:
        process.seal()
    assert caught.value.reason is reason


def test_where_the_border_cannot_seal_the_process_seals_itself(
    prepared: Callable[[str], Sealed], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = prepared(COPY)
    monkeypatch.setattr(process._confined, "seal", lambda: False)
    process.seal()
    with pytest.raises(CandidateFault) as caught:
        process.compile_again()
    assert caught.value.reason is Reason.STARTED_PROCESS


SQUARE = """
import triton
import triton.language as tl


@triton.jit
def square(x, y):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tile = tl.load(x + at)
    tl.store(y + at, tl.dot(tile, tile))


def run(x, y):
    square[(1,)](x, y)
"""


@pytest.mark.slow(3)
def test_interpreted_kernels_compute_with_bfloat16(start: Start) -> None:
    """Triton's interpreter by itself multiplies the bits."""
    interpreted = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = start(
        SQUARE, dress=LaunchSpec(tensors="torch", preload=("torch", "triton"), environment=interpreted)
    )
    process.await_loaded()
    tile = torch.randn(16, 16).bfloat16()
    arena = Arena(lay_out([("x", (16, 16), "bfloat16")], [("y", (16, 16), "float32")], 1))
    arena.fill(0, {"x": tile})
    process.call(arena, 0, 1)
    assert torch.allclose(arena.outputs(0)["y"], tile.float() @ tile.float(), atol=1e-5)


def test_running_on_is_charged_and_refused_call_after_call(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, arena = start.loaded(HEAD), make_arena(1)
    told: list[float] = []

    def call(late: float) -> float:
        told[:] = [1.0, 1.0 + late]
        return process.call(arena, 0, 1)

    with monkeypatch.context() as patched:
        patched.setattr(process._confined, "run_seconds", lambda: told.pop(0))
        for late in (50.0, 60.0, 0.0, 70.0, 80.0, 0.001, 90.0, 100.0):
            assert late <= call(late) < late + LIMITS.call_seconds
        with pytest.raises(CandidateFault, match=r"for 50000\.0 ms .* 3 calls in a row") as caught:
            call(50.0)
    assert caught.value.reason is Reason.LEFT_WORK_RUNNING


def test_the_wait_for_one_that_runs_on_is_charged(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process, arena = start.loaded(HEAD), make_arena(1)
    freeze = process._confined.freeze

    def freeze_slowly() -> None:
        time.sleep(0.5)
        freeze()

    for late, waited in ((0.0, 0.0), (0.001, 0.5)):
        told = [1.0, 1.0 + late]
        with monkeypatch.context() as patched:
            patched.setattr(process._confined, "freeze", freeze_slowly)
            patched.setattr(process._confined, "run_seconds", lambda told=told: told.pop(0))
            begun = time.perf_counter()
            charged = process.call(arena, 0, 1)
            passed = time.perf_counter() - begun
        assert waited <= charged <= passed - 0.5 + waited


def test_a_start_that_fails_leaves_nothing(rung: Rung, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "kernel.py").write_text("def run(x, y):\n    y.copy_(x)\n")

    class Stillborn:
        """Everything that is born there has ended already."""

        name = rung.name

        def spawn(self, command: Sequence[str], confinement: Confinement) -> SandboxedProcess:
            born = rung.spawn(["/bin/true"], confinement)
            born.wait(10)
            return born

    with nothing_left_open():
        for _ in range(3):
            with pytest.raises(CandidateFault):
                CandidateProcess(Stillborn(), Side(tree=str(tmp_path)), "kernel.py:run", LaunchSpec(), LIMITS)
