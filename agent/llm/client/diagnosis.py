"""What a server means by an answer that is an error."""

from __future__ import annotations

import json
import re
from typing import Any

from hillclimb.agent.llm.client.backoff import retry_after_seconds
from hillclimb.agent.llm.client.faults import AttemptFailure, Fault
from hillclimb.agent.llm.client.http_response import HttpResponse

_QUOTA_CODE = re.compile(
    r"insufficient_quota|billing_hard_limit|billing_not_active|insufficient_(balance|credits)"
)
_QUOTA_TEXT = re.compile(
    r"(?i)exceeded your current quota|credit balance|insufficient (balance|credit|funds)|payment required"
    r"|out of credits|spend(ing)? limit|billing (hard limit|(is |has been )?(not active|disabled|inactive))"
)
_CONTEXT = re.compile(
    r"(?i)context_length_exceeded|exceed_context_size|context (length|window|size)|prompt is too long"
    r"|too many (input )?tokens|input is too long|reduce the length|maximum prompt length|string_above_max_length"
    r"|(token (count|limit)|number of tokens)\b.{0,60}\b(exceed|maximum)|exceed\w*\b.{0,40}\btoken (count|limit)"
    r"|inputs?`? tokens \+|(prompt|input|request)\b.{0,30}\b(exceeds|too (long|large))|longer than the model"
)
_REQUEST_TOO_LARGE = re.compile(
    r"(?i)request too large|too large for|(reduce|shorten) (your|the) (message|request|prompt|input|context)"
    r"|too many (input |prompt )?tokens in|(prompt|input|messages?|context) (is|are) too (long|large)"
    r"|context (length|window)|larger than the (limit|maximum)"
)
"""Of a rate limit: what is too large for the whole of it never passes, however long one waits."""
_REPLY_LIMIT = re.compile(r"(?i)max_(completion_)?tokens\b.{0,60}\btoo large")
"""The limit asked for the reply is what does not fit; a shorter briefing would not help."""
_GATEWAY_STATUSES = (408, 499, 502, 504, 520, 524, 598)
"""Of those that are no standard, Cloudflare's are for an origin that answered nothing, or too late; 499 and 598 are a
proxy's whose client, or whose server, kept it waiting."""
_TIMED_OUT = re.compile(r"(?i)time[d-]? ?out")
_REMEDY = {
    Fault.UNAUTHORISED: "check OPENAI_API_KEY",
    Fault.FORBIDDEN: "check what the API key is allowed to do",
    Fault.QUOTA: "top up the account, or use another key",
    Fault.NO_SUCH_MODEL: "check the model's name and OPENAI_BASE_URL",
    Fault.REDIRECTED: "set OPENAI_BASE_URL to where it points, if you trust that place with the key",
}


def diagnose(answer: HttpResponse) -> AttemptFailure:
    """The fault that an answer with an error status stands for, in the server's own words."""
    said = server_message(answer)
    fault = _fault(answer, said)
    told = f"HTTP {answer.status}: {said.strip() or 'nothing said'}"
    remedy = _REMEDY.get(fault)
    return AttemptFailure(
        fault,
        f"{remedy}; {told}" if remedy else told,
        retry_after_seconds=_retry_after_seconds(answer, fault),
    )


def diagnose_error(answer: HttpResponse, error: Any) -> AttemptFailure | None:
    """The fault behind an `error` object in an answer with status 200; None where it says no more than that."""
    code = str(error.get("code")) if isinstance(error, dict) else ""
    if re.fullmatch(r"[45][0-9][0-9]", code):
        return diagnose(HttpResponse(int(code), answer.headers, answer.body))
    if _QUOTA_CODE.search(json.dumps(error)):
        return diagnose(HttpResponse(402, answer.headers, answer.body))
    return None


def error_message(document: Any) -> str:
    """The message of an error document, in any of the shapes servers give it; empty where there is none."""
    if not isinstance(document, dict):
        return document if isinstance(document, str) else ""
    for key in ("error", "message", "detail", "msg", "title"):
        found = document.get(key)
        if isinstance(found, dict):
            return error_message(found) or json.dumps(found)
        if isinstance(found, list) and found:
            return json.dumps(found)
        if isinstance(found, str) and found:
            return found
    return ""


def server_message(answer: HttpResponse) -> str:
    """What an answer that is an error says, in the server's own words."""
    if 300 <= answer.status < 400:
        return f"to {answer.headers.get('location', 'nowhere')}"
    document = answer.parse_json_or_none()
    if isinstance(document, list) and document:  # Google wraps its errors in a list
        document = document[0]
    return error_message(document) or answer.excerpt()


def _fault(answer: HttpResponse, said: str) -> Fault:
    status = answer.status
    if 300 <= status < 400:
        return Fault.REDIRECTED
    if status == 402 or (status in (400, 403, 429) and _is_quota(answer, said)):
        return Fault.QUOTA
    if status == 413 or (status in (400, 403, 404, 422, 500) and _is_context(answer, said)):
        return Fault.CONTEXT_TOO_LONG
    if status == 429 and _REQUEST_TOO_LARGE.search(said):
        return Fault.CONTEXT_TOO_LONG
    if status in _GATEWAY_STATUSES or (status >= 500 and _TIMED_OUT.search(said)):
        return Fault.GATEWAY
    if status in (409, 425) or status >= 500:
        return Fault.SERVER_ERROR
    named = {
        401: Fault.UNAUTHORISED,
        403: Fault.FORBIDDEN,
        404: Fault.NO_SUCH_MODEL,
        429: Fault.RATE_LIMITED,
    }
    return named.get(status, Fault.BAD_REQUEST)


def _is_quota(answer: HttpResponse, said: str) -> bool:
    """A server that also says when to come back means a rate, whatever words it uses."""
    if _QUOTA_CODE.search(_codes(answer)):
        return True
    return bool(_QUOTA_TEXT.search(said)) and retry_after_seconds(answer.headers, answer.body) is None


def _is_context(answer: HttpResponse, said: str) -> bool:
    too_long = _CONTEXT.search(said) or _CONTEXT.search(_codes(answer))
    return bool(too_long) and not _REPLY_LIMIT.search(said)


def _codes(answer: HttpResponse) -> str:
    document = answer.parse_json_or_none()
    error = document.get("error") if isinstance(document, dict) else None
    places = [place for place in (document, error) if isinstance(place, dict)]
    return " ".join(str(place.get(key, "")) for place in places for key in ("code", "type"))


def _retry_after_seconds(answer: HttpResponse, fault: Fault) -> float | None:
    return retry_after_seconds(answer.headers, answer.body) if fault.max_attempts > 1 else None
