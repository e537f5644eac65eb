"""A workspace's own backend and its server in a sandbox, as whoever started them holds them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from hillclimb.harness.case.case import Case
from hillclimb.harness.channel import wire
from hillclimb.harness.duel.process.conversation import (
    SCRATCH_BYTES,
    Conversation,
    OutputLog,
    exit_fault,
)
from hillclimb.harness.duel.process.launch_spec import do_nothing
from hillclimb.harness.errors import CandidateFault, UsageError
from hillclimb.harness.records import Reason
from hillclimb.harness.sandbox.rungs.choose import Confinement, ExitStatus, Rung, choose_rung
from hillclimb.harness.serving.backends.backend import ServedModel
from hillclimb.harness.serving.server import GRACE_SECONDS

INSIDE = "hillclimb.harness.serving.confined.inside"

END_SECONDS = GRACE_SECONDS + 2.0
"""For a server that was asked to end."""

WATCH_SECONDS = 0.5
STDERR = 2


@dataclass(frozen=True)
class ServingSpec:
    """What is served, and what of the machine its process is granted for that."""

    workspace: Path
    entry: str
    model: ServedModel
    memory_bytes: int
    load_seconds: float
    """Until it takes requests."""
    devices: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def serving_spec(case: Case, devices: tuple[str, ...], environment: Mapping[str, str]) -> ServingSpec:
    """Of what case.yaml says. Raises UsageError for a case without a backend, or whose model is not there."""
    settings = case.settings
    if settings.serving is None:
        raise UsageError(f"{case.name} has no backend of its own; give its case.yaml a section `serving`")
    name = settings.model or case.name
    model = ServedModel(name, model_path(case), settings.serving.context, settings.serving.slots)
    return ServingSpec(
        case.workspace,
        settings.serving.backend,
        model,
        memory_bytes=settings.budgets.memory_mib << 20,
        load_seconds=settings.budgets.prepare_seconds,
        devices=devices,
        environment=environment,
    )


def model_path(case: Case) -> Path | None:
    """Where the files of a case's model lie; None where it names none. Raises UsageError where they are missing."""
    given = case.settings.model_path
    if not given:
        return None
    path = (case.folder / Path(given).expanduser()).resolve()
    if not path.exists():
        raise UsageError(f"{case.folder / 'case.yaml'}: model_path {given!r}: there is no {path}")
    return path


def serve_confined(
    spec: ServingSpec, listening: socket.socket, tell: Callable[[str], None], *, trust_workspace: bool
) -> None:
    """Answer at a bound socket until an exception ends this; `tell` is told the model's name once requests are taken.

    Raises CandidateFault where the workspace's server does not load or ends, SandboxError where nothing confines it.
    """
    rung = choose_rung(trust_workspace=trust_workspace)
    with ConfinedServer(rung, spec, listening, output=STDERR) as server:
        tell(server.await_ready())
        while (ended := server.wait(WATCH_SECONDS)) is None:
            pass
        raise CandidateFault(*exit_fault(ended))


class ConfinedServer:
    """Alive from its construction until it is closed."""

    def __init__(
        self, rung: Rung, spec: ServingSpec, listening: socket.socket, *, output: int | None = None
    ) -> None:
        """Start it at a bound socket, which stays the caller's. What it prints goes to `output`, or else is kept.

        Raises MachineError where the sandbox cannot be raised.
        """
        self._spec, self._log = spec, OutputLog()
        with ExitStack() as unless_started:
            unless_started.callback(self._log.close)
            ours, theirs = wire.make_pair()
            unless_started.callback(ours.close)
            with theirs:
                numbers = (listening.fileno(), theirs.fileno())
                confinement = self._confinement(numbers, self._log.descriptor if output is None else output)
                self._confined = rung.spawn([sys.executable, "-m", INSIDE, *map(str, numbers)], confinement)
            unless_started.pop_all()
        self._conversation = Conversation(ours, self._confined, self._log, do_nothing)
        self._is_closed = False

    def _confinement(self, descriptors: tuple[int, ...], output: int) -> Confinement:
        spec = self._spec
        return Confinement(
            workspace=spec.workspace,
            memory_bytes=spec.memory_bytes,
            scratch_bytes=SCRATCH_BYTES,
            environment=spec.environment,
            descriptors=descriptors,
            output=output,
            devices=spec.devices,
            readable=(spec.model.path,) if spec.model.path else (),
            serves=True,
        )

    def __enter__(self) -> ConfinedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def await_ready(self) -> str:
        """The model's name, once requests are taken. Raises CandidateFault where none will be."""
        spec = self._spec
        self._conversation.ask(
            {
                "workspace": self._confined.workspace_inside,
                "entry": spec.entry,
                **spec.model._asdict(),
                "path": str(spec.model.path or ""),
            }
        )
        name = self._conversation.answer(spec.load_seconds, "loading").get("model")
        if not isinstance(name, str):
            raise CandidateFault(Reason.BROKE_PROTOCOL, f"told {str(name)[:60]} as its model's name")
        return name

    def wait(self, seconds: float) -> ExitStatus | None:
        """How it ended; None where it is still alive after so long."""
        return self._confined.wait(seconds)

    def close(self) -> None:
        """End it and everything it left behind: answers under way fail first. Again at will."""
        if self._is_closed:
            return
        self._is_closed = True
        self._confined.ask_to_end()
        self._confined.wait(END_SECONDS)
        self._conversation.close()
        try:
            self._confined.kill()
        finally:
            self._log.close()
