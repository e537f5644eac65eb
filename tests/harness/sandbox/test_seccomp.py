"""The assembler against an interpreter of BPF, the tables against headers, both filters against the kernel."""

from __future__ import annotations

import json
import re
import signal
import struct
import subprocess
import sys
import textwrap
from errno import EPERM
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.kernel import seccomp, syscalls
from hillclimb.harness.sandbox.kernel.seccomp import (
    REFUSED,
    STAGE_TWO_RULES,
    Action,
    ArgumentTest,
    Rule,
    SandboxKind,
    notifying_rules,
    stage_one_rules,
)

MACHINES = st.sampled_from(sorted(syscalls.AUDIT_ARCH))
KINDS: tuple[SandboxKind, ...] = ("cpu", "gpu", "tools", "server", "gpu server")
STAGES = st.sampled_from([*map(stage_one_rules, KINDS), *map(notifying_rules, KINDS), STAGE_TWO_RULES])
NUMBERS = st.one_of(
    st.sampled_from([number for pair in syscalls.TABLE.values() for number in pair if number is not None]),
    st.integers(0, syscalls.NEWEST),
)
WORDS = st.one_of(
    st.sampled_from([0, 1, 2, 4, 0x10000, 0x3D0F00, 0x10000000, 0x5412]), st.integers(0, 2**64 - 1)
)
CALLS = st.tuples(NUMBERS, st.lists(WORDS, min_size=6, max_size=6))


def interpret(program: bytes, architecture: int, number: int, arguments: list[int]) -> int:
    """Run classic BPF over a struct seccomp_data as the kernel does."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments)
    code = list(struct.iter_unpack("=HBBI", program))
    at, loaded = 0, 0
    while True:
        operation, if_true, if_false, operand = code[at]
        at += 1
        if operation == seccomp.RETURN:
            return operand
        if operation == seccomp.LOAD:
            (loaded,) = struct.unpack_from("=I", data, operand)
            continue
        holds = {
            seccomp.EQUALS: loaded == operand,
            seccomp.AT_LEAST: loaded >= operand,
            seccomp.HAS_BITS: bool(loaded & operand),
        }[operation]
        at += if_true if holds else if_false


def expected(rules: tuple[Rule, ...], machine: str, number: int, arguments: list[int]) -> Action:
    """What the rules say, read as a person reads them."""
    for rule in rules:
        if syscalls.number(rule.call, machine) == number and (
            rule.when is None or holds(rule.when, arguments)
        ):
            return rule.action
    return Action.ALLOW


def holds(when: ArgumentTest, arguments: list[int]) -> bool:
    word = arguments[when.argument] & 0xFFFFFFFF
    return {
        "is": word == when.value,
        "is not": word != when.value,
        "has": bool(word & when.value),
        "lacks": not word & when.value,
    }[when.test]


@given(MACHINES, STAGES, CALLS)
def test_the_program_decides_as_its_rules_do(
    machine: str, rules: tuple[Rule, ...], call: tuple[int, list[int]]
) -> None:
    verdict = interpret(seccomp.assemble(rules, machine), syscalls.AUDIT_ARCH[machine], *call)
    assert verdict == expected(rules, machine, *call)


@given(MACHINES, STAGES, CALLS, st.integers(0, 2**32 - 1))
def test_another_machines_calls_are_killed(
    machine: str, rules: tuple[Rule, ...], call: tuple[int, list[int]], architecture: int
) -> None:
    if architecture != syscalls.AUDIT_ARCH[machine]:
        assert interpret(seccomp.assemble(rules, machine), architecture, *call) == Action.KILL


@pytest.mark.parametrize("machine", sorted(syscalls.AUDIT_ARCH))
def test_x32_is_killed_and_the_unknown_looks_unimplemented(machine: str) -> None:
    program, architecture = seccomp.assemble(stage_one_rules("cpu"), machine), syscalls.AUDIT_ARCH[machine]
    assert interpret(program, architecture, syscalls.X32_BIT | 39, [0] * 6) == Action.KILL
    assert interpret(program, architecture, syscalls.NEWEST + 1, [0] * 6) == Action.UNKNOWN
    assert interpret(program, architecture, syscalls.NEWEST, [0] * 6) == Action.ALLOW


@pytest.mark.parametrize("machine", sorted(syscalls.AUDIT_ARCH))
@pytest.mark.parametrize("rules", [*map(stage_one_rules, KINDS), STAGE_TWO_RULES], ids=[*KINDS, "stage two"])
def test_programs_fit_the_kernels_limit(machine: str, rules: tuple[Rule, ...]) -> None:
    assert len(seccomp.assemble(rules, machine)) // 8 < 4096


def test_a_machine_no_filter_is_written_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls.platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxError, match="riscv64"):
        seccomp.stage_one_program()


@pytest.mark.parametrize(
    ("column", "headers"),
    [
        (0, ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"]),
        (1, ["/usr/include/asm-generic/unistd.h"]),
    ],
    ids=["x86_64", "aarch64"],
)
def test_the_tables_agree_with_the_kernels_headers(column: int, headers: list[str]) -> None:
    header = next((Path(name) for name in headers if Path(name).exists()), None)
    if header is None:
        pytest.skip(f"kernel headers are not installed: {headers[0]}")
    pattern = r"#define __NR(?:3264)?_(\w+)\s+(\d+)"
    known = {name: int(number) for name, number in re.findall(pattern, header.read_text())}
    compared = 0
    for name, numbers in syscalls.TABLE.items():
        if name in known:
            assert numbers[column] == known[name], name
            compared += 1
        elif numbers[column] is not None:
            assert numbers[column] > max(known.values()), f"{name} is not in {header}"
    assert compared > 90


def test_every_refused_call_is_refused_by_the_kernel() -> None:
    """Each with arguments of zero, under the real filter: EPERM, whatever the kernel would have said."""
    code = """
    import ctypes, json, sys
    from hillclimb.harness.sandbox.kernel import seccomp, syscalls
    seccomp.load_filter(seccomp.stage_one_program())
    libc = ctypes.CDLL(None, use_errno=True)
    answers = {}
    for name in sys.argv[1].split():
        number = syscalls.number(name, syscalls.machine())
        if number is not None:
            answers[name] = (libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno())
    print(json.dumps(answers))
    """
    names = " ".join(REFUSED.values())
    program = _python(code, names)
    answers = json.loads(program.stdout)
    assert len(answers) > 80
    assert {name: answer for name, answer in answers.items() if answer != [-1, EPERM]} == {}


def test_a_driver_may_listen_and_still_nobody_can_be_talked_to() -> None:
    """What libcuda does as it starts, by socket(2)'s arguments; all that could reach anybody stays refused."""
    code = """
    import json, os, socket
    from hillclimb.harness.sandbox.kernel import seccomp
    seccomp.load_filter(seccomp.stage_one_program("gpu"))
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    end.bind(f"\\0cuda-uvmfd-{os.getpid()}")
    end.listen(16)
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    refused = []
    for attempt in (
        lambda: socket.socket(socket.AF_INET),
        lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
        lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK),
        lambda: socket.socket(socket.AF_UNIX, socket.SOCK_RAW),
        lambda: end.accept(),
        lambda: socket.socket(socket.AF_UNIX).connect("/tmp/any"),
        lambda: socket.socketpair(),
    ):
        try: attempt()
        except PermissionError: refused.append(True)
        else: refused.append(False)
    print(json.dumps(refused))
    """
    program = _python(code)
    assert json.loads(program.stdout) == [True] * 9, program.stderr


def test_only_tools_may_talk_freely() -> None:
    talk = set(REFUSED["every way to talk but the one socket inherited"].split())
    for kind in KINDS:
        refused = {
            rule.call for rule in stage_one_rules(kind) if rule.when is None and rule.action is Action.REFUSE
        }
        assert (refused & talk == set()) == (kind == "tools")
        assert {"ptrace", "mount", "io_uring_setup", "setns", "bpf"} <= refused


@pytest.mark.parametrize(
    ("call", "machine_code"),
    [
        ("i386 getpid", "b814000000cd80c3"),  # mov eax, 20; int 0x80; ret
        ("x32 getpid", "b8270000400f05c3"),  # mov eax, 0x40000027; syscall; ret
    ],
)
@pytest.mark.skipif(syscalls.platform.machine() != "x86_64", reason="these are x86-64's other doors")
def test_the_kernel_kills_foreign_calls(call: str, machine_code: str) -> None:
    code = """
    import ctypes, mmap, sys
    from hillclimb.harness.sandbox.kernel import seccomp
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex(sys.argv[1]))
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    seccomp.load_filter(seccomp.stage_one_program())
    ctypes.CFUNCTYPE(ctypes.c_long)(address)()
    """
    assert _python(code, machine_code).returncode == -signal.SIGSYS


def test_of_itself_a_process_may_still_ask() -> None:
    code = """
    import os, resource, threading
    from hillclimb.harness.sandbox.kernel import seccomp
    seccomp.load_filter(seccomp.stage_one_program())
    seccomp.forbid_processes()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    threading.Thread(target=print, args=("fine",)).start()
    """
    program = _python(code)
    assert (program.returncode, program.stdout) == (0, "fine\n"), program.stderr


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True, timeout=60
    )
