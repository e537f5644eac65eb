"""What a confinement may add to a border: devices, readable paths, compilers, room for trusted tools."""

from __future__ import annotations

import shutil
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from hillclimb.harness.errors import SandboxError, UsageError
from hillclimb.harness.sandbox import interpreter
from hillclimb.harness.sandbox.rungs.choose import Confinement, ExitStatus, bubblewrap_rung, landlock_rung
from tests.harness.sandbox.inside import MEMORY_BYTES, SCRATCH_BYTES, Start


class Granted(Start):
    """Starts Python with more than usual."""

    grants: Confinement

    def confine(self, memory: int) -> Confinement:
        return self.grants


@pytest.fixture
def granted(start: Start) -> Granted:
    if start.rung.name == "none":
        pytest.skip("none keeps nothing from a candidate, so nothing can be granted")
    made = Granted(start.rung, start.workspace, start.started)
    made.grants = Confinement(start.workspace, 8 << 30, 512 << 20)
    return made


def test_a_granted_device_can_be_written_and_no_other_is_there(granted: Granted) -> None:
    """/dev/fuse stands in for a GPU's node: no rung gives it unasked."""
    granted.grants = replace(granted.grants, devices=("/dev/null", "/dev/fuse"))
    if not Path("/dev/fuse").exists():
        granted.grants = replace(granted.grants, devices=("/dev/null",))
    code = """
    import os, sys
    for node in sys.argv[1:]: os.close(os.open(node, os.O_RDWR))
    try: os.open("/dev/kmsg", os.O_RDONLY)
    except OSError: print("held in")
    """
    reachable = [node for node in granted.grants.devices if Path(node).stat().st_mode & 0o006 == 0o006]
    assert granted(textwrap.dedent(code), *reachable).finish() == (ExitStatus(0, None), "held in\n")


def test_with_a_device_threads_can_be_named_and_the_driver_be_asked_about(granted: Granted) -> None:
    """CUDA fails with error 304 where it cannot write /proc/self/task/*/comm."""
    granted.grants = replace(granted.grants, devices=("/dev/null",))
    code = """
    import os, threading
    from pathlib import Path
    def name(): Path("/proc/thread-self/comm").write_text("cuda"); print(Path("/proc/thread-self/comm").read_text())
    thread = threading.Thread(target=name); thread.start(); thread.join()
    Path("/proc/devices").read_text(); Path("/proc/self/maps").read_text(); os.listdir("/proc/driver")
    """
    assert granted(textwrap.dedent(code)).finish() == (ExitStatus(0, None), "cuda\n\n")


def test_a_readable_folder_can_be_read_and_not_written(granted: Granted, tmp_path: Path) -> None:
    seeded = tmp_path / "seeded"
    seeded.mkdir()
    (seeded / "kernel.cubin").write_text("cubin")
    code = "import sys; print(open(sys.argv[1] + '/kernel.cubin').read(), flush=True); open(sys.argv[1] + '/x', 'w')"
    assert granted(code, str(seeded)).finish()[1].count("cubin\n") == 0
    granted.grants = replace(granted.grants, readable=(seeded,))
    ending, said = granted(code, str(seeded)).finish()
    assert ending == ExitStatus(1, None)
    assert said.startswith("cubin\n"), said
    assert list(seeded.iterdir()) == [seeded / "kernel.cubin"]


@pytest.mark.parametrize("device", ["/dev", "/etc/passwd", "/dev/../etc/passwd", "/dev/nothing", "null"])
def test_what_is_no_device_is_not_granted_as_one(workspace: Path, device: str) -> None:
    with pytest.raises(UsageError, match="character device"):
        Confinement(workspace, 1, 1, devices=(device,))


def test_a_readable_path_must_exist(workspace: Path) -> None:
    for path in (Path("relative"), workspace / "missing"):
        with pytest.raises(UsageError, match="cannot be granted"):
            Confinement(workspace, 1, 1, readable=(path,))


SHARED_LIBRARY = """
import ctypes, pathlib, subprocess, sysconfig
pathlib.Path("answer.c").write_text("#include <Python.h>\\nint answer(void) { return 42; }\\n")
include = sysconfig.get_path("include")
subprocess.run(["gcc", "-O3", "-shared", "-fPIC", f"-I{include}", "answer.c", "-o", "answer.so"], check=True)
print(ctypes.CDLL("./answer.so").answer())
"""


def test_a_c_compiler_works_before_the_seal(granted: Granted) -> None:
    """Triton builds its launcher so."""
    if shutil.which("gcc", path="/usr/bin:/bin") is None:
        pytest.skip("gcc is not installed")
    assert granted(SHARED_LIBRARY).finish(120) == (ExitStatus(0, None), "42\n")


FOR_HOPPER = """
import os, pathlib, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
pathlib.Path("added.py").write_text('''
import triton, triton.language as tl
@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) + 1, i < n)
''')
sys.path.insert(0, os.getcwd())
from added import add
source = ASTSource(add, signature={"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}, constexprs={"B": 1024})
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
print(len(compiled.asm["cubin"]) > 1000, os.listdir(os.environ["HOME"]).count(".triton"))
"""


def test_triton_compiles_for_a_gpu_before_the_seal(granted: Granted) -> None:
    """With its ptxas, for sm_90, where there is no GPU; its cache lies in the scratch folder."""
    pytest.importorskip("triton")
    ending, said = granted(FOR_HOPPER, environment={"TRITON_DEFAULT_FP_FUSION": "1"}).finish(120)
    assert (ending, said.splitlines()[-1:]) == (ExitStatus(0, None), ["True 1"]), said


TALK = """
import multiprocessing.shared_memory, os, socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    if os.fork() == 0:
        with socket.create_connection(server.getsockname()) as end: end.sendall(b"hello")
        os._exit(0)
    end, _ = server.accept()
    print(end.recv(5).decode())
shared = multiprocessing.shared_memory.SharedMemory(create=True, size=64 << 20); shared.close(); shared.unlink()
open("/tmp/meeting", "w").close(); os.chmod("/tmp/meeting", 0o600)
"""


def test_tools_may_talk_among_themselves_in_namespaces_of_their_own(workspace: Path) -> None:
    start = Granted(bubblewrap_rung(), workspace)
    start.grants = Confinement(workspace, MEMORY_BYTES, 128 << 20, tools=True)
    assert start(TALK).finish() == (ExitStatus(0, None), "hello\n")
    start.grants = replace(start.grants, tools=False)
    assert start(TALK).finish()[0] == ExitStatus(1, None)


def test_landlock_has_no_namespaces_for_tools(workspace: Path) -> None:
    confinement = Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES, tools=True)
    with pytest.raises(SandboxError, match="install bubblewrap"):
        landlock_rung().spawn([sys.executable, "-c", "pass"], confinement)


def test_the_loaders_folders_come_from_the_rung_and_only_those_granted(
    granted: Granted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = ["/usr/lib", str(tmp_path), "relative", "/nonexistent", "", "/usr/lib/../../etc"]
    monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(folders))
    assert interpreter.loader_variables()["LD_LIBRARY_PATH"] == "/usr/lib"
    ending, said = granted("import os; print(os.environ['LD_LIBRARY_PATH'])").finish()
    assert (ending, said) == (ExitStatus(0, None), "/usr/lib\n")
    with pytest.raises(UsageError, match="LD_LIBRARY_PATH"):
        Confinement(tmp_path, 1, 1, {"LD_LIBRARY_PATH": "/usr/lib"})
