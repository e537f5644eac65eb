"""Everything that can go wrong with one call to the model, by name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hillclimb.agent.record.entries import TokenUsage
from hillclimb.harness.errors import HillclimbError


class Fault(StrEnum):
    """Why a call brought no reply. The list is closed."""

    # the way there and back
    UNREACHABLE = "unreachable"
    """No connection: refused, no such host, no route."""
    NO_TLS = "no_tls"
    """No encrypted connection: a certificate that does not hold, or a port that speaks plain HTTP."""
    HUNG = "hung"
    """The deadline passed before the head of an answer was there."""
    DRIPPING = "dripping"
    """The deadline passed while the answer's body was still coming."""
    CUT_OFF = "cut_off"
    """The connection ended before the answer did."""
    BROKEN_HTTP = "broken_http"
    """What came breaks HTTP: a garbled status line, header, length or compression."""
    REDIRECTED = "redirected"
    """The server points elsewhere; not followed, since the key would travel along."""
    TOO_LARGE = "too_large"
    """The body passed the cap."""
    # what the server said instead of an answer
    RATE_LIMITED = "rate_limited"
    QUOTA = "quota"
    """The account's money or allowance is used up."""
    UNAUTHORISED = "unauthorised"
    FORBIDDEN = "forbidden"
    NO_SUCH_MODEL = "no_such_model"
    """Or no such address: 404 means either."""
    BAD_REQUEST = "bad_request"
    CONTEXT_TOO_LONG = "context_too_long"
    """The briefing does not fit the model; a shorter one may."""
    SERVER_ERROR = "server_error"
    GATEWAY = "gateway"
    """Something between here and the model gave up waiting for it; it may have worked, and be billed."""
    # an answer that is none
    EMPTY_BODY = "empty_body"
    NOT_JSON = "not_json"
    """HTML or plain text, with status 200: something on the way speaks, not the model."""
    BROKEN_JSON = "broken_json"
    NO_CHOICES = "no_choices"
    NO_CONTENT = "no_content"
    """A choice without text: null, blank, thoughts or tool calls only."""
    REFUSED = "refused"
    """The model declined, or a content filter stood in between."""
    TRUNCATED = "truncated"
    """The reply met its token limit; half a change is none."""
    UNEXPECTED = "unexpected"
    """The client itself failed; a defect to report."""

    @property
    def is_final(self) -> bool:
        """Whether further calls cannot succeed either until a person changes something.

        Servers have hiccups with these words too: where a call has succeeded before, the caller may ask again. Only a
        used-up quota is beyond doubt.
        """
        return self in (Fault.NO_TLS, Fault.QUOTA, Fault.UNAUTHORISED, Fault.FORBIDDEN, Fault.NO_SUCH_MODEL)

    @property
    def max_attempts(self) -> int:
        """The most attempts worth making; fewer where each of them may have been paid for."""
        if self in (Fault.UNREACHABLE, Fault.RATE_LIMITED, Fault.SERVER_ERROR):
            return 8
        if self in (Fault.GATEWAY, Fault.CUT_OFF):
            return 2
        return 3 if self in _TRANSIENT_FAULTS else 1


_TRANSIENT_FAULTS = (
    Fault.BROKEN_HTTP,
    Fault.EMPTY_BODY,
    Fault.NOT_JSON,
    Fault.BROKEN_JSON,
    Fault.NO_CHOICES,
)


@dataclass(frozen=True)
class AttemptFailure:
    """How one attempt failed. `detail` is as the server put it: never shown before it is scrubbed."""

    fault: Fault
    detail: str
    retry_after_seconds: float | None = None
    """Seconds that the server asked to wait."""
    usage: TokenUsage | None = None
    """Where the answer tells of an attempt that ran all the same."""
    cost: float | None = None


class ModelFault(HillclimbError):
    """A call is over without a reply; `detail` is one line, never empty, free of secrets."""

    def __init__(
        self,
        fault: Fault,
        detail: str,
        *,
        attempts: int = 1,
        seconds: float = 0.0,
        usage: TokenUsage | None = None,
        cost: float | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        detail = detail.strip() or "nothing was said about it"
        super().__init__(f"{fault.value}: {detail}")
        self.fault, self.detail = fault, detail
        self.attempts, self.seconds = attempts, seconds
        self.usage = usage or TokenUsage()
        self.cost = cost
        self.retry_after_seconds = retry_after_seconds
        """Seconds that the server asked to wait before the next call; None where it did not say."""

    @property
    def is_final(self) -> bool:
        """As `Fault.is_final`: a person must change something, unless calls succeeded before and this is a hiccup."""
        return self.fault.is_final
