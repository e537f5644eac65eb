"""The judge's process:

`python -m hillclimb.harness.judge FD CASE_FOLDER [--trust-workspace]`, spoken to by hillclimb.harness.judge.pool.

Lines of JSON both ways. A request is {"op": method, "arguments": {...}}; the answer is any number of
{"progress": {...}} and then one of {"answer": {...}} and {"error": {"kind": class name, "arguments": [...]}}.
"""

from __future__ import annotations

import ctypes
import json
import secrets
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.channel import wire
from hillclimb.harness.channel.vmm import CudaError
from hillclimb.harness.device.cpu.cpu import raise_priority
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.process.launch_spec import thread_variables
from hillclimb.harness.duel.secret_random import SecretRandom
from hillclimb.harness.errors import CaseError, HillclimbError, MachineError, UnreapedError, UsageError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.judge.metric_judge import MetricJudge
from hillclimb.harness.judge.open_device import open_device
from hillclimb.harness.os_errors import translated_os_errors
from hillclimb.harness.records import Progress, Record, Side
from hillclimb.harness.sandbox.rungs.choose import Rung, choose_rung, prefork_rung
from hillclimb.harness.surfaces.shell_json.shell_json import ShellJson
from hillclimb.harness.surfaces.surface import Surface

PR_SET_PDEATHSIG = 1

DRIVER = Path("/dev/nvidiactl")
"""Here where NVIDIA's driver is."""

PRELOADED = ("numpy", "yaml", "hillclimb.harness.candidate.preload")
"""What the process imports from which candidates for a GPU are forked."""


AnyJudge = CaseJudge | MetricJudge

IDLE_SECONDS = 0.3
"""Without a request, after which a climb has nothing to ask for the moment."""


def serve(end: socket.socket, case_folder: Path, trust_workspace: bool) -> None:
    """Answer requests until the controller hangs up."""
    lines = end.makefile("rwb", buffering=0)

    def say(kind: str, body: Any) -> None:
        lines.write(json.dumps({kind: body}).encode() + b"\n")

    def watch(progress: Progress) -> None:
        say("progress", progress.model_dump())

    try:
        with translated_os_errors("the judge could not take up the case"):
            judge = open_judge(Case(case_folder), trust_workspace)
    except HillclimbError as error:
        say("error", describe(error))
        return
    say("answer", None)
    trouble: HillclimbError | None = None
    with closing(judge):
        while True:
            trouble = trouble or clean_up_when_idle(end, judge, watch)
            if not (request := lines.readline()):
                return
            message = json.loads(request)
            try:
                if trouble and message["op"] != "prepare":  # a hint that fails is forgotten
                    raise trouble
                answer = answer_one(judge, message["op"], message["arguments"], watch)
            except HillclimbError as error:
                say("error", describe(error))
                trouble = None if error is trouble else trouble
            else:
                say("answer", answer.model_dump(mode="json"))


def clean_up_when_idle(end: socket.socket, judge: AnyJudge, watch: Any) -> HillclimbError | None:
    """Where the next request takes its time, clean up; what goes wrong is the answer to the next question."""
    if wire.make_poll(end).poll(IDLE_SECONDS * 1e3):
        return None
    try:
        answer_one(judge, "clean_up", {}, watch)
    except HillclimbError as error:
        return error
    return None


def open_judge(case: Case, trust_workspace: bool) -> AnyJudge:
    """The judge of a case on the device it is for; where there is no GPU for it, one that compiles and interprets."""
    rung = choose_rung(trust_workspace=trust_workspace)
    if not case.has_contract:
        return open_metric_judge(case, rung, trust_workspace)
    if case.settings.device == "cpu":
        return CaseJudge(case, rung, open_device("cpu"))
    if not DRIVER.exists():
        return CaseJudge(case, rung, open_device("interpreter"))
    device = open_device("cuda")
    return CaseJudge(case, prefork_rung(rung, PRELOADED, thread_variables(), device.nodes()), device)


def open_metric_judge(case: Case, rung: Rung, trust_workspace: bool) -> MetricJudge:
    """Raises UsageError where the case needs a GPU, or packages, and there are none."""
    if case.settings.device == "cuda" and not DRIVER.exists():
        raise UsageError(f"{case.name} is measured on an NVIDIA GPU, and none is here")
    seed, device = secrets.token_bytes(32), open_device(case.settings.device)
    secret = SecretRandom(seed)
    serves = case.settings.surface == "openai_http"
    if serves or device.nodes():
        rung = choose_rung(trust_workspace=trust_workspace, serves=serves, devices=device.nodes())
    make = open_served if serves else ShellJson
    return MetricJudge(case, rung, device, make(case, rung, device, secret), seed)


def open_served(case: Case, rung: Rung, device: Device, secret: SecretRandom) -> Surface:
    """Raises UsageError where what serving needs is not installed, or the model cannot be read."""
    try:
        from hillclimb.harness.surfaces.openai_http.openai_http import OpenAIHttp
        from hillclimb.harness.surfaces.openai_http.served_parity import ServedParity
    except ImportError as error:
        raise UsageError(f"servers are measured with hillclimb[serving]; install it ({error})") from None
    assert case.model_path is not None
    return OpenAIHttp(
        case, rung, device, secret, ServedParity(case.model_path, torch.device(device.torch_device))
    )


def answer_one(judge: AnyJudge, op: str, arguments: dict[str, Any], watch: Any) -> Record:
    """The judge's answer. What the disk refuses is told as such, so that the climb can wait for it."""
    with translated_os_errors(f"the judge could not {op}"):
        try:
            return dispatch(judge, op, arguments, watch)
        except UnreapedError as error:
            judge.quarantine(error)
            raise
        except (torch.OutOfMemoryError, torch.AcceleratorError, CudaError) as error:
            raise MachineError(f"CUDA failed in the judge: {error}") from error


def dispatch(judge: AnyJudge, op: str, arguments: dict[str, Any], watch: Any) -> Record:
    if op == "describe":
        return judge.describe()
    if op == "clean_up":
        return judge.clean_up()
    sides = {name: Side(**value) for name, value in arguments.items() if isinstance(value, dict)}
    if op == "prepare":
        return judge.prepare(**sides)
    plain = {name: value for name, value in arguments.items() if not isinstance(value, dict)}
    answer: Record = getattr(judge, op)(**sides, **plain, watch=watch)
    return answer


def describe(error: HillclimbError) -> dict[str, Any]:
    if isinstance(error, CaseError):
        return {"kind": "CaseError", "arguments": [error.file, error.key, error.problem, error.remedy]}
    return {"kind": type(error).__name__, "arguments": [str(error)]}


def die_with_parent() -> None:
    """A judge never outlives its controller, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    die_with_parent()
    sys.dont_write_bytecode = True  # the contract lies in the user's checkout, where nothing is written
    raise_priority()
    # torch's workers spin between operations: on shared CPUs the gate took 20 times as long with them
    torch.set_num_threads(1)
    serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]), "--trust-workspace" in sys.argv[3:])


if __name__ == "__main__":
    main()
