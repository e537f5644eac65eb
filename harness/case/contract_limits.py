"""What holds of a user's Contract before it is asked: no call runs for ever, and no hook is misspelt.

A call that does not end is stopped by a signal, in the judge's main thread. Covered: loops in Python, and waiting. Not
covered: a call into compiled code that never returns.
"""

from __future__ import annotations

import functools
import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hillclimb.harness.case.contract import Contract
from hillclimb.harness.case.durations import describe_limit
from hillclimb.harness.errors import CaseError, OverrunError
from hillclimb.harness.wording import nearest

CALL_SECONDS = 120.0
"""For one call of a contract's method, where the case says nothing else."""

REPEAT_SECONDS = 1.0
"""After which a call is stopped once more that caught what stopped it."""

HOOKS = tuple(
    name
    for name in dict.fromkeys([*inspect.get_annotations(Contract), *vars(Contract)])
    if not name.startswith("_")
)
"""All that a Contract may define for the lab."""

METHODS = tuple(name for name in HOOKS if inspect.isfunction(vars(Contract).get(name)))


class _CallOverran(BaseException):
    """Raised inside the user's code; no `except Exception` there holds it up."""


def limit_calls(contract: Contract, file: Path, seconds: float) -> Contract:
    """The same contract, whose methods raise CaseError with file, method and line once they run that long."""
    for name in METHODS:
        method = getattr(contract, name)
        object.__setattr__(contract, name, _limited(method, file, f"Contract.{name}", seconds))
    return contract


def _limited(method: Callable[..., Any], file: Path, key: str, seconds: float) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        with deadline(file, key, seconds):
            return method(*arguments, **named)

    return call


@contextmanager
def deadline(file: Path, key: str, seconds: float) -> Iterator[None]:
    """Raises CaseError in code of `file` that runs for longer. Off the main thread there is no deadline."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    line = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal line
        while frame is not None and frame.f_code.co_filename != str(file):
            frame = frame.f_back
        line = frame.f_lineno if frame else line
        raise _CallOverran

    began, handler = time.monotonic(), signal.signal(signal.SIGALRM, stop)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_SECONDS)
    try:
        yield
    except _CallOverran:
        where = f"; it is in line {line}" if line else ""
        problem = f"has not ended after {describe_limit(seconds)}{where}"
        remedy = "end that loop, or raise gate.contract_seconds in case.yaml"
        raise OverrunError(file, key, problem, remedy) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # of whoever waits around this call
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - began)), interval)


def require_known_hooks(contract: object, file: Path) -> None:
    """Raises CaseError for a name in a class that is almost a hook's: it would never be asked."""
    for name in vars(contract) if isinstance(contract, type) else ():
        if name in HOOKS or name.startswith("_"):
            continue
        meant = nearest(name, HOOKS)
        if meant and _is_slip(name, meant[0]):
            raise CaseError(
                file,
                f"Contract.{name}",
                "is no hook of a contract, so nothing calls it",
                f"did you mean {meant[0]!r}? A helper of your own needs another name, such as _{name}",
            )


def _is_slip(name: str, hook: str) -> bool:
    """Whether two names differ by as little as a slip of the keys: a letter more, less, another, or two swapped."""
    if name.casefold() == hook.casefold():
        return True
    if abs(len(name) - len(hook)) > 1:
        return False
    start = next(
        (i for i, (a, b) in enumerate(zip(name, hook, strict=False)) if a != b), min(len(name), len(hook))
    )
    ours, theirs = name[start:], hook[start:]
    swapped = len(ours) > 1 and len(theirs) > 1 and ours[:2] == theirs[1::-1] and ours[2:] == theirs[2:]
    return swapped or ours[1:] == theirs or ours == theirs[1:] or ours[1:] == theirs[1:]
