"""Forked candidates: what a fork could leak or leave behind, and who ends with whom."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hillclimb.harness.duel.process.launch_spec import thread_variables
from hillclimb.harness.errors import MachineError, SandboxError
from hillclimb.harness.judge.__main__ import PRELOADED
from hillclimb.harness.sandbox.fork.prefork import ForkedProcess, PreforkRung
from hillclimb.harness.sandbox.kernel import landlock
from hillclimb.harness.sandbox.rungs.bubblewrap import BubblewrapRung
from hillclimb.harness.sandbox.rungs.bubblewrap_process import holder_command
from hillclimb.harness.sandbox.rungs.choose import (
    Confinement,
    ExitStatus,
    ForkableRung,
    bubblewrap_rung,
    landlock_rung,
    prefork_rung,
)
from tests.contracts.test_rungs import is_alive, wait_for
from tests.harness.sandbox.conftest import MAKERS
from tests.harness.sandbox.inside import MEMORY_BYTES, SCRATCH_BYTES, Start
from tests.open_descriptors import nothing_left_open


@pytest.fixture(params=["bubblewrap", "landlock"])
def forking(request: pytest.FixtureRequest) -> Iterator[PreforkRung]:
    """A zygote over each rung, with nothing imported."""
    try:
        rung = MAKERS[request.param]()
    except SandboxError as error:
        pytest.skip(str(error))
    with PreforkRung(rung, []) as made:
        yield made


@pytest.fixture
def fork(forking: PreforkRung, workspace: Path) -> Iterator[Start]:
    starter = Start(forking, workspace)
    yield starter
    starter.end_all()


def test_python_programs_are_forked_and_others_are_not(fork: Start) -> None:
    running = fork("import os; print(os.getpid())")
    assert isinstance(running.confined, ForkedProcess)
    assert running.finish()[0] == ExitStatus(0, None)
    confinement = Confinement(fork.workspace, MEMORY_BYTES, SCRATCH_BYTES)
    fresh = fork.rung.spawn(["/bin/sh", "-c", "exit 3"], confinement)
    assert not isinstance(fresh, ForkedProcess)
    assert fresh.wait(20) == ExitStatus(3, None)


def test_a_variable_that_python_reads_at_start_takes_a_fresh_process(fork: Start) -> None:
    code = "import sys; print(sys.flags.hash_randomization, hash('a'))"
    said = {fork(code, environment={"PYTHONHASHSEED": "0"}).finish()[1] for _ in range(2)}
    assert len(said) == 1
    assert said.pop().startswith("0 ")


def test_a_module_runs_by_its_main(fork: Start) -> None:
    confinement = Confinement(fork.workspace, MEMORY_BYTES, SCRATCH_BYTES)
    confined = fork.rung.spawn(
        [sys.executable, "-m", "hillclimb.harness.sandbox.launch", "0", "{}"], confinement
    )
    assert isinstance(confined, ForkedProcess)
    assert confined.wait(20) == ExitStatus(1, None), "the launcher's own main() fails on this plan"


def test_modules_are_there_already_and_harness_is_found_inside(workspace: Path) -> None:
    code = """
    import sys
    assert "numpy" in sys.modules
    import hillclimb.harness.sandbox.canary.canary, hillclimb.harness.records
    print(hillclimb.harness.records.__file__, [path for path in sys.path if "harness" in path])
    """
    for make in (bubblewrap_rung, landlock_rung):
        with PreforkRung(make(), ["numpy"]) as forking:
            running = Start(forking, workspace)(textwrap.dedent(code))
            ending, said = running.finish()
            assert ending == ExitStatus(0, None), said
            assert said.startswith(running.confined.layout.python_path)


def test_numba_takes_its_settings_from_the_candidates_environment(workspace: Path) -> None:
    code = """
    import os, tempfile, numba, numpy
    config = numba.config
    print(int(config.OPT), config.CACHE_DIR == os.environ["NUMBA_CACHE_DIR"], config.NUMBA_NUM_THREADS)
    print(tempfile.gettempdir() == os.environ["TMPDIR"])
    a = numpy.ones((300, 300)); print((a @ a)[0, 0])
    """
    with PreforkRung(bubblewrap_rung(), ["numba"]) as forking:
        environment = {"NUMBA_OPT": "1", "NUMBA_NUM_THREADS": "2"}
        ending, said = Start(forking, workspace)(textwrap.dedent(code), environment=environment).finish()
    assert (ending, said.split()) == (ExitStatus(0, None), ["1", "True", "2", "True", "300.0"]), said


@pytest.mark.parametrize(
    ("modules", "complaint"),
    [
        (["nonexistent_module"], "nonexistent_module"),
        (["tests.harness.sandbox.restless"], "2 threads running"),
    ],
)
def test_a_zygote_that_cannot_be_prepared_is_the_machines_fault(modules: list[str], complaint: str) -> None:
    with nothing_left_open(), pytest.raises(SandboxError, match=complaint):
        PreforkRung(landlock_rung(), modules)


def test_a_secret_of_the_judges_is_nowhere_in_a_forks_memory(workspace: Path) -> None:
    """Made before the zygote starts, and in a variable of the environment too."""
    secret = secrets.token_hex(24)
    memory = ctypes.create_string_buffer(secret.encode())
    os.environ["HILLCLIMB_TEST_SECRET"] = secret
    code = """
    import sys
    front, back = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])
    found = looked = 0
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps.read().splitlines():
            span, rights, *rest = line.split()
            if "r" not in rights or line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            start, end = (int(word, 16) for word in span.split("-"))
            memory.seek(start)
            piece = memory.read(end - start)
            looked += len(piece)
            at = piece.find(front)
            while at >= 0:
                found += piece[at + len(front):].startswith(back)
                at = piece.find(front, at + 1)
    print(found, looked > 10 << 20)
    """
    masked = [secret[:24].encode().hex(), secret[24:].encode().hex()]
    try:
        with PreforkRung(bubblewrap_rung(), []) as forking:
            start = Start(forking, workspace)
            ending, said = start(textwrap.dedent(code), *masked).finish()
            assert (ending, said) == (ExitStatus(0, None), "0 True\n")
            planted = f"kept = bytes.fromhex({(secret.encode()).hex()!r})\n"
            _, said = start(planted + textwrap.dedent(code), *masked).finish()
            assert said != "0 True\n", "the search finds nothing even where it lies"
    finally:
        del os.environ["HILLCLIMB_TEST_SECRET"]
    assert memory.value == secret.encode()


def test_one_candidate_knows_nothing_of_the_request_of_another(fork: Start) -> None:
    secret = secrets.token_hex(24)
    held = fork("import time; time.sleep(60)", environment={"KNOB": secret})
    code = """
    import sys
    wanted = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps.read().splitlines():
            if line.split()[1].startswith("rw"):
                start, end = (int(word, 16) for word in line.split()[0].split("-"))
                memory.seek(start)
                piece = memory.read(end - start)
                at = piece.find(wanted[0])
                if at >= 0 and piece[at + len(wanted[0]):].startswith(wanted[1]):
                    print("found")
    """
    _, said = fork(textwrap.dedent(code), secret[:24].encode().hex(), secret[24:].encode().hex()).finish()
    assert said == ""
    held.confined.kill()


def test_the_whole_family_ends_with_the_zygote(forking: PreforkRung, workspace: Path) -> None:
    confinement = Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES)
    code = "import time\ntry: time.sleep(60)\nfinally: pass"
    confined = [forking.spawn([sys.executable, "-c", code], confinement) for _ in range(3)]
    pids = [candidate.pid for candidate in confined]
    os.kill(forking._process.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, pids)), seconds=3)
    for candidate in confined:
        with pytest.raises(MachineError, match="killed"):
            candidate.wait(5)
        candidate.kill()
    with pytest.raises(SandboxError, match=r"gone|could not be confined"):
        # told at its birth where the last of the family still holds the line while it dies
        forking.spawn([sys.executable, "-c", "pass"], confinement).wait(5)


JUDGE = """
import sys, time
from pathlib import Path
from hillclimb.harness.sandbox.rungs.bubblewrap_process import PreparedNamespaces
from hillclimb.harness.sandbox.fork.prefork import PreforkRung
from hillclimb.harness.sandbox.rungs.choose import Confinement, bubblewrap_rung, landlock_rung
forking = PreforkRung({rung}(), [])
confinement = Confinement(Path(sys.argv[1]), 1 << 30, 1 << 20)
confined = forking.spawn([sys.executable, "-c", "import time; time.sleep(30)"], confinement)
pid = confined.pid
holders = (ground._first,) if isinstance(ground := confined._prepared, PreparedNamespaces) else ()
print(pid, forking._process.pid, *holders, flush=True)
time.sleep(30)
"""


@pytest.mark.parametrize("rung", ["bubblewrap_rung", "landlock_rung"])
def test_the_whole_family_ends_with_the_judge(rung: str, workspace: Path) -> None:
    judge = subprocess.Popen(
        [sys.executable, "-c", JUDGE.format(rung=rung), str(workspace)], stdout=subprocess.PIPE, text=True
    )
    assert judge.stdout
    with judge.stdout:
        pids = [int(word) for word in judge.stdout.readline().split()]
        if not pids:
            pytest.skip(f"{rung} is not to be had here")
        assert all(map(is_alive, pids))
        judge.kill()
        judge.wait()
    wait_for(lambda: not any(map(is_alive, pids)), seconds=3)


def test_closing_ends_what_is_left_and_leaks_nothing(workspace: Path) -> None:
    with nothing_left_open():
        confinement = Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES)
        for make in (bubblewrap_rung, landlock_rung):
            with PreforkRung(make(), []) as forking:
                left = forking.spawn([sys.executable, "-c", "import time; time.sleep(60)"], confinement)
                pid = left.pid
            wait_for(lambda pid=pid: not is_alive(pid), seconds=3)
            left.kill()
            assert left.poll() == ExitStatus(None, signal.SIGKILL)


WALLS_OF_A_FORK = {
    bubblewrap_rung: ("capabilities", "environment", "seccomp", "memory limit", "file limit", "host name"),
    landlock_rung: ("files", "user", "seccomp", "environment", "memory limit", "file limit"),
}


@pytest.mark.parametrize(
    ("make", "wall"), [(make, wall) for make, walls in WALLS_OF_A_FORK.items() for wall in walls]
)
def test_every_wall_that_a_fork_raises_itself_is_missed(
    make: Callable[[frozenset[str]], ForkableRung], wall: str
) -> None:
    if wall in ("user", "capabilities") and os.geteuid() != 0:
        pytest.skip(f"{wall}: needs root to make a difference")
    with pytest.raises(SandboxError, match="got out"):
        prefork_rung(make(frozenset({wall})), [], {})


def test_what_does_not_hang_from_the_sandboxs_root_cannot_be_opened(workspace: Path) -> None:
    """/proc/self/exe of a fork leads to the host's mounts; without Landlock only a running program's file is safe."""
    if landlock.abi_version() == 0:
        pytest.skip("this kernel has no Landlock")
    code = "import os\nprint(os.readlink('/proc/self/exe'))\nos.open('/proc/self/exe', os.O_RDONLY)"
    for without, refused in ((frozenset[str](), True), (frozenset({"own tree"}), False)):
        with PreforkRung(bubblewrap_rung(without), []) as forking:
            ending, said = Start(forking, workspace)(code).finish()
        assert (ending == ExitStatus(1, None), "PermissionError" in said) == (refused, refused), said


@pytest.mark.slow(4)
def test_a_zygote_that_has_imported_what_a_gpu_judge_preloads_is_a_border() -> None:
    """Whatever torch and Triton have to say as their process ends."""
    prefork_rung(bubblewrap_rung(), PRELOADED, thread_variables()).close()


def test_a_strict_zygote_serves_candidates_with_devices(workspace: Path) -> None:
    with prefork_rung(bubblewrap_rung(), [], {}, ("/dev/null",)) as forking:
        confinement = Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES, devices=("/dev/null",))
        code = """
        import socket
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        end.bind("\\0cuda-uvmfd")
        end.listen()
        """
        assert forking.spawn([sys.executable, "-c", textwrap.dedent(code)], confinement).wait(
            20
        ) == ExitStatus(0, None)


def test_the_output_ends_with_the_candidate(fork: Start) -> None:
    """Nothing else holds it open, and so whoever reads it need not wait for the judge to collect the candidate."""
    running = fork("print('said')")
    running.collector.join(20)
    assert not running.collector.is_alive()


def test_many_at_once_and_one_after_the_other(fork: Start) -> None:
    running = [fork(f"import os; os._exit({number})") for number in range(8)]
    assert [one.finish()[0] for one in running] == [ExitStatus(number, None) for number in range(8)]
    wait_for(lambda: _zombies(fork.rung._process.pid) == [])  # type: ignore[attr-defined]


def test_two_are_born_at_the_same_time(workspace: Path) -> None:
    """The second need not wait for the first: what a pair costs is the spawning of both and one birth."""
    confinement = Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES)
    with PreforkRung(bubblewrap_rung(), []) as forking:
        begun = time.perf_counter()
        pair = [
            forking.spawn([sys.executable, "-c", "import time; time.sleep(60)"], confinement) for _ in "ab"
        ]
        spawned = time.perf_counter()
        assert len({one.pid for one in pair}) == 2
        born = time.perf_counter()
        for one in pair:
            one.send_sigkill()
        for one in pair:
            one.kill()
            assert one.poll() == ExitStatus(None, signal.SIGKILL)
    print(f"spawned after {spawned - begun:.4f} s, born {born - spawned:.4f} s later")


def test_a_border_that_cannot_be_raised_is_told_to_whoever_needs_the_candidate(workspace: Path) -> None:
    with nothing_left_open():
        program = workspace / "bwrap"
        program.write_text("#!/bin/sh\necho 'no room for a namespace' >&2\nexit 1\n")
        program.chmod(0o755)
        with PreforkRung(BubblewrapRung(str(program)), []) as forking:
            confinement = Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES)
            confined = forking.spawn([sys.executable, "-c", "pass"], confinement)
            with pytest.raises(SandboxError, match="bubblewrap ended") as raised:
                confined.wait(20)
            assert "no room for a namespace" in str(raised.value)
            with pytest.raises(SandboxError, match="bubblewrap ended"):
                _ = confined.pid
            confined.kill()


@pytest.mark.parametrize("rung", [bubblewrap_rung, landlock_rung])
def test_one_that_is_not_born_when_the_zygote_ends_leaves_nothing(
    rung: Callable[[], ForkableRung], workspace: Path
) -> None:
    with nothing_left_open():
        confinement = Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES)
        with PreforkRung(rung(), []) as forking:
            left = forking.spawn([sys.executable, "-c", "import time; time.sleep(60)"], confinement)
        with suppress(SandboxError):  # it was not born, and says so
            left.kill()


def test_one_ended_at_any_moment_of_its_birth_leaves_no_holder(workspace: Path) -> None:
    """Until bubblewrap has bound what it started to its own end, that would live on."""
    confinement = Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES)
    with PreforkRung(bubblewrap_rung(), []) as forking:
        for number in range(24):
            confined = forking.spawn([sys.executable, "-c", "import time; time.sleep(60)"], confinement)
            time.sleep(number * 0.0003)
            assert isinstance(confined, ForkedProcess)
            confined._prepared.send_sigkill()
            with suppress(MachineError):
                confined.kill()
    wait_for(lambda: _orphans(holder_command()) == [])


def _orphans(program: list[str]) -> list[int]:
    """Pids of those that run a program, and whose bubblewrap has gone."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().split(b"\0")[:-1] == [
                word.encode() for word in program
            ]:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                found += [] if Path(f"/proc/{parent}/comm").read_text() == "bwrap\n" else [int(entry.name)]
    return found


@pytest.mark.clock
@pytest.mark.slow(4)
def test_a_fork_starts_faster_than_a_fresh_process(workspace: Path) -> None:
    """The ratio the zygote is for; numba's import is the CPU's example."""
    confinement = Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES)

    def start(rung: ForkableRung) -> float:
        begun = time.perf_counter()
        assert rung.spawn([sys.executable, "-c", "import numba"], confinement).wait(60) == ExitStatus(0, None)
        return time.perf_counter() - begun

    with PreforkRung(bubblewrap_rung(), ["numba"]) as forking:
        pairs = [(start(forking), start(forking.rung)) for _ in range(3)]
    print(pairs)
    assert min(forked for forked, _ in pairs) < min(fresh for _, fresh in pairs)


def _zombies(parent: int) -> list[int]:
    """Pids of those that a process has not collected."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                state, of = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                found += [int(entry.name)] if (state, int(of)) == ("Z", parent) else []
    return found


@pytest.mark.parametrize("is_installed", [False, True])
def test_packages_beside_an_installed_hillclimb_are_still_found(is_installed: bool) -> None:
    code = f"""
import site, sys
from pathlib import Path
import hillclimb
from hillclimb.harness.sandbox.fork.program import relocate_imports
outside = str(Path(hillclimb.__path__[0]).parent)
sys.path[:] = [outside, "/standard/library"]
site.getsitepackages = lambda: [outside] if {is_installed} else ["/elsewhere"]
relocate_imports("/lab")
print([path if path != outside else "outside" for path in sys.path])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = ["/lab", "/standard/library", *(["outside"] if is_installed else [])]
    assert done.stdout.strip() == str(expected)
