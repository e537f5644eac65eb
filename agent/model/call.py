"""One call: attempts and pauses under one deadline, ending in a reply or a fault."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from agent.entries import Usage
from agent.model.completion import Completion, read
from agent.model.dialect import Dialect, refused_parameter
from agent.model.faults import Failure, Fault, ModelFault
from agent.model.messages import Message, Reply
from agent.model.pauses import Pauses
from agent.model.scrubber import Scrubber
from agent.model.settings import ModelSettings
from agent.model.usage import estimate_usage, total

if TYPE_CHECKING:
    from agent.model.body import Receipt
    from agent.model.wire import Wire


LEAST_SHARE = 0.05
"""Of the deadline; with less than that left, another attempt would only turn one fault into another."""


class Call:
    """Everything one call needs, and what it has used so far."""

    def __init__(
        self,
        messages: Sequence[Message],
        settings: ModelSettings,
        wire: Wire,
        dialect: Dialect,
        pauses: Pauses,
        rng: random.Random,
    ) -> None:
        self._messages, self._settings = messages, settings
        self._wire, self._dialect, self._pauses, self._rng = wire, dialect, pauses, rng
        self._scrubber = Scrubber(settings)
        self._begun = time.monotonic()
        self._attempts = 0
        self._adjustments = 0
        self._used: list[tuple[Usage, float | None]] = []
        self._last: Failure | None = None

    async def run(self) -> Reply:
        """The reply, or ModelFault; no later than the deadline."""
        from agent.model.body import Receipt

        receipt = Receipt()
        try:
            async with asyncio.timeout(self._settings.deadline_seconds):
                outcome = await self._attempt_until_settled(receipt)
        except TimeoutError:
            outcome = self._overdue(receipt)
            self._count(outcome, receipt)
        except Exception as error:  # noqa: BLE001 - the call's border: what breaks ends this call alone
            outcome = Failure(Fault.UNEXPECTED, f"{type(error).__name__}: {error}")
        if isinstance(outcome, Failure):
            raise self._fault(outcome)
        return self._reply(outcome)

    async def _attempt_until_settled(self, receipt: Receipt) -> Completion | Failure:
        while True:
            outcome = await self._attempt(receipt)
            if isinstance(outcome, Completion):
                return outcome
            self._count(outcome, receipt)
            ended = await self._pause(outcome)
            if ended:
                return ended
            self._last = outcome

    async def _attempt(self, receipt: Receipt) -> Completion | Failure:
        """One request, and as many more as parameters are refused."""
        while True:
            self._attempts += 1
            receipt.clear()
            sent = self._dialect.parameters()
            answer = await self._wire.send(self._messages, sent, receipt)
            if isinstance(answer, Failure):
                return answer
            outcome = read(answer, "".join(m.content for m in self._messages), self._settings)
            bad = isinstance(outcome, Failure) and outcome.fault is Fault.BAD_REQUEST
            name = refused_parameter(answer, sent) if bad else None
            if name is None:
                return outcome
            self._dialect.refuse(name)
            self._adjustments += 1

    def _count(self, failure: Failure, receipt: Receipt) -> None:
        """What a failed attempt used: as told in its answer, else the most it may be where the model probably ran."""
        if failure.usage:
            self._used.append((failure.usage, failure.cost))
        elif receipt.may_have_run(failure.fault):
            self._used.append(estimate_usage(self._messages, self._settings))

    async def _pause(self, failure: Failure) -> Failure | None:
        """Wait for the next attempt; where none is worth making, the failure that the call ends with."""
        tries = self._attempts - self._adjustments
        if tries >= failure.fault.attempts:
            return failure
        pause = self._pauses.after(tries, failure.wait, self._rng)
        left = self._settings.deadline_seconds - self._seconds()
        if pause + LEAST_SHARE * self._settings.deadline_seconds < left:
            await asyncio.sleep(pause)
            return None
        if failure.wait is None:
            return failure
        asked = f"the server asks to wait {failure.wait:.6g} s, {left:.3g} s are left"
        return Failure(failure.fault, f"{asked}; {failure.detail}", wait=failure.wait)

    def _overdue(self, receipt: Receipt) -> Failure:
        deadline = f"the deadline of {self._settings.deadline_seconds:g} s"
        before = f"; before that, {self._last.fault.value}: {self._last.detail}" if self._last else ""
        if not receipt.connected:
            return Failure(
                Fault.UNREACHABLE, f"no connection to {self._settings.address} by {deadline}{before}"
            )
        if not receipt.status:
            return Failure(Fault.HUNG, f"no answer began before {deadline}{before}")
        return Failure(
            Fault.DRIPPING, f"{receipt.received} bytes, not the whole answer, came by {deadline}{before}"
        )

    def _fault(self, failure: Failure) -> ModelFault:
        return ModelFault(
            failure.fault,
            self._scrubber.line(failure.detail),
            attempts=self._attempts,
            seconds=self._seconds(),
            usage=total(usage for usage, _ in self._used),
            cost=_sum(cost for _, cost in self._used),
            wait=failure.wait,
        )

    def _reply(self, completion: Completion) -> Reply:
        self._used.append((completion.usage, completion.cost))
        return Reply(
            text=self._scrubber.text(completion.text),
            usage=total(usage for usage, _ in self._used),
            cost=_sum(cost for _, cost in self._used),
            model=self._scrubber.line(completion.model),
            finish=self._scrubber.line(completion.finish),
            seconds=self._seconds(),
            attempts=self._attempts,
            adjusted=self._dialect.adjusted(),
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._begun


def _sum(costs: Iterable[float | None]) -> float | None:
    """What is known of the cost; None where nothing is."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
