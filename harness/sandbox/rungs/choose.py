"""The border's entrance: rungs from strongest to weakest, each tried with a canary before it is trusted.

bubblewrap   every namespace, an empty root, masked /proc, seccomp, limits
landlock     a user of its own (as root), Landlock, seccomp, limits
none         clean environment, seccomp, limits; only for a workspace the user trusts
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Literal, Protocol

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.canary import canary
from hillclimb.harness.sandbox.confinement import Confinement
from hillclimb.harness.sandbox.fork.prefork import ForkableRung, PreforkRung
from hillclimb.harness.sandbox.process import ExitStatus, SandboxedProcess
from hillclimb.harness.sandbox.rungs.bubblewrap import bubblewrap_rung
from hillclimb.harness.sandbox.rungs.landlock import landlock_rung, trusted_rung
from hillclimb.harness.sandbox.rungs.locked_folder import remove_stale_folders

__all__ = [
    "Confinement",
    "ExitStatus",
    "ForkableRung",
    "PreforkRung",
    "Rung",
    "SandboxedProcess",
    "bubblewrap_rung",
    "choose_rung",
    "landlock_rung",
    "prefork_rung",
    "trusted_rung",
]

REMEDIES = (
    "install bubblewrap (apt install bubblewrap), or allow user namespaces to it "
    "(sysctl kernel.apparmor_restrict_unprivileged_userns=0, kernel.unprivileged_userns_clone=1), "
    "or use Linux 6.2 or newer as root, 6.12 otherwise, for Landlock, "
    "or, to sweep the knobs of your own code only, pass --trust-workspace"
)


class Rung(Protocol):
    """One way of confining a candidate."""

    @property
    def name(self) -> Literal["bubblewrap", "landlock", "none"]:
        """What records say."""

    def spawn(self, argv: Sequence[str], confinement: Confinement) -> SandboxedProcess:
        """Start a confined process. MachineError where the border cannot be raised.

        Call it from a thread that lives as long as the candidate, which ends with the thread that made it.
        """


def prefork_rung(
    rung: ForkableRung, modules: Sequence[str], environment: Mapping[str, str], devices: tuple[str, ...] = ()
) -> PreforkRung:
    """Return a zygote over a chosen rung, from whose forks the canary does not get out either; close it in the end.

    `modules` are imported once, under `environment`; `devices` are those the candidates will get. SandboxError where
    the zygote cannot be prepared, or is no border.
    """
    forking = PreforkRung(rung, modules, environment)
    with ExitStack() as unless_proven:
        unless_proven.callback(forking.close)
        out = [] if rung.name == "none" else canary.escapes_from(forking, devices)
        if out:
            raise SandboxError(f"a fork of the zygote is no border: the canary got out ({', '.join(out)})")
        unless_proven.pop_all()
    return forking


def choose_rung(
    *, trust_workspace: bool, serves: bool = False, devices: tuple[str, ...] = ()
) -> ForkableRung:
    """Return the strongest rung from which the canary does not get out, as a server with `devices` where it `serves`.

    Where there is none: the `none` rung for a trusted workspace, else SandboxError with what was tried.
    """
    remove_stale_folders()
    failures = []
    for name, make in (("bubblewrap", bubblewrap_rung), ("landlock", landlock_rung)):
        try:
            rung = make()
            out = canary.escapes_from(rung, devices, serves=serves)
        except SandboxError as error:
            failures.append(f"{name}: {error}")
            continue
        if not out:
            return rung
        failures.append(f"{name}: the canary got out ({', '.join(out)})")
    if trust_workspace:
        return trusted_rung()
    raise SandboxError(f"no sandbox works here. {'. '.join(failures)}. To go on: {REMEDIES}")
