"""A workspace's own backend and its server in a sandbox, as whoever started them holds them."""

from __future__ import annotations

import fcntl
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.workspace_names import UNREAD_FOLDERS
from hillclimb.harness.channel import wire
from hillclimb.harness.channel.profile_limits import MAX_KEPT, MAX_ROWS
from hillclimb.harness.duel.process.conversation import (
    SCRATCH_BYTES,
    Conversation,
    OutputLog,
    exit_fault,
)
from hillclimb.harness.duel.process.launch_spec import do_nothing
from hillclimb.harness.errors import CandidateFault, UsageError
from hillclimb.harness.profile.rows import parse_rows
from hillclimb.harness.records import Bucket, Reason
from hillclimb.harness.sandbox.kernel.seccomp import stage_two_program
from hillclimb.harness.sandbox.rungs.bubblewrap_process import INSIDE as INSIDE_LAYOUT
from hillclimb.harness.sandbox.rungs.choose import Confinement, ExitStatus, Rung, choose_rung
from hillclimb.harness.sandbox.rungs.locked_folder import LockedFolder
from hillclimb.harness.serving.backends.backend import ServedModel
from hillclimb.harness.serving.confined.printed import Printed
from hillclimb.harness.serving.confined.relay import Relay
from hillclimb.harness.serving.server import GRACE_SECONDS, listen_on

INSIDE = "hillclimb.harness.serving.confined.inside"

END_SECONDS = GRACE_SECONDS + 2.0
"""For a server that was asked to end."""

WATCH_SECONDS = 0.5

LISTING_SECONDS = 60.0
"""For a profiler to begin, or to tell what it saw."""

HIDDEN = (INSIDE_LAYOUT.workspace, INSIDE_LAYOUT.scratch, INSIDE_LAYOUT.python_path, "/proc", "/dev")
"""Places where a sandbox has something of its own, so that nothing of the host can be shown there."""


@dataclass(frozen=True)
class ServingSpec:
    """What is served, and what of the machine its process is granted for that."""

    workspace: Path
    entry: str
    model: ServedModel
    memory_bytes: int
    load_seconds: float
    """Until it takes requests."""
    readable: tuple[Path, ...] = ()
    """The model's files."""
    devices: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def serving_spec(
    case: Case, devices: tuple[str, ...], environment: Mapping[str, str], name: str | None = None
) -> ServingSpec:
    """Of what case.yaml says; `name` instead of its model's. Raises UsageError where that cannot be served."""
    settings = case.settings
    if settings.serving is None:
        raise UsageError(f"{case.name} has no backend of its own; give its case.yaml a section `serving`")
    path, serving = model_path(case), settings.serving
    return ServingSpec(
        case.workspace,
        serving.backend,
        ServedModel(name or settings.model or case.name, path, serving.context, serving.slots),
        readable=readable_files(path) if path else (),
        memory_bytes=settings.budgets.memory_mib << 20,
        load_seconds=settings.budgets.prepare_seconds,
        devices=devices,
        environment=environment,
    )


def model_path(case: Case) -> Path | None:
    """Where the files of a case's model lie; None where it names none.

    Raises UsageError where they are missing, or cannot be shown in a sandbox.
    """
    path, file = case.model_path, case.folder / "case.yaml"
    hidden = next((place for place in HIDDEN if path and path.is_relative_to(place)), None)
    if hidden is not None:
        given = case.settings.model_path
        raise UsageError(
            f"{file}: model_path {given!r} is below {hidden}, where a sandbox has its own; put it elsewhere"
        )
    return path


def readable_files(path: Path) -> tuple[Path, ...]:
    """A model's folder or file, and the files that links in it lead to, as those of a cache of Hugging Face do.

    Raises UsageError for a link to anything else: whatever it leads to could be read by the workspace.
    """
    cache = path.parent.parent if path.parent.name == "snapshots" else path
    links = [link for link in path.rglob("*") if link.is_symlink()] if path.is_dir() else []
    targets = {link: _target(link) for link in links}
    for link, target in targets.items():
        if target is None or not (target.is_relative_to(path) or target.is_relative_to(cache / "blobs")):
            raise UsageError(f"{link} leads out of the model's folder; put the file itself there")
    outside = {target for target in targets.values() if target and not target.is_relative_to(path)}
    return (path, *sorted(outside))


def _target(link: Path) -> Path | None:
    """The file that a link leads to; None where it is no file, or a loop."""
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return target if target.is_file() else None


def serve_confined(
    spec: ServingSpec,
    listening: socket.socket,
    tell: Callable[[str], None],
    hear: Callable[[str], None],
    *,
    trust_workspace: bool,
) -> None:
    """Answer at a bound socket until an exception ends this.

    `tell` is told the model's name once requests are taken, and `hear` each line that the server prints. Raises
    CandidateFault where the workspace's server does not load or ends, SandboxError where nothing confines it.
    """
    rung = choose_rung(trust_workspace=trust_workspace, serves=True, devices=spec.devices)
    with Relay(listening) as relay, closing(Printed(hear)) as printed:
        with ConfinedServer(rung, spec, output=printed.descriptor) as server:
            server.await_ready()
            relay.start(server.path)
            tell(spec.model.name)
            while (ended := server.wait(WATCH_SECONDS)) is None:
                pass
        raise CandidateFault(*exit_fault(ended))


class ConfinedServer:
    """Alive from its construction until it is closed. It answers at a Unix socket of its own.

    A server without a GPU starts no process once its workspace is imported, and one with a GPU none once it answers.
    """

    def __init__(
        self, rung: Rung, spec: ServingSpec, *, output: int | None = None, is_watched: bool = False
    ) -> None:
        """Start it. What it prints goes to the descriptor `output`, or else is kept to be quoted.

        Of one that is watched, what runs in it can be listed; it is a little slower.

        Raises MachineError where the sandbox cannot be raised.
        """
        self._spec, self._is_closed, self._is_watched = spec, False, is_watched
        with ExitStack() as stack:
            folder = LockedFolder.make("server")
            stack.callback(folder.remove)
            self.path = folder.path / "socket"
            listening = stack.enter_context(listen_on(self.path))
            log = OutputLog()
            stack.callback(log.close)
            ours, theirs = wire.make_pair()
            stack.callback(ours.close)
            with theirs, _above_standard(listening) as passed, _above_standard(theirs) as end:
                numbers = (passed.fileno(), end.fileno())
                confinement = self._confinement(numbers, log.descriptor if output is None else output)
                self._confined = rung.spawn([sys.executable, "-m", INSIDE, *map(str, numbers)], confinement)
            stack.callback(self._confined.kill)
            self._conversation = Conversation(ours, self._confined, log, do_nothing)
            self._stack = stack.pop_all()

    def _confinement(self, descriptors: tuple[int, ...], output: int) -> Confinement:
        spec = self._spec
        return Confinement(
            workspace=spec.workspace,
            memory_bytes=spec.memory_bytes,
            scratch_bytes=SCRATCH_BYTES,
            environment=spec.environment,
            descriptors=descriptors,
            output=output,
            hidden=UNREAD_FOLDERS,
            devices=spec.devices,
            readable=spec.readable,
            serves=True,
        )

    def __enter__(self) -> ConfinedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def await_ready(self) -> None:
        """Wait until requests are taken. Raises CandidateFault where none will be."""
        spec, has_gpu = self._spec, bool(self._spec.devices)
        self._conversation.answer(spec.load_seconds, "starting")
        filters = self._confined.seccomp_filter_count()
        self._conversation.ask(
            {
                "workspace": self._confined.workspace_inside,
                "entry": spec.entry,
                "process_filter": stage_two_program().hex(),
                "is_filtered_later": has_gpu,
                "is_watched": self._is_watched,
                **spec.model._asdict(),
                "path": str(spec.model.path or ""),
            }
        )
        name = self._conversation.answer(spec.load_seconds, "loading").get("model")
        if name != spec.model.name:
            detail = f"serves the model {str(name)[:60]!r}, and was asked for {spec.model.name!r}"
            raise CandidateFault(Reason.BROKE_PROTOCOL, detail)
        if has_gpu and self._confined.seccomp_filter_count() <= filters:
            raise CandidateFault(Reason.BROKE_PROTOCOL, "answered that it starts no process, and can")
        self.require_alone()

    def require_alone(self) -> None:
        """Raises CandidateFault where processes live beside it, though it may start none by now."""
        if others := self._confined.other_pids():
            detail = f"{len(others)} processes of its own live beside it"
            raise CandidateFault(Reason.STARTED_PROCESS, detail)

    @contextmanager
    def listing(self, kept: Sequence[str]) -> Iterator[list[Bucket]]:
        """What runs in it meanwhile, there at the end; rows of functions called as one of `kept` are never left out.

        Raises CandidateFault where it does not tell.
        """
        rows: list[Bucket] = []
        self._conversation.ask({"op": "list", "kept": list(kept)})
        self._conversation.answer(LISTING_SECONDS, "beginning to list what runs")
        yield rows
        self._conversation.ask({"op": "end"})
        told = self._conversation.answer(LISTING_SECONDS, "listing what ran").get("rows")
        rows += parse_rows(told, MAX_ROWS + MAX_KEPT)

    def freeze(self) -> None:
        """Stop every thread of it, and see that it did."""
        self._confined.freeze()

    def thaw(self) -> None:
        """Let it run on."""
        self._confined.thaw()

    def ran_while_frozen(self) -> bool:
        """Whether it got any CPU time since it was seen to have stopped."""
        return self._confined.ran_while_frozen()

    def reset_peak(self) -> None:
        """Let the peak of its memory begin anew."""
        self._confined.reset_peak()

    def peak_bytes(self) -> int:
        """Most resident memory since; 0 once it is gone."""
        return self._confined.peak_bytes()

    def wait(self, seconds: float) -> ExitStatus | None:
        """How it ended; None where it is still alive after so long."""
        return self._confined.wait(seconds)

    def close(self) -> None:
        """End it and everything it left behind: answers under way fail first. Again at will."""
        if self._is_closed:
            return
        with self._stack:
            self._confined.ask_to_end()
            self._confined.wait(END_SECONDS)
        self._is_closed = True


@contextmanager
def _above_standard(one: socket.socket) -> Iterator[socket.socket]:
    """The same socket at a number that none of the standard streams has, which are replaced inside."""
    with socket.socket(fileno=fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)) as other:
        yield other
