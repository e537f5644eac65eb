"""What was said to the model and what it answered: calls/<k>.json in the run's folder, one file a call."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from hillclimb.agent.llm.client.messages import Message
from hillclimb.agent.machine.disk import Disk, storage_error
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Record


class Exchange(Record):
    """One call, whole; the ledger's `called` line has its figures."""

    k: int
    messages: tuple[Message, ...]
    reply: str = ""
    """Empty where none came."""
    finish: str = ""
    """Why the model stopped, as the server says it."""
    adjusted: tuple[str, ...] = ()
    """Parameters that the server would not take and that were left out."""


class ExchangeStore:
    """The folder of them."""

    def __init__(self, run_folder: Path, disk: Disk) -> None:
        self._folder, self._disk = run_folder / "calls", disk

    def write(self, exchange: Exchange) -> None:
        """Put one down, whole or not at all."""
        self._disk.make_folder(self._folder)
        self._disk.replace(self._path(exchange.k), exchange.model_dump_json().encode())

    def read(self, k: int) -> Exchange:
        """Raises UsageError where the file was removed or damaged, StorageError where the disk refuses."""
        try:
            return Exchange.model_validate_json(self._path(k).read_bytes())
        except (FileNotFoundError, ValidationError):
            raise UsageError(f"{self._path(k)}: gone or damaged; put it back from a backup") from None
        except OSError as error:
            raise storage_error(self._path(k), error) from error

    def _path(self, k: int) -> Path:
        return self._folder / f"{k}.json"
