"""The surface openai_http: two servers of a workspace's backend, each in a sandbox, asked in turns by the judge."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.metrics import SERVED_METRICS, Metric
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.process.conversation import exit_fault
from hillclimb.harness.duel.process.launch_spec import thread_variables
from hillclimb.harness.engagement.engagement import chosen_ops, require_engaged
from hillclimb.harness.engagement.kernel_manifest import ChosenOps
from hillclimb.harness.errors import CandidateFault, CaseError, IncumbentFault
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Block, Bucket, Reason, SegmentMetric, Side
from hillclimb.harness.sandbox.rungs.choose import Rung
from hillclimb.harness.serving.confined.confined_server import ConfinedServer, serving_spec
from hillclimb.harness.surfaces.openai_http.client import AnsweredRequest, ServerAddress, ask
from hillclimb.harness.surfaces.openai_http.device_memory import DeviceMemory
from hillclimb.harness.surfaces.openai_http.residual_work import ResidualWork
from hillclimb.harness.surfaces.openai_http.served_parity import ServedParity
from hillclimb.harness.surfaces.surface import CheckedSide

END_SECONDS = 0.5
"""For a server whose connection failed to be seen to have ended."""

WATCHED_SLOWNESS = 20.0
"""By how much longer an answer may take while all calls are counted: Python took 10 times as long."""

LEAD_IN_TOKENS = 2
"""Of the answer to a request before each segment, which is not timed."""

UNTIMED_SEGMENTS = 2
"""Of each suite, that a server answers before it is timed: what it compiles at a repetition is compiled then."""

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class ServedSegment:
    """What one server answered in a segment."""

    answers: Sequence[AnsweredRequest]
    peak_bytes: int
    device_bytes: int = 0

    @property
    def seconds_per_token(self) -> float:
        """From the first request to the last token."""
        began, ended = min(one.sent for one in self.answers), max(one.ended for one in self.answers)
        return (ended - began) / sum(len(one.tokens) for one in self.answers)

    @property
    def metrics(self) -> dict[str, float]:
        """By the names of SERVED_METRICS."""
        ttfts, latencies = ([getattr(one, name) for one in self.answers] for name in ("ttft", "latency"))
        return {
            "tokens_per_second": 1 / self.seconds_per_token,
            "ttft": statistics.median(ttfts),
            "ttft_p99": percentile(ttfts, 0.99),
            "tpot": statistics.median(one.tpot for one in self.answers),
            "latency": statistics.median(latencies),
            "latency_p99": percentile(latencies, 0.99),
            "memory": (self.peak_bytes + self.device_bytes) / 2**20,
        }


class OpenAIHttp:
    """Implements hillclimb.harness.surfaces.surface.Surface."""

    metrics: Mapping[str, Metric] = SERVED_METRICS

    def __init__(
        self, case: Case, rung: Rung, device: Device, secret: random.Random, parity: ServedParity
    ) -> None:
        """Raises CaseError for suites that no server can answer, and an objective that can be had for nothing."""
        _require_room(case)
        _require_whole_answers(case)
        self.case, self.secret, self.parity = case, secret, parity
        self._rung, self._device = rung, device
        self._residual = ResidualWork(device)
        self.pair_blocks = case.settings.duel.pair_blocks

    def check(self, side: Side, suites: Sequence[str]) -> CheckedSide:
        with self._start(side) as server:
            server.await_ready()
            worst = max(self._share(server, suite) for suite in suites)
        ops = chosen_ops(side)
        return CheckedSide(worst, self._engaged(side, ops) if ops else ())

    def _engaged(self, side: Side, ops: ChosenOps) -> tuple[Bucket, ...]:
        """What a server of its own, which is watched, runs while it answers the objective's suite."""
        with self._start(side, is_watched=True) as server:
            server.await_ready()
            with server.listing(list(ops.kernels)) as rows:
                self._share(server, self.case.settings.objective.suite, WATCHED_SLOWNESS)
        return require_engaged(side, rows)

    def _share(self, server: ConfinedServer, suite: str, slowness: float = 1) -> float:
        return self.parity.share(self.ask_all(server, self.draw_prompts(suite), suite, slowness).answers)

    @contextmanager
    def open_pair(self, candidate: Side, opponent: Side) -> Iterator[_ServedPair]:
        servers: dict[str, ConfinedServer] = {}
        memory = DeviceMemory(self._device)

        def start(letter: str, side: Side) -> None:
            with blamed_on(letter):
                servers[letter] = stack.enter_context(self._start(side))

        def settle(letter: str) -> None:
            with blamed_on(letter):
                servers[letter].await_ready()
            servers[letter].freeze()
            memory.note(letter)

        with ExitStack() as stack:
            start("A", candidate)
            if memory.is_told:  # one after the other tells whose it is
                settle("A")
            start("B", opponent)
            for letter in "AB":
                if letter not in memory.bytes_of:
                    settle(letter)
            yield _ServedPair(self, servers, self._residual.between(candidate, opponent), memory)

    def draw_prompts(self, suite: str) -> Prompts:
        """New ones for each request of a segment."""
        asked, vocabulary = self.case.request_suites[suite], self.parity.vocabulary
        return [
            [self.secret.randrange(vocabulary) for _ in range(asked.prompt_tokens)]
            for _ in range(asked.count)
        ]

    def ask_all(
        self, server: ConfinedServer, prompts: Prompts, suite: str, slowness: float = 1
    ) -> ServedSegment:
        """Ask one server for all answers of a segment, so many at once as the suite says.

        Each may take `slowness` times what an answer may.
        """
        asked = self.case.request_suites[suite]

        def ask_one(prompt: Sequence[int]) -> AnsweredRequest:
            return self.ask(server, prompt, asked.answer_tokens, slowness)

        with ThreadPoolExecutor(asked.concurrency) as pool:
            answers = list(pool.map(ask_one, prompts))
        peak = server.peak_bytes()
        _require_alive(server)
        return ServedSegment(answers, peak)

    def ask(
        self, server: ConfinedServer, prompt: Sequence[int], tokens: int, slowness: float = 1
    ) -> AnsweredRequest:
        """One answer. Raises CandidateFault, which names how the server ended where it did."""
        settings = self.case.settings
        seconds = slowness * settings.budgets.call_seconds
        address = ServerAddress(server.path, settings.model or self.case.name, seconds)
        try:
            return ask(address, prompt, tokens)
        except CandidateFault as fault:
            ended = server.wait(END_SECONDS) if fault.reason is Reason.BROKE_PROTOCOL else None
            if ended is None:
                raise
            raise CandidateFault(*exit_fault(ended)) from fault

    def _start(self, side: Side, *, is_watched: bool = False) -> ConfinedServer:
        """A fresh server, which loads. Raises CandidateFault for what its source says."""
        check_policy(Path(side.tree), self.case.settings.policy)
        variables = {**thread_variables(), **self._device.variables(), **side.knobs}
        spec = replace(serving_spec(self.case, self._device.nodes(), variables), workspace=Path(side.tree))
        return ConfinedServer(self._rung, spec, is_watched=is_watched)


@dataclass(frozen=True)
class _ServedPair:
    """Implements hillclimb.harness.surfaces.surface.OpenPair. Whose turn it is not is frozen."""

    surface: OpenAIHttp
    servers: Mapping[str, ConfinedServer]
    residual: ResidualWork
    memory: DeviceMemory
    warm: set[tuple[str, str]] = field(default_factory=set)
    """Letters and suites of servers that answered a segment of it before."""

    def time_block(self, suite: str) -> Block:
        """Four segments; both sides are asked the same in their first, and the same in their second."""
        prompts = [self.surface.draw_prompts(suite) for _ in range(2)]
        is_first = self.surface.secret.random() < 0.5
        order = "ABBA" if is_first else "BAAB"
        segments = []
        for place, letter in enumerate(order):
            with blamed_on(letter):
                segments.append(self._time_segment(letter, prompts[place // 2], suite))
            self.memory.note(letter)
            segments[-1] = replace(segments[-1], device_bytes=self.memory.bytes_of[letter])
            self.residual.listen(letter)
            if culprit := self.residual.culprit():
                with blamed_on(culprit):
                    detail = "the GPU was still busy after its turns, and never after the other side's"
                    raise CandidateFault(Reason.LEFT_WORK_RUNNING, detail)
        for letter, segment in zip(order, segments, strict=True):
            with blamed_on(letter):
                self.surface.parity.share(segment.answers)
        told = [segment.metrics for segment in segments]
        return Block(
            order="ABBA" if is_first else "BAAB",
            seconds=tuple(segment.seconds_per_token for segment in segments),
            metrics=tuple(
                SegmentMetric(metric=name, values=tuple(one[name] for one in told)) for name in SERVED_METRICS
            ),
        )

    def _time_segment(self, letter: str, prompts: Prompts, suite: str) -> ServedSegment:
        """Behind some that nobody times, where it is a server's first of a suite."""
        server = self.servers[letter]
        _require_alive(server)
        server.require_alone()
        if server.ran_while_frozen():
            raise CandidateFault(Reason.LEFT_WORK_RUNNING, "it ran while it was not its turn")
        server.reset_peak()
        server.thaw()
        try:
            self.surface.ask(server, self.surface.draw_prompts(suite)[0], LEAD_IN_TOKENS)
            if (letter, suite) not in self.warm:
                for _ in range(UNTIMED_SEGMENTS):
                    self.surface.ask_all(server, self.surface.draw_prompts(suite), suite)
                self.warm.add((letter, suite))
            return self.surface.ask_all(server, prompts, suite)
        finally:
            server.freeze()


def _require_room(case: Case) -> None:
    assert case.settings.serving is not None
    context = case.settings.serving.context
    for name, asked in case.request_suites.items():
        wanted = asked.prompt_tokens + asked.answer_tokens
        if context is not None and wanted > context:
            file = case.folder / "benchmarks" / f"{name}.yaml"
            problem = f"a prompt and its answer have {wanted} tokens, and serving.context is {context}"
            raise CaseError(file, "answer_tokens", problem, "ask for fewer")


def _require_whole_answers(case: Case) -> None:
    """Time per token is low where tokens are held back and sent together in the end."""
    objective = case.settings.objective
    kept = {g.metric for g in case.settings.guardrails if g.suite == objective.suite}
    if objective.metric == "tpot" and not kept & {"ttft", "latency"}:
        problem = "tpot gets better where tokens are held back"
        remedy = f"put a guardrail on latency or ttft of suite {objective.suite}, or choose tokens_per_second"
        raise CaseError(case.folder / "case.yaml", "objective.metric", problem, remedy)


def _require_alive(server: ConfinedServer) -> None:
    if (ended := server.wait(0)) is not None:
        raise CandidateFault(*exit_fault(ended))


@contextmanager
def blamed_on(letter: str) -> Iterator[None]:
    """What B does wrong, which has passed all this before, is no fault of the candidate's."""
    try:
        yield
    except CandidateFault as fault:
        if letter == "A":
            raise
        raise IncumbentFault(f"the incumbent failed, having passed before: {fault}") from fault


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of them that so many do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
