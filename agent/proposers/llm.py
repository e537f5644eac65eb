"""Proposals by a language model: several calls under way at once, replies mended in further turns, nothing tried twice.

What was asked and answered is in the ledger and in calls/<k>.json before anything is done with it, so a climb that
was killed goes on with the replies it has paid for. A call ends as one of

    fault       no reply that can be read came; after a pause that grows, the next call is a fresh one
    unusable    the reply cannot be read or applied: it goes back with the exact error
    proposal    it waits in the queue, and becomes a candidate or is dropped, as duplicate, stale or lost
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from agent.background import Background
from agent.briefing.briefing import brief, estimate_tokens, repair
from agent.entries import Called, Dropped
from agent.events import CalledEvent, TroubleEvent
from agent.exchanges import Exchange, Exchanges
from agent.ledger import Ledger
from agent.model.endpoint import Endpoint
from agent.model.faults import Fault, ModelFault
from agent.model.messages import Message, Reply
from agent.model.settings import ModelSettings
from agent.model.usage import estimate_usage
from agent.proposal import Later, Proposal
from agent.proposers.answers import Reading, Unusable, read, to_proposal
from agent.proposers.fates import barren, queue, tried_before, trouble, unanswered
from agent.proposers.known import Known
from agent.replies.merging import Conflict
from agent.trees import is_judged
from harness.errors import Plateau, UsageError

LOOK_SECONDS = 1.0
"""Longest wait before the budgets, and whoever else has ideas, are looked at again."""
PAUSE_SECONDS, LONGEST_PAUSE = 5.0, 300.0
"""After a call without a reply: doubled with every further one in a row."""
DOWN = 3
"""Calls without a reply in a row after which the endpoint counts as down."""
REFUSALS = 3
"""Refusals of key or model in a row that end the asking, once the endpoint has answered before."""
BARREN = 12
"""Replies in a row that came to nothing before the model is given up: each of them was paid for."""
SHORTER = 0.7
"""Of the briefing's tokens, after the endpoint found it too long."""
LONGEST_CONVERSATION = 2
"""Of a repair, in briefings; a longer one is not worth going on with."""

TOLD_OF_REPLIES = ("attempts", "usage", "cost", "seconds")
TOLD_OF_FAULTS = ("fault", "detail", *TOLD_OF_REPLIES)

WhyDropped = tuple[Literal["duplicate", "stale", "lost"], str]
"""The kind, and the detail."""

ANOTHER_WAY = "another proposal is being written at the same time: leave the most obvious step to it"


@dataclass(frozen=True)
class Asked:
    """A call under way."""

    future: Future[Reply]
    messages: tuple[Message, ...]
    incumbent: str
    family: str
    began: float
    briefing_tokens: int
    """The limit its briefing was made for."""
    repairs: int | None = None
    turn: int = 0


class Llm:
    """Implements agent.proposal.Proposer over one endpoint; the rhythm names the family of an edit block."""

    def __init__(self, background: Background, endpoint: Endpoint, settings: ModelSettings) -> None:
        self._background, self._endpoint, self._settings = background, endpoint, settings
        self._rules = background.case.settings.llm
        self._exchanges = Exchanges(background.folder, background.disk)
        self._known = Known(background)
        self._under_way: list[Asked] = []
        self._over = ""
        """Why no further call is made; empty while they are."""
        self._faults = 0
        """In a row."""
        self._has_answered = False
        self._quiet_until = 0.0
        self._briefing_tokens = self._rules.briefing_tokens
        self._earlier: int | None = None
        """Calls of earlier sessions: a person who climbs again gives the model another chance."""
        self._lost: set[int] = set()
        """Calls whose exchange is gone."""

    def propose(self, ledger: Ledger, family: str = "", reason: str = "") -> Proposal | Later | None:
        """The next usable reply. Raises Plateau, saying why, when the endpoint takes no more calls."""
        self._collect(ledger)
        proposal = next(self._usable(ledger), None)
        self._give_up_if_barren(ledger)
        self._mend(ledger)
        self._top_up(ledger, family, reason)
        if proposal:
            return proposal
        if self._under_way:
            return self._wait()
        if self._over:
            raise Plateau(self._over)
        return Later(seconds=min(max(self._quiet_until - self._now(), 0.0), LOOK_SECONDS))

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """The replies that wait, as far as they would become candidates; see agent.proposal.Farsighted."""
        found = (proposal for _, proposal in self._waiting(ledger) if isinstance(proposal, Proposal))
        return tuple(islice(found, count))

    def ready(self, ledger: Ledger) -> bool:
        """Whether `propose` has something to do at once: a reply, a call to make, or the news that none will come."""
        if any(asked.future.done() for asked in self._under_way) or any(queue(ledger)):
            return True
        return not self._under_way and (bool(self._over) or not self._is_quiet())

    @property
    def is_down(self) -> bool:
        """Whether the last calls brought no reply at all."""
        return self._faults >= DOWN

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """A model reckons none."""
        return {}

    def finish(self, ledger: Ledger) -> None:
        """Replies that came are kept for the next time; calls under way are given up, and counted.

        Where the disk refuses that, the session that follows writes them down, and makes no call.
        """
        self._collect(ledger)
        self._over = self._over or "no further model calls: the climb was ending when the disk refused writes"
        self._endpoint.close()
        for asked in self._under_way:
            asked.future.cancel()
        self._collect(ledger)

    def _wait(self) -> Later:
        with self._background.waiting():
            wait([asked.future for asked in self._under_way], LOOK_SECONDS, FIRST_COMPLETED)
        return Later(seconds=0.0)

    # replies in

    def _collect(self, ledger: Ledger) -> None:
        """Write down every call that has ended; one leaves the list only when it is written."""
        for asked in [asked for asked in self._under_way if asked.future.done()]:
            try:
                reply = asked.future.result()
            except ModelFault as fault:
                self._take_fault(ledger, asked, fault)
            except CancelledError:
                self._give_up(ledger, asked)
            else:
                self._take_reply(ledger, asked, reply)
            self._under_way.remove(asked)

    def _take_reply(self, ledger: Ledger, asked: Asked, reply: Reply) -> None:
        told: dict[str, Any] = {name: getattr(reply, name) for name in TOLD_OF_REPLIES}
        try:
            answer = self._read(reply.text, self._files(asked.incumbent)).answer
        except Unusable as error:
            self._record(ledger, asked, reply, outcome="unusable", detail=str(error), **told)
        else:
            told |= {"idea": answer.idea, "note": "\n".join(answer.notes), "ideas": answer.next}
            self._record(ledger, asked, reply, outcome="proposal", **told)
        self._faults, self._has_answered = 0, True

    def _take_fault(self, ledger: Ledger, asked: Asked, fault: ModelFault) -> None:
        told = {name: getattr(fault, name) for name in TOLD_OF_FAULTS}
        self._record(ledger, asked, None, outcome="fault", **told)
        self._faults += 1
        pause = min(max(PAUSE_SECONDS * 2 ** min(self._faults - 1, 10), fault.wait or 0.0), LONGEST_PAUSE)
        if fault.fault == Fault.CONTEXT_TOO_LONG:
            self._shorten(asked)
            pause = 0.0
        self._quiet_until = self._now() + pause
        if self._is_final(fault):
            self._stop(f"no further model calls: {fault.fault.replace('_', ' ')}: {fault.detail}")

    def _give_up(self, ledger: Ledger, asked: Asked) -> None:
        usage, cost = estimate_usage(asked.messages, self._settings)
        told: dict[str, Any] = {"fault": "given_up", "usage": usage, "cost": cost}
        detail = "the climb ended before the reply came"
        self._record(ledger, asked, None, outcome="fault", detail=detail, **told)

    def _is_final(self, fault: ModelFault) -> bool:
        """A used-up quota is; a refused key or model that worked before may be a hiccup."""
        if fault.fault == Fault.QUOTA or not self._has_answered:
            return fault.final
        return fault.final and self._faults >= REFUSALS

    def _shorten(self, asked: Asked) -> None:
        """Once for each length: other calls of the same length are under way, and repairs are longer by nature."""
        if asked.repairs is None and asked.briefing_tokens == self._briefing_tokens:
            self._briefing_tokens = int(self._briefing_tokens * SHORTER)

    def _give_up_if_barren(self, ledger: Ledger) -> None:
        self._earlier = len(ledger.calls) if self._earlier is None else self._earlier
        row = barren(ledger, self._earlier)
        if len(row) >= BARREN:
            why = (
                f"no further model calls: {len(row)} replies in a row came to nothing, the last one: {row[0]}"
            )
            self._stop(why)

    def _stop(self, why: str) -> None:
        if not self._over:
            self._over = why
            self._tell(why)

    def _tell(self, message: str) -> None:
        self._background.emit(TroubleEvent(time=self._now(), message=message))

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
            model=reply.model if reply else self._settings.model,
            incumbent=asked.incumbent,
            family=asked.family,
            repairs=asked.repairs,
            turn=asked.turn,
            outcome=outcome,
            **facts,
        )
        ledger.append(called)
        self._background.emit(CalledEvent.of(called, ledger))

    # calls out

    def _mend(self, ledger: Ledger) -> None:
        """Send back what did not apply, load or pass, as often as the case allows."""
        being_mended = {asked.repairs for asked in self._under_way}
        for call in unanswered(ledger, self._rules.repairs):
            if call.k in being_mended or call.k in self._lost:
                continue
            error = trouble(ledger, call)
            if error and not self._is_full(ledger):
                self._send_back(call, error)

    def _send_back(self, call: Called, error: str) -> None:
        try:
            exchange = self._exchanges.read(call.k)
        except UsageError as gone:
            self._lost.add(call.k)
            self._tell(f"call {call.k} is not mended: {gone}")
            return
        messages = repair(exchange.messages, exchange.reply, error)
        if estimate_tokens(messages) <= LONGEST_CONVERSATION * self._briefing_tokens:
            self._ask(messages, call.incumbent, call.family, repairs=call.k, turn=call.turn + 1)
        else:
            self._lost.add(call.k)

    def _top_up(self, ledger: Ledger, family: str, reason: str) -> None:
        """Keep as many calls under way as the case asks for; replies that wait count, and so does the one that goes
        out now, since its verdict may call for a repair."""
        waiting = sum(1 for _ in queue(ledger))
        while not self._is_full(ledger, waiting):
            hint = ANOTHER_WAY if self._under_way or waiting else ""
            facts = self._known.gather(ledger, family, "; ".join(filter(None, (reason, hint))))
            try:
                briefing = brief(facts, self._briefing_tokens)
            except UsageError as error:
                self._stop(f"no further model calls: {self._why_too_short()}{error}")
                return
            self._ask(briefing.messages, ledger.incumbent, family)

    def _why_too_short(self) -> str:
        if self._briefing_tokens == self._rules.briefing_tokens:
            return ""
        return f"the model found a briefing of {int(self._briefing_tokens / SHORTER)} tokens too long, and "

    def _ask(
        self,
        messages: tuple[Message, ...],
        incumbent: str,
        family: str,
        repairs: int | None = None,
        turn: int = 0,
    ) -> None:
        future = self._endpoint.submit(messages)
        self._under_way.append(
            Asked(future, messages, incumbent, family, self._now(), self._briefing_tokens, repairs, turn)
        )

    def _is_quiet(self) -> bool:
        return bool(self._over) or self._now() < self._quiet_until

    def _is_full(self, ledger: Ledger, waiting: int = 0) -> bool:
        full = self._is_quiet() or len(self._under_way) + waiting >= self._rules.in_flight
        return full or not self._may_ask(ledger)

    def _may_ask(self, ledger: Ledger) -> bool:
        """Whether the budgets hold what is under way and one more like its largest; a call alone goes out while
        anything is left."""
        begun = [estimate_usage(asked.messages, self._settings) for asked in self._under_way]
        tokens, costs = [usage.total for usage, _ in begun], [cost or 0.0 for _, cost in begun]
        return self._background.may_spend(
            ledger, sum(tokens) + max(tokens, default=0), sum(costs) + max(costs, default=0.0)
        )

    # the queue

    def _usable(self, ledger: Ledger) -> Iterator[Proposal]:
        """Replies that wait, as proposals on today's incumbent; what was tried, or does not fit, is dropped."""
        for call, found in self._waiting(ledger):
            if isinstance(found, Proposal):
                yield found
            else:
                self._drop(ledger, call, *found)

    def _waiting(self, ledger: Ledger) -> Iterator[tuple[Called, Proposal | WhyDropped]]:
        """What each reply that waits comes to; nothing is recorded."""
        waiting = list(queue(ledger))
        if not waiting:
            return  # asked every second while a model thinks: git is left alone
        now = self._files(ledger.incumbent)
        for call in waiting:
            base = now if call.incumbent == ledger.incumbent else self._files(call.incumbent)
            try:
                reply = self._exchanges.read(call.k).reply
                proposal = to_proposal(self._read(reply, base), call.k, base, now)
            except UsageError as error:
                yield call, ("lost", str(error))
            except (Conflict, Unusable) as error:
                yield call, ("stale", str(error))
            else:
                twin = tried_before(ledger, proposal)
                yield call, ("duplicate", twin) if twin else proposal

    def _drop(
        self, ledger: Ledger, call: Called, why: Literal["duplicate", "stale", "lost"], detail: str
    ) -> None:
        ledger.append(Dropped(k=call.k, time=self._now(), reason=why, detail=detail))

    def _read(self, text: str, files: Mapping[str, str]) -> Reading:
        return read(text, files, mutable=self._background.case.settings.mutable)

    def _files(self, commit: str) -> Mapping[str, str]:
        """A commit's workspace as the model sees it."""
        return {path: text for path, text in self._background.files(commit).items() if is_judged(path)}

    def _now(self) -> float:
        return self._background.clock.now()
