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

from hillclimb.agent.git.trees import is_judged
from hillclimb.agent.llm.briefing.briefing import brief, estimate_tokens, repair
from hillclimb.agent.llm.briefing.call_history import (
    describe_duplicate,
    fruitless_replies,
    queued_calls,
    repair_message,
    repairable_calls,
)
from hillclimb.agent.llm.briefing_limit import BriefingLimit
from hillclimb.agent.llm.client.endpoint import Endpoint
from hillclimb.agent.llm.client.faults import Fault, ModelFault
from hillclimb.agent.llm.client.messages import Message, Reply
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.llm.client.usage import estimate_usage
from hillclimb.agent.llm.exchanges import Exchange, ExchangeStore
from hillclimb.agent.llm.gather import FactGatherer
from hillclimb.agent.llm.replies.merging import MergeConflict
from hillclimb.agent.llm.reply_to_proposal import UnusableReply, UsableReply, parse_usable_reply, to_proposal
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import NotReady, ProposerContext
from hillclimb.agent.record.entries import CalledEntry, DroppedEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.screen.events import CalledEvent, TroubleEvent
from hillclimb.harness.errors import Plateau, UsageError

POLL_SECONDS = 1.0
"""Longest wait before the budgets, and whoever else has ideas, are looked at again."""
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 5.0, 300.0
"""After a call without a reply: doubled with every further one in a row."""
DOWN_AFTER_FAULTS = 3
"""Calls without a reply in a row after which the endpoint counts as down."""
MAX_REFUSALS = 3
"""Refusals of key or model in a row that end the asking, once the endpoint has answered before."""
MAX_FRUITLESS_REPLIES = 12
"""Replies in a row that came to nothing before the model is given up: each of them was paid for."""
MAX_REPAIR_BRIEFINGS = 2
"""Of a repair, in briefings; a longer one is not worth going on with."""

REPLY_FIELDS = ("attempts", "usage", "cost", "seconds")
FAULT_FIELDS = ("fault", "detail", *REPLY_FIELDS)

DropReason = tuple[Literal["duplicate", "stale", "lost"], str]
"""The kind, and the detail."""

PARALLEL_CALL_HINT = "another proposal is being written at the same time: leave the most obvious step to it"


@dataclass(frozen=True)
class PendingCall:
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


class LlmProposer:
    """Implements hillclimb.agent.proposer.Proposer over one endpoint; the rhythm names the family of an edit block."""

    def __init__(self, background: ProposerContext, endpoint: Endpoint, settings: ModelSettings) -> None:
        self._background, self._endpoint, self._settings = background, endpoint, settings
        self._rules = background.case.settings.llm
        self._exchanges = ExchangeStore(background.folder, background.disk)
        self._fact_gatherer = FactGatherer(background)
        self._pending_calls: list[PendingCall] = []
        self._stop_reason = ""
        """Why no further call is made; empty while they are."""
        self._consecutive_faults = 0
        """In a row."""
        self._has_answered = False
        self._is_outage_told = False
        self._backoff_until = 0.0
        self._limit = BriefingLimit(self._rules.briefing_tokens)
        self._first_call: int | None = None
        """Calls of earlier sessions: a person who climbs again gives the model another chance."""
        self._unrepairable_calls: set[int] = set()
        """Calls whose exchange is gone."""

    def propose(self, ledger: Ledger, family: str = "", reason: str = "") -> Proposal | NotReady | None:
        """The next usable reply. Raises Plateau, saying why, when the endpoint takes no more calls."""
        self._collect(ledger)
        self._tell_outage()
        proposal = next(self._usable(ledger), None)
        self._stop_if_fruitless(ledger)
        self._send_repairs(ledger)
        self._start_calls(ledger, family, reason)
        if proposal:
            return proposal
        if self._pending_calls:
            return self._wait()
        if self._stop_reason:
            raise Plateau(self._stop_reason)
        return NotReady(seconds=min(max(self._backoff_until - self._now(), 0.0), POLL_SECONDS))

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """The replies that wait, as far as they would become candidates; see hillclimb.agent.proposer.CanPeek."""
        found = (proposal for _, proposal in self._waiting(ledger) if isinstance(proposal, Proposal))
        return tuple(islice(found, count))

    def is_ready(self, ledger: Ledger) -> bool:
        """Whether `propose` has something to do at once: a reply, a call to make, or the news that none will come."""
        self._tell_outage()
        if any(asked.future.done() for asked in self._pending_calls) or any(queued_calls(ledger)):
            return True
        return not self._pending_calls and (bool(self._stop_reason) or not self._is_paused())

    @property
    def is_down(self) -> bool:
        """Whether the last calls brought no reply at all."""
        return self._consecutive_faults >= DOWN_AFTER_FAULTS

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """A model reckons none."""
        return {}

    def finish(self, ledger: Ledger) -> None:
        """Replies that came are kept for the next time; calls under way are given up, and counted.

        Where the disk refuses that, the session that follows writes them down, and makes no call.
        """
        self._collect(ledger)
        self._stop_reason = (
            self._stop_reason or "no further model calls: the climb was ending when the disk refused writes"
        )
        self._endpoint.close()
        for asked in self._pending_calls:
            asked.future.cancel()
        self._collect(ledger)

    def _wait(self) -> NotReady:
        with self._background.interruptible_wait():
            wait([asked.future for asked in self._pending_calls], POLL_SECONDS, FIRST_COMPLETED)
        return NotReady(seconds=0.0)

    # replies in

    def _collect(self, ledger: Ledger) -> None:
        """Write down every call that has ended; one leaves the list only when it is written."""
        for asked in [asked for asked in self._pending_calls if asked.future.done()]:
            try:
                reply = asked.future.result()
            except ModelFault as fault:
                self._record_fault(ledger, asked, fault)
            except CancelledError:
                self._give_up(ledger, asked)
            else:
                self._record_reply(ledger, asked, reply)
            self._pending_calls.remove(asked)

    def _record_reply(self, ledger: Ledger, asked: PendingCall, reply: Reply) -> None:
        told: dict[str, Any] = {name: getattr(reply, name) for name in REPLY_FIELDS}
        try:
            answer = self._read(reply.text, self._files(asked.incumbent)).answer
        except UnusableReply as error:
            self._record(ledger, asked, reply, outcome="unusable", detail=str(error), **told)
        else:
            told |= {"idea": answer.idea, "note": "\n".join(answer.notes), "ideas": answer.next_ideas}
            self._record(ledger, asked, reply, outcome="proposal", **told)
        self._consecutive_faults, self._has_answered = 0, True
        if reply.prompt_cut_to:
            self._unrepairable_calls.add(len(ledger.calls))  # it would be cut again
            if told_cut := self._limit.cut(reply.prompt_cut_to):
                self._emit_trouble(told_cut)

    def _record_fault(self, ledger: Ledger, asked: PendingCall, fault: ModelFault) -> None:
        told = {name: getattr(fault, name) for name in FAULT_FIELDS}
        self._record(ledger, asked, None, outcome="fault", **told)
        self._consecutive_faults += 1
        grown = FIRST_BACKOFF_SECONDS * 2 ** min(self._consecutive_faults - 1, 10)
        pause = min(max(grown, fault.retry_after_seconds or 0.0), MAX_BACKOFF_SECONDS)
        self._backoff_until = self._now() + (0.0 if self._is_shortened(asked, fault.fault) else pause)
        if self._is_final(fault):
            named = f"{self._settings.address}: {fault.fault.replace('_', ' ')}: {fault.detail}"
            self._stop(f"no further model calls: {named}")

    def _give_up(self, ledger: Ledger, asked: PendingCall) -> None:
        usage, cost = self._endpoint.usage_so_far(asked.future)
        told: dict[str, Any] = {"fault": "given_up", "usage": usage, "cost": cost}
        detail = "the climb ended before the reply came"
        self._record(ledger, asked, None, outcome="fault", detail=detail, **told)

    def _is_final(self, fault: ModelFault) -> bool:
        """A used-up quota is; a refused key or model that worked before may be a hiccup, and so may a bad request."""
        if fault.fault == Fault.BAD_REQUEST:  # the second one was for a shorter briefing
            return self._consecutive_faults >= (MAX_REFUSALS if self._has_answered else 2)
        if fault.fault == Fault.QUOTA or not self._has_answered:
            return fault.is_final
        return fault.is_final and self._consecutive_faults >= MAX_REFUSALS

    def _is_shortened(self, asked: PendingCall, fault: Fault) -> bool:
        """Whether the next briefing is shorter after this fault; a repair, longer by nature, is not sent again."""
        if fault not in (Fault.CONTEXT_TOO_LONG, Fault.BAD_REQUEST):
            return False
        if asked.repairs is not None:
            self._unrepairable_calls.add(asked.repairs)
            return fault is Fault.CONTEXT_TOO_LONG
        tokens = estimate_tokens(asked.messages)
        if fault is Fault.BAD_REQUEST:  # servers say in many words that a prompt is too long
            return self._limit.try_shorter(asked.briefing_tokens, tokens)
        self._limit.refused(asked.briefing_tokens, tokens)
        return True

    def _stop_if_fruitless(self, ledger: Ledger) -> None:
        self._first_call = len(ledger.calls) if self._first_call is None else self._first_call
        row = fruitless_replies(ledger, self._first_call)
        if len(row) >= MAX_FRUITLESS_REPLIES:
            why = (
                f"no further model calls: {len(row)} replies in a row came to nothing, the last one: {row[0]}"
            )
            self._stop(why)

    def _stop(self, why: str) -> None:
        if not self._stop_reason:
            self._stop_reason = why
            self._emit_trouble(why)

    def _tell_outage(self) -> None:
        """Once, as soon as it is seen, that the server cannot be reached; again after it could be."""
        outage = self._endpoint.outage
        if outage and not self._is_outage_told:
            self._emit_trouble(
                f"the model server cannot be reached: {outage}; start it, or correct OPENAI_BASE_URL; "
                "it is asked again meanwhile, and that costs nothing"
            )
        self._is_outage_told = bool(outage)

    def _emit_trouble(self, message: str) -> None:
        self._background.emit(TroubleEvent(time=self._now(), message=message))

    def _record(
        self,
        ledger: Ledger,
        asked: PendingCall,
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
        called = CalledEntry(
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

    def _send_repairs(self, ledger: Ledger) -> None:
        """Send back what did not apply, load or pass, as often as the case allows."""
        being_mended = {asked.repairs for asked in self._pending_calls}
        for call in repairable_calls(ledger, self._rules.repairs):
            if call.k in being_mended or call.k in self._unrepairable_calls:
                continue
            error = repair_message(ledger, call)
            if error and not self._is_full(ledger):
                self._send_repair(call, error)

    def _send_repair(self, call: CalledEntry, error: str) -> None:
        try:
            exchange = self._exchanges.read(call.k)
        except UsageError as gone:
            self._unrepairable_calls.add(call.k)
            self._emit_trouble(f"call {call.k} is not mended: {gone}")
            return
        messages = repair(exchange.messages, exchange.reply, error)
        if estimate_tokens(messages) <= MAX_REPAIR_BRIEFINGS * self._limit.tokens:
            self._ask(messages, call.incumbent, call.family, repairs=call.k, turn=call.turn + 1)
        else:
            self._unrepairable_calls.add(call.k)

    def _start_calls(self, ledger: Ledger, family: str, reason: str) -> None:
        """Keep as many calls under way as the case asks for; replies that wait count, and so does the one that goes
        out now, since its verdict may call for a repair."""
        waiting = sum(1 for _ in queued_calls(ledger))
        while not self._is_full(ledger, waiting):
            hint = PARALLEL_CALL_HINT if self._pending_calls or waiting else ""
            facts = self._fact_gatherer.gather(ledger, family, "; ".join(filter(None, (reason, hint))))
            try:
                briefing = brief(facts, self._limit.tokens)
            except UsageError as error:
                self._stop(f"no further model calls: {self._limit.trouble}{error}")
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
        self._pending_calls.append(
            PendingCall(future, messages, incumbent, family, self._now(), self._limit.tokens, repairs, turn)
        )

    def _is_paused(self) -> bool:
        return bool(self._stop_reason) or self._now() < self._backoff_until

    def _is_full(self, ledger: Ledger, waiting: int = 0) -> bool:
        full = self._is_paused() or len(self._pending_calls) + waiting >= self._rules.in_flight
        return full or not self._may_ask(ledger)

    def _may_ask(self, ledger: Ledger) -> bool:
        """Whether the budgets hold what is under way and one more like its largest; a call alone goes out while
        anything is left."""
        begun = [estimate_usage(asked.messages, self._settings) for asked in self._pending_calls]
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

    def _waiting(self, ledger: Ledger) -> Iterator[tuple[CalledEntry, Proposal | DropReason]]:
        """What each reply that waits comes to; nothing is recorded."""
        waiting = list(queued_calls(ledger))
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
            except (MergeConflict, UnusableReply) as error:
                yield call, ("stale", str(error))
            else:
                twin = describe_duplicate(ledger, proposal)
                yield call, ("duplicate", twin) if twin else proposal

    def _drop(
        self, ledger: Ledger, call: CalledEntry, why: Literal["duplicate", "stale", "lost"], detail: str
    ) -> None:
        ledger.append(DroppedEntry(k=call.k, time=self._now(), reason=why, detail=detail))

    def _read(self, text: str, files: Mapping[str, str]) -> UsableReply:
        return parse_usable_reply(text, files, mutable=self._background.case.settings.mutable)

    def _files(self, commit: str) -> Mapping[str, str]:
        """A commit's workspace as the model sees it."""
        return {path: text for path, text in self._background.files(commit).items() if is_judged(path)}

    def _now(self) -> float:
        return self._background.clock.now()
