"""One call: attempts and pauses under one deadline, ending in a reply or a fault."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from hillclimb.agent.llm.client.backoff import BackoffPolicy
from hillclimb.agent.llm.client.completion import Completion, read_completion
from hillclimb.agent.llm.client.faults import AttemptFailure, Fault, ModelFault
from hillclimb.agent.llm.client.messages import Message, Reply
from hillclimb.agent.llm.client.request_form import RequestForm
from hillclimb.agent.llm.client.scrubber import Scrubber
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.llm.client.usage import estimate_usage, total
from hillclimb.agent.record.entries import TokenUsage
from hillclimb.harness.wording import count

if TYPE_CHECKING:
    from hillclimb.agent.llm.client.body import AttemptProgress
    from hillclimb.agent.llm.client.wire import ChatClient


MIN_DEADLINE_SHARE = 0.05
"""Of the deadline; with less than that left, another attempt would only turn one fault into another."""


MAX_PAID_ATTEMPTS = 3
"""Of attempts that failed and are paid for all the same."""


class ModelCall:
    """Everything one call needs, and what it has used so far."""

    def __init__(
        self,
        messages: Sequence[Message],
        settings: ModelSettings,
        wire: ChatClient,
        form: RequestForm,
        pauses: BackoffPolicy,
        rng: random.Random,
        on_attempt: Callable[[AttemptFailure | None], None] = lambda failure: None,
    ) -> None:
        """`on_attempt` is told how each attempt ended: None where an answer came that can be read."""
        self._messages, self._settings = messages, settings
        self._on_attempt = on_attempt
        self._progress: AttemptProgress | None = None
        self._client, self._form, self._backoff, self._rng = wire, form, pauses, rng
        self._scrubber = Scrubber(settings)
        self._begun = time.monotonic()
        self._attempts = 0
        self._adjustments = 0
        self._usages: list[tuple[TokenUsage, float | None]] = []
        self._last: AttemptFailure | None = None

    async def run(self) -> Reply:
        """The reply, or ModelFault; no later than the deadline."""
        from hillclimb.agent.llm.client.body import AttemptProgress

        receipt = self._progress = AttemptProgress()
        try:
            async with asyncio.timeout(self._settings.deadline_seconds):
                outcome = await self._attempt_until_settled(receipt)
        except TimeoutError:
            outcome = self._deadline_failure(receipt)
            self._record_usage(outcome, receipt)
        except Exception as error:  # noqa: BLE001 - the call's border: what breaks ends this call alone
            outcome = AttemptFailure(Fault.UNEXPECTED, f"{type(error).__name__}: {error}")
        if isinstance(outcome, AttemptFailure):
            raise self._fault(outcome)
        return self._reply(outcome)

    def usage_so_far(self) -> tuple[TokenUsage, float | None]:
        """What it used if it is given up now: nothing where no request went out."""
        used = list(self._usages)
        if self._progress is not None and self._progress.sent:
            used.append(estimate_usage(self._messages, self._settings))
        return total(usage for usage, _ in used), _sum(cost for _, cost in used)

    async def _attempt_until_settled(self, receipt: AttemptProgress) -> Completion | AttemptFailure:
        while True:
            outcome = await self._attempt(receipt)
            if isinstance(outcome, Completion):
                self._on_attempt(None)
                return outcome
            is_paid = self._record_usage(outcome, receipt)
            receipt.clear()
            self._on_attempt(outcome)
            if outcome.fault is Fault.GATEWAY:
                self._form.stream()  # what comes word by word keeps the way open
            ended = await self._wait_before_retry(outcome, is_paid)
            if ended:
                return ended
            self._last = outcome

    async def _attempt(self, receipt: AttemptProgress) -> Completion | AttemptFailure:
        """One request, and as many more as the server wants it in another form."""
        while True:
            self._attempts += 1
            receipt.clear()
            sent = self._form.parameters()
            answer = await self._client.send(self._form.messages(self._messages), sent, receipt)
            if isinstance(answer, AttemptFailure):
                return answer
            outcome = read_completion(answer, "".join(m.content for m in self._messages), self._settings)
            if isinstance(outcome, Completion) or not self._form.learn(answer, self._messages, sent):
                return outcome
            self._adjustments += 1

    def _record_usage(self, failure: AttemptFailure, receipt: AttemptProgress) -> bool:
        """Whether a failed attempt used anything: as told in its answer, else the most where the model probably ran."""
        if failure.usage:
            self._usages.append((failure.usage, failure.cost))
        elif receipt.may_have_run(failure.fault):
            self._usages.append(estimate_usage(self._messages, self._settings))
        else:
            return False
        return True

    async def _wait_before_retry(self, failure: AttemptFailure, is_paid: bool) -> AttemptFailure | None:
        """Wait for the next attempt; where none is worth making, the failure that the call ends with."""
        tries = self._attempts - self._adjustments
        if tries >= min(
            failure.fault.max_attempts, MAX_PAID_ATTEMPTS if is_paid else failure.fault.max_attempts
        ):
            return failure
        pause = self._backoff.delay_seconds(tries, failure.retry_after_seconds, self._rng)
        left = self._settings.deadline_seconds - self._seconds()
        if pause + MIN_DEADLINE_SHARE * self._settings.deadline_seconds < left:
            await asyncio.sleep(pause)
            return None
        if failure.retry_after_seconds is None:
            return failure
        asked = f"the server asks to wait {failure.retry_after_seconds:.6g} s, {left:.3g} s are left"
        return AttemptFailure(
            failure.fault, f"{asked}; {failure.detail}", retry_after_seconds=failure.retry_after_seconds
        )

    def _deadline_failure(self, receipt: AttemptProgress) -> AttemptFailure:
        deadline = f"the deadline of {self._settings.deadline_seconds:g} s"
        before = f"; before that, {self._last.fault.value}: {self._last.detail}" if self._last else ""
        if not receipt.connected:
            return AttemptFailure(
                Fault.UNREACHABLE, f"no connection to {self._settings.address} by {deadline}{before}"
            )
        if not receipt.status:
            return AttemptFailure(Fault.HUNG, f"no answer began before {deadline}{before}")
        return AttemptFailure(
            Fault.DRIPPING,
            f"{count(receipt.body_bytes, 'byte')}, not the whole answer, came by {deadline}{before}",
        )

    def _fault(self, failure: AttemptFailure) -> ModelFault:
        return ModelFault(
            failure.fault,
            self._scrubber.scrub_line(failure.detail),
            attempts=self._attempts,
            seconds=self._seconds(),
            usage=total(usage for usage, _ in self._usages),
            cost=_sum(cost for _, cost in self._usages),
            retry_after_seconds=failure.retry_after_seconds,
        )

    def _reply(self, completion: Completion) -> Reply:
        self._usages.append((completion.usage, completion.cost))
        return Reply(
            text=self._scrubber.scrub_text(completion.text),
            usage=total(usage for usage, _ in self._usages),
            cost=_sum(cost for _, cost in self._usages),
            model=self._scrubber.scrub_line(completion.model),
            finish=self._scrubber.scrub_line(completion.finish),
            seconds=self._seconds(),
            attempts=self._attempts,
            prompt_cut_to=completion.prompt_cut_to,
            adjusted=self._form.adjusted(),
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._begun


def _sum(costs: Iterable[float | None]) -> float | None:
    """What is known of the cost; None where nothing is."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
