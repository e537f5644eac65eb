"""Proposals by a language model: several calls under way at once, replies mended in further turns, nothing tried twice.

What was asked and answered is in the ledger and in calls/<k>.json before anything is done with it, so a climb that
was killed goes on with the replies it has paid for. A call ends as one of

    fault       no reply that can be read came; after a pause that grows, the next call is a fresh one
    unusable    the reply cannot be read or applied: it goes back with the exact error
    proposal    it waits in the queue, and becomes a candidate or is dropped, as duplicate or stale
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Literal

from agent.background import Background
from agent.briefing.briefing import brief, estimate_tokens, repair
from agent.entries import Called, Dropped, Usage
from agent.events import CalledEvent, TroubleEvent
from agent.exchanges import Exchange, Exchanges
from agent.ledger import Candidate, Ledger
from agent.model.endpoint import Endpoint
from agent.model.faults import Fault, ModelFault
from agent.model.messages import Message, Reply
from agent.proposal import Later, Proposal
from agent.proposers.answers import Unusable, read, to_proposal
from agent.proposers.known import gather
from agent.replies.merging import Conflict
from agent.trees import is_judged
from harness.errors import Plateau, UsageError
from harness.records import Reason

HOPELESS = frozenset({Reason.SLOWER, Reason.NO_PROVEN_GAIN, Reason.GUARDRAIL, Reason.BROKE_JUDGE})
"""Rejections that say the idea is no good; every other one names what its author may mend."""

LOOK_SECONDS = 5.0
"""Longest wait before the budgets are looked at again."""
PAUSE_SECONDS, LONGEST_PAUSE = 5.0, 300.0
"""After a call without a reply: doubled with every further one in a row."""
SHORTER = 0.7
"""Of the briefing's tokens, after the endpoint found it too long."""

BARREN = 12
"""Replies in a row that came to nothing before the model is given up: each of them was paid for."""
PAID_FAULTS = frozenset(
    {Fault.TRUNCATED, Fault.REFUSED, Fault.NO_CONTENT, Fault.NO_CHOICES, Fault.TOO_LARGE, Fault.BAD_REQUEST}
)
"""Faults of what the model said, rather than of the way to it."""

TOLD_OF_REPLIES = ("attempts", "usage", "cost", "seconds")
TOLD_OF_FAULTS = ("fault", "detail", *TOLD_OF_REPLIES)

ANOTHER_WAY = "another proposal is being written at the same time: leave the most obvious step to it"


@dataclass(frozen=True)
class Asked:
    """A call under way."""

    future: Future[Reply]
    messages: tuple[Message, ...]
    incumbent: str
    family: str
    began: float
    repairs: int | None = None
    turn: int = 0


class Llm:
    """Implements agent.proposal.Proposer over one endpoint; the rhythm names the family of an edit block."""

    def __init__(self, background: Background, endpoint: Endpoint, model: str) -> None:
        self._background, self._endpoint, self._model = background, endpoint, model
        self._rules = background.case.settings.llm
        self._exchanges = Exchanges(background.folder, background.disk)
        self._under_way: list[Asked] = []
        self._over = ""
        """Why no further call is made; empty while they are."""
        self._faults = 0
        """In a row."""
        self._quiet_until = 0.0
        self._briefing_tokens = self._rules.briefing_tokens
        self._earlier: int | None = None
        """Calls of earlier sessions: a person who climbs again gives the model another chance."""

    def propose(self, ledger: Ledger, family: str = "", reason: str = "") -> Proposal | Later | None:
        """The next usable reply. Raises Plateau, saying why, when the endpoint takes no more calls."""
        self._collect(ledger)
        self._give_up_if_barren(ledger)
        self._mend(ledger)
        self._top_up(ledger, family, reason)
        proposal = next(self._usable(ledger), None)
        if proposal:
            return proposal
        if self._under_way:
            return self._wait()
        if self._over:
            raise Plateau(self._over)
        return Later(seconds=min(max(self._quiet_until - self._now(), 0.0), LOOK_SECONDS))

    def ready(self, ledger: Ledger) -> bool:
        """Whether `propose` has something to work on at once: a reply, or the news that none will come."""
        done = any(asked.future.done() for asked in self._under_way)
        return done or any(_queue(ledger)) or bool(self._over and not self._under_way)

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """A model reckons none."""
        return {}

    def finish(self, ledger: Ledger) -> None:
        """Replies that came are kept for the next time; calls under way are given up, and counted."""
        self._collect(ledger)
        self._endpoint.close()
        for asked in self._under_way:
            usage = Usage(prompt=estimate_tokens(asked.messages), estimated=True)
            detail = "the climb ended before the reply came"
            self._record(ledger, asked, None, outcome="fault", fault="given_up", detail=detail, usage=usage)
        self._under_way = []

    def _wait(self) -> Later:
        with self._background.waiting():
            wait([asked.future for asked in self._under_way], LOOK_SECONDS, FIRST_COMPLETED)
        return Later(seconds=0.0)

    # replies in

    def _collect(self, ledger: Ledger) -> None:
        for asked in [asked for asked in self._under_way if asked.future.done()]:
            self._under_way.remove(asked)
            try:
                self._take_reply(ledger, asked, asked.future.result())
            except ModelFault as fault:
                self._take_fault(ledger, asked, fault)

    def _take_reply(self, ledger: Ledger, asked: Asked, reply: Reply) -> None:
        self._faults = 0
        told: dict[str, Any] = {name: getattr(reply, name) for name in TOLD_OF_REPLIES}
        try:
            answer = read(reply.text, self._files(asked.incumbent)).answer
        except Unusable as error:
            self._record(ledger, asked, reply, outcome="unusable", detail=str(error), **told)
            return
        told |= {"idea": answer.idea, "note": "\n".join(answer.notes), "ideas": answer.next}
        self._record(ledger, asked, reply, outcome="proposal", **told)

    def _take_fault(self, ledger: Ledger, asked: Asked, fault: ModelFault) -> None:
        told = {name: getattr(fault, name) for name in TOLD_OF_FAULTS}
        self._record(ledger, asked, None, outcome="fault", **told)
        self._faults += 1
        pause = min(max(PAUSE_SECONDS * 2 ** min(self._faults - 1, 10), fault.wait or 0.0), LONGEST_PAUSE)
        if fault.fault == Fault.CONTEXT_TOO_LONG:
            self._briefing_tokens = int(self._briefing_tokens * SHORTER)
            pause = 0.0
        self._quiet_until = self._now() + pause
        if fault.final:
            self._stop(f"no further model calls: {fault.fault.replace('_', ' ')}: {fault.detail}")

    def _give_up_if_barren(self, ledger: Ledger) -> None:
        self._earlier = len(ledger.calls) if self._earlier is None else self._earlier
        latest = ledger.calls[self._earlier :][-BARREN:]
        if len(latest) == BARREN and all(_is_barren(ledger, call) for call in latest):
            last = latest[-1]
            why = last.detail or ledger.dropped[last.k].detail
            self._stop(
                f"no further model calls: {BARREN} replies in a row came to nothing, the last one: {why}"
            )

    def _stop(self, why: str) -> None:
        if not self._over:
            self._over = why
            self._background.emit(TroubleEvent(time=self._now(), message=why))

    def _record(
        self,
        ledger: Ledger,
        asked: Asked,
        reply: Reply | None,
        *,
        outcome: Literal["proposal", "fault", "unusable"],
        seconds: float | None = None,
        **facts: Any,
    ) -> None:
        """The exchange beside the ledger, then the line in it, then the news."""
        k, now = len(ledger.calls) + 1, self._now()
        exchange = Exchange(k=k, messages=asked.messages)
        if reply:
            said = {"reply": reply.text, "finish": reply.finish, "adjusted": reply.adjusted}
            exchange = exchange.model_copy(update=said)
        self._exchanges.write(exchange)
        called = Called(
            k=k,
            time=now,
            seconds=max(0.0, now - asked.began) if seconds is None else seconds,
            model=reply.model if reply else self._model,
            incumbent=asked.incumbent,
            family=asked.family,
            repairs=asked.repairs,
            turn=asked.turn,
            outcome=outcome,
            **facts,
        )
        ledger.append(called)
        self._background.emit(_event(called, ledger))

    # calls out

    def _mend(self, ledger: Ledger) -> None:
        """Send back what did not apply, load or pass, as often as the case allows."""
        for call in _unanswered(ledger, self._rules.repairs):
            if self._silent() or any(asked.repairs == call.k for asked in self._under_way):
                continue
            error = _trouble(ledger, call)
            if error:
                exchange = self._exchanges.read(call.k)
                messages = repair(exchange.messages, exchange.reply, error)
                self._ask(messages, call.incumbent, call.family, repairs=call.k, turn=call.turn + 1)

    def _top_up(self, ledger: Ledger, family: str, reason: str) -> None:
        """Keep as many calls under way as the case asks for, replies that wait in the queue counted."""
        waiting = sum(1 for _ in _queue(ledger))
        while not self._silent() and len(self._under_way) + waiting < self._rules.in_flight:
            hint = ANOTHER_WAY if self._under_way or waiting else ""
            facts = gather(self._background, ledger, family, "; ".join(filter(None, (reason, hint))))
            try:
                briefing = brief(facts, self._briefing_tokens)
            except UsageError as error:
                self._stop(f"no further model calls: {error}")
                return
            self._ask(briefing.messages, ledger.incumbent, family)

    def _ask(
        self,
        messages: tuple[Message, ...],
        incumbent: str,
        family: str,
        repairs: int | None = None,
        turn: int = 0,
    ) -> None:
        future = self._endpoint.submit(messages)
        self._under_way.append(Asked(future, messages, incumbent, family, self._now(), repairs, turn))

    def _silent(self) -> bool:
        return bool(self._over) or self._now() < self._quiet_until

    # the queue

    def _usable(self, ledger: Ledger) -> Iterator[Proposal]:
        """Replies that wait, as proposals on today's incumbent; what was tried, or does not fit, is dropped."""
        now = self._files(ledger.incumbent)
        for call in list(_queue(ledger)):
            base = now if call.incumbent == ledger.incumbent else self._files(call.incumbent)
            try:
                proposal = to_proposal(read(self._exchanges.read(call.k).reply, base), call.k, base, now)
            except (Conflict, Unusable, UsageError) as error:
                self._drop(ledger, call, "stale", str(error))
                continue
            twin = _tried_before(ledger, proposal)
            if twin:
                self._drop(ledger, call, "duplicate", twin)
            else:
                yield proposal

    def _drop(self, ledger: Ledger, call: Called, why: Literal["duplicate", "stale"], detail: str) -> None:
        ledger.append(Dropped(k=call.k, time=self._now(), reason=why, detail=detail))

    def _files(self, commit: str) -> Mapping[str, str]:
        """A commit's workspace as the model sees it."""
        return {path: text for path, text in self._background.files(commit).items() if is_judged(path)}

    def _now(self) -> float:
        return self._background.clock.now()


def _queue(ledger: Ledger) -> Iterator[Called]:
    """Usable replies that are neither candidates nor dropped, oldest first."""
    used = {candidate.proposal.call for candidate in ledger.candidates}
    for call in ledger.calls:
        if call.outcome == "proposal" and call.k not in used and call.k not in ledger.dropped:
            yield call


def _is_barren(ledger: Ledger, call: Called) -> bool:
    return call.outcome == "unusable" or call.fault in PAID_FAULTS or call.k in ledger.dropped


def _unanswered(ledger: Ledger, most_turns: int) -> Iterator[Called]:
    """Calls about today's incumbent that were not mended yet and may be."""
    mended = {call.repairs for call in ledger.calls}
    for call in ledger.calls:
        is_open = call.outcome != "fault" and call.k not in mended and call.turn < most_turns
        if is_open and call.incumbent == ledger.incumbent:
            yield call


def _trouble(ledger: Ledger, call: Called) -> str:
    """What to tell the model about its reply; empty where there is nothing to mend, or not yet."""
    if call.outcome == "unusable":
        return call.detail
    dropped = ledger.dropped.get(call.k)
    if dropped:
        return f"{dropped.detail}. Propose something else" if dropped.reason == "duplicate" else ""
    candidate = next((c for c in reversed(ledger.candidates) if c.proposal.call == call.k), None)
    judged = candidate.judged if candidate else None
    if candidate is None or judged is None or judged.reason is None or judged.reason in HOPELESS:
        return ""
    return f"candidate #{candidate.n} was rejected: {judged.reason}: {judged.detail}"


def _tried_before(ledger: Ledger, proposal: Proposal) -> str:
    """Which candidate was the same idea, and what became of it; empty where none was."""
    twin = next((c for c in ledger.candidates if c.proposal.fingerprint == proposal.fingerprint), None)
    return f"it is the same as candidate #{twin.n}, which was {_fate(twin)}" if twin else ""


def _fate(candidate: Candidate) -> str:
    judged = candidate.judged
    if judged is None:
        return "proposed already"
    if judged.kept:
        return "kept"
    return f"rejected: {judged.reason}" + (f" ({judged.screened:.3f}x)" if judged.screened else "")


def _event(called: Called, ledger: Ledger) -> CalledEvent:
    return CalledEvent(
        time=called.time,
        k=called.k,
        outcome=called.outcome,
        fault=called.fault,
        detail=called.detail,
        idea=called.idea,
        seconds=called.seconds,
        tokens=called.usage.total,
        cost=called.cost,
        run_tokens=ledger.tokens,
        run_cost=ledger.cost,
    )
