"""Kernels in C and C++, compiled in the sandbox and judged there; and what a library may not take from elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.candidate.native_kernel import foreign_symbols
from hillclimb.harness.case.case import Case
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.duel.process.compiler_flags import compiler_flags, flags_of
from hillclimb.harness.errors import CandidateFault, CaseError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import GateReport, Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.fakes.cases import SETTINGS, write_case

pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("c++") and shutil.which("nm")),
    reason="no C compiler here (cc, c++, nm)",
)

LOOP = "    for (int64_t i"
HEAD = "#include <stdint.h>\n"
RIGHT = (
    HEAD
    + """
void run(const float *x, float *y, const int64_t *sizes)
{
    for (int64_t i = 0; i < sizes[0]; i++) y[i] = 2 * x[i] + 1;
}
"""
)


class Lab:
    """A judge of y = 2 x + 1 whose kernel is in C or C++."""

    def __init__(self, root: Path, entry: str, attributes: str = "") -> None:
        root.chmod(0o755)
        self._root, self._file, self._made = root, entry.partition(":")[0], 0
        case = write_case(root)
        (case / "case.yaml").write_text(f"{SETTINGS}entry: {entry}\n")
        if attributes:
            contract = case / "contract.py"
            contract.write_text(contract.read_text() + attributes)
        (case / "workspace" / self._file).write_text(RIGHT)
        self.judge = CaseJudge(Case(case), choose_rung(trust_workspace=False), CpuDevice())

    def gate(self, source: str, knobs: dict[str, str] | None = None, **files: str) -> GateReport:
        self._made += 1
        tree = self._root / f"tree-{self._made}"
        tree.mkdir()
        for name, text in {self._file: source, **{n.replace("__", "."): t for n, t in files.items()}}.items():
            (tree / name).write_text(text)
        return self.judge.gate(Side(tree=str(tree), knobs=knobs or {}), _ignore)


def _ignore(progress: Progress) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("c"), "kernel.c:run")
    yield lab
    lab.judge.close()


HONEST = {
    "plain": RIGHT,
    "threads": HEAD + "#include <pthread.h>\nstruct part { const float *x; float *y; int64_t n; };\n"
    "static void *half(void *told) { struct part *p = told; for (int64_t i = 0; i < p->n; i++) "
    "p->y[i] = 2 * p->x[i] + 1; return 0; }\n"
    "void run(const float *x, float *y, const int64_t *sizes) {\n"
    "    int64_t h = sizes[0] / 2; struct part a = {x, y, h}, b = {x + h, y + h, sizes[0] - h}; pthread_t t;\n"
    "    pthread_create(&t, 0, half, &a); half(&b); pthread_join(t, 0); }\n",
    "mathematics and memory": HEAD + "#include <math.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "void run(const float *x, float *y, const int64_t *sizes) {\n"
    "    float *copy = malloc(4 * sizes[0]); memcpy(copy, x, 4 * sizes[0]);\n"
    "    for (int64_t i = 0; i < sizes[0]; i++) y[i] = fmaf(2.0f, copy[i], cosf(0.0f)); free(copy); }\n",
}


@pytest.mark.parametrize("name", HONEST)
def test_a_right_kernel_passes(c: Lab, name: str) -> None:
    report = c.gate(HONEST[name])
    assert report.passed, report.detail


def test_headers_of_the_workspace_are_found(c: Lab) -> None:
    report = c.gate('#include "scale.h"\n' + RIGHT.replace("2 *", "SCALE *"), scale__h="#define SCALE 2\n")
    assert report.passed, report.detail


KNOBS = """
SCALE: {type: int, low: 1, high: 9, default: 2}
FAST: {type: bool, default: false}
FLAGS: {type: choice, choices: ["-O2", "-O3 -ffast-math"], default: "-O3 -ffast-math"}
"""


def test_knobs_are_macros_and_flags(c: Lab) -> None:
    source = RIGHT.replace("2 *", "SCALE *") + "#if FAST || !defined(__FAST_MATH__)\n#error as told\n#endif\n"
    assert c.gate(source, knobs__yaml=KNOBS).passed
    assert c.gate(source, {"SCALE": "3"}, knobs__yaml=KNOBS).reason is Reason.WRONG_RESULT
    for knobs in ({"FAST": "1"}, {"FLAGS": "-O2"}):
        report = c.gate(source, knobs, knobs__yaml=KNOBS)
        assert report.reason is Reason.DOES_NOT_COMPILE
        assert "as told" in report.detail


FAULTY = {
    "no C": ("int run(", Reason.DOES_NOT_COMPILE, "error"),
    "another function": (RIGHT.replace("run", "ran"), Reason.DOES_NOT_LOAD, "undefined symbol: run"),
    "undefined": (
        RIGHT.replace("2 *", "twice() *").replace("void run", "float twice(void);\nvoid run"),
        Reason.DOES_NOT_COMPILE,
        "undefined reference to `twice'",
    ),
    "wrong": (RIGHT.replace("2 *", "3 *"), Reason.WRONG_RESULT, "times the budget"),
    "short": (RIGHT.replace("i < sizes[0]", "i < sizes[0] - 1"), Reason.OUTPUT_NOT_WRITTEN, "not written"),
    "beside": (
        RIGHT.replace("i < sizes[0]", "i <= sizes[0]"),
        Reason.WROTE_OUT_OF_BOUNDS,
        "beside the arrays",
    ),
    "inputs": (
        RIGHT.replace("const float *x", "float *x").replace("y[i] =", "x[i] += 1, y[i] ="),
        Reason.INPUTS_CHANGED,
        "its inputs",
    ),
    "crash": (RIGHT.replace(LOOP, "    *(volatile int *)0 = 1;\n" + LOOP), Reason.CRASHED, "SIGSEGV"),
    "endless": (
        RIGHT.replace(LOOP, "    for (volatile int on = 1; on;) ;\n" + LOOP),
        Reason.HUNG,
        "no answer",
    ),
    "dlopen": (
        "#include <dlfcn.h>\n" + RIGHT.replace(LOOP, '    dlopen("libm.so.6", 2);\n' + LOOP),
        Reason.POLICY,
        "takes dlopen from outside",
    ),
    "a process": (
        "#include <unistd.h>\n" + RIGHT.replace(LOOP, "    fork();\n" + LOOP),
        Reason.POLICY,
        "takes fork from outside",
    ),
    "a process while it is loaded": (
        '#include <stdlib.h>\n__attribute__((constructor)) static void early(void) { system("true"); }\n'
        + RIGHT,
        Reason.POLICY,
        "takes system from outside",
    ),
}


@pytest.mark.slow(5, only=["endless"])
@pytest.mark.slow(
    1, only=["another function", "undefined", "inputs", "dlopen", "a process while it is loaded"]
)
@pytest.mark.parametrize("name", FAULTY)
def test_what_is_wrong_is_called_by_its_name(c: Lab, name: str) -> None:
    source, reason, detail = FAULTY[name]
    report = c.gate(source)
    assert report.reason is reason, report.detail
    assert detail in report.detail


def test_a_process_by_a_system_call_is_stopped_by_the_border(c: Lab) -> None:
    """vfork by number, which the list of symbols does not see."""
    asm = '    long r; __asm__ volatile("syscall" : "=a"(r) : "a"(57) : "rcx", "r11", "memory");\n'
    report = c.gate(RIGHT.replace("{\n", "{\n#ifdef __x86_64__\n" + asm + "#endif\n", 1))
    assert report.passed or report.reason is Reason.STARTED_PROCESS, report.detail


def test_cpp_and_attributes(tmp_path: Path) -> None:
    attributes = (
        "\n    def attributes(self, problem):\n        return {'scale': 2, 'shift': 1.0, 'plain': True}\n"
    )
    lab = Lab(tmp_path, "kernel.cpp:run", attributes)
    source = (
        "#include <algorithm>\n#include <cstdint>\n#include <vector>\n"
        'extern "C" void run(const float *x, float *y, const int64_t *sizes, int64_t scale,'
        " double shift, int64_t plain)"
        "{ std::vector<float> copy(x, x + sizes[0]); std::transform(copy.begin(), copy.end(), y, "
        "[=](float v) { return plain ? scale * v + float(shift) : 0.0f; }); }\n"
    )
    report = lab.gate(source)
    lab.judge.close()
    assert report.passed, report.detail


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        ("-O3", ("-O3",)),
        (
            "-O3 -ffast-math -mavx2 -std=c11 -DX=3 -UY",
            ("-O3", "-ffast-math", "-mavx2", "-std=c11", "-DX=3", "-UY"),
        ),
        ("16", ("-DK=16",)),
        ("-3", ("-DK=-3",)),
        ("-1e-5", ("-DK=-1e-5",)),
        ("ijk", ("-DK=ijk",)),
    ],
)
def test_values_become_flags_or_macros(value: str, flags: tuple[str, ...]) -> None:
    assert flags_of({"K": value}) == flags


@pytest.mark.parametrize(
    "value",
    [
        "-lopenblas",
        "-include /etc/passwd",
        "-fplugin=x.so",
        "-o /tmp/x",
        "-Wl,-rpath,/x",
        "-x c++",
        "-",
        "-B.",
    ],
)
def test_other_flags_are_refused(value: str) -> None:
    with pytest.raises(CandidateFault, match="is no flag that a knob may set") as fault:
        flags_of({"K": value})
    assert fault.value.reason is Reason.BAD_KNOBS


def test_a_broken_knobs_file_is_the_candidates_fault(tmp_path: Path) -> None:
    (tmp_path / "knobs.yaml").write_text("K: {type: int}\n")
    with pytest.raises(CandidateFault) as fault:
        compiler_flags(Side(tree=str(tmp_path)))
    assert fault.value.reason is Reason.BAD_KNOBS


FOREIGN = (
    "cblas_sgemm sgemm_ dlopen dlsym execve socket mmap ptrace syscall openblas_set_num_threads fftwf_execute "
    "sched_setaffinity mprotect sigaction process_vm_readv expander memory"
)


@pytest.mark.parametrize("name", FOREIGN.split())
def test_symbols_of_elsewhere_are_foreign(name: str) -> None:
    assert foreign_symbols(
        f"{name} U\nmemcpy@GLIBC_2.14 U\nexpf U\n_ZGVdN8v_expf U\n_ZNSt6vectorIfE U\n"
    ) == [name]


def test_a_gpu_takes_no_c(tmp_path: Path) -> None:
    case = write_case(tmp_path)
    (case / "case.yaml").write_text(f"{SETTINGS}entry: kernel.c:run\ndevice: cuda\n")
    (case / "workspace" / "kernel.c").write_text(RIGHT)
    with pytest.raises(CaseError, match=r"entry.*kernel\.c:run.*device cuda takes a \.py file"):
        Case(case)
