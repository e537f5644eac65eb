"""One call of a contract's method: what it raises or gives wrongly is told as the contract's fault."""

from __future__ import annotations

import keyword
import traceback
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from hillclimb.harness.errors import CaseError, UsageError

Answer = TypeVar("Answer")

METHOD_REMEDY = "mend that method; docs/reference/case-format.md says what it gives"
GRAD_REMEDY = "wrap what derives by autograd in `with torch.enable_grad():`, and detach what it gives"


@dataclass(frozen=True)
class ContractCall:
    """One call of one method, for the message where it goes wrong."""

    file: Path
    key: str

    def refuse(self, problem: str, remedy: str = METHOD_REMEDY) -> NoReturn:
        raise CaseError(self.file, self.key, problem, remedy)

    @contextmanager
    def errors_reported(self) -> Iterator[None]:
        """Whatever the user's code raises becomes a CaseError with its line."""
        try:
            yield
        except UsageError:
            raise
        except (Exception, SystemExit) as error:
            lines = [
                f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self.file)
            ]
            where = f" in line {lines[-1]}" if lines else ""
            problem = f"raised {type(error).__name__}{where}: {str(error).strip() or 'no message'}"
            needs_grad = "does not require grad" in str(error)
            raise CaseError(
                self.file, self.key, problem, GRAD_REMEDY if needs_grad else METHOD_REMEDY
            ) from error


def expect_identifier(call: ContractCall, key: object) -> None:
    """Of what is handed to a function by name, as Python has names."""
    is_name = isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key)
    if not is_name or unicodedata.normalize("NFKC", str(key)) != key or str(key).startswith("__"):
        call.refuse(f"names {key!r}, which no function can have as a parameter", "choose another name")


def expect_other_names(call: ContractCall, given: Iterable[str], taken: Container[str], kind: str) -> None:
    """Nothing is called as one of those that are taken."""
    if shared := next((name for name in given if name in taken), None):
        call.refuse(f"names {shared!r}, as one of the {kind} is called", "choose another name")


def expect_mapping(call: ContractCall, given: Any, kind: type[Answer]) -> dict[str, Answer]:
    if not isinstance(given, Mapping) or not given:
        call.refuse(
            f"gives {type(given).__name__}{'' if given else ', empty'}", f"give a dict of {kind.__name__}s"
        )
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, kind):
            call.refuse(
                f"gives {key!r} a {type(value).__name__}", f"give a dict of names to {kind.__name__}s"
            )
    return dict(given)
