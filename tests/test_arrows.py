"""Imports point one way: read off the syntax trees, so that a wrong arrow fails before it is run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from hillclimb.harness.case.digest import harness_digest, judging_files
from tests.syntax_trees import nodes

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.xdist_group("syntax trees")

FLOOR = "harness harness.errors harness.records harness.os_errors harness.wording"
"""What every room of `agent` and `harness` may import, besides itself and the rooms inside it."""

ROOMS = {
    "agent.api": (
        "agent.climb agent.evaluate agent.proposal agent.proposer agent.record agent.screen harness.case "
        "harness.judge harness.knobs"
    ),
    "agent.cli": "agent.commands agent.commands.gemm agent.screen",
    "agent.climb": (
        "agent.git agent.machine agent.notify agent.proposal agent.proposer agent.record agent.rhythm "
        "agent.screen harness.case harness.device harness.judge harness.knobs harness.statistics"
    ),
    "agent.commands": (
        "agent.climb agent.evaluate agent.git agent.importers agent.llm.briefing agent.machine "
        "agent.notify agent.proposers agent.record agent.review agent.screen agent.stamp harness.case "
        "harness.extract harness.judge harness.serving harness.serving.backends harness.serving.confined "
        "harness.studies"
    ),
    "agent.commands.gemm": (
        "agent.commands agent.git agent.stamp harness.gemm harness.gemm.bench harness.gemm.claims "
        "harness.gemm.compiler harness.gemm.generator harness.gemm.heatmap "
        "harness.gemm.portfolio harness.gemm.profiler harness.knobs"
    ),
    "agent.evaluate": (
        "agent.climb agent.git agent.llm.briefing agent.machine agent.proposers agent.record "
        "agent.screen harness.case harness.engagement harness.extract harness.judge harness.knobs harness.policy"
    ),
    "agent.git": "agent.machine agent.proposal harness.case harness.knobs",
    "agent.importers": "agent.stamp harness.extract",
    "agent.importers.formats": "harness.channel harness.knobs",
    "agent.importers.probing": (
        "agent.importers.formats harness.case harness.channel harness.judge harness.judge.mutants "
        "harness.sources"
    ),
    "agent.importers.writing": (
        "agent.importers.formats agent.stamp harness.case harness.knobs harness.policy"
    ),
    "agent.llm": (
        "agent.git agent.machine agent.proposal agent.proposer agent.record agent.screen agent.sweep "
        "harness.case harness.knobs"
    ),
    "agent.llm.briefing": (
        "agent.git agent.llm.client agent.proposal agent.record agent.rhythm agent.screen agent.sweep "
        "harness.case harness.knobs harness.policy"
    ),
    "agent.llm.client": "agent.machine agent.record harness.case",
    "agent.llm.replies": (
        "agent.git agent.proposal agent.record agent.rhythm harness.knobs harness.yaml_errors"
    ),
    "agent.machine": "harness.case",
    "agent.notify": "agent.machine agent.record agent.screen",
    "agent.proposal": "harness.knobs",
    "agent.proposer": "agent.machine agent.proposal agent.record agent.screen harness.case",
    "agent.proposers": (
        "agent.git agent.llm agent.llm.client agent.llm.replies agent.machine agent.proposal "
        "agent.proposer agent.record agent.rhythm agent.screen agent.sweep harness.case harness.knobs"
    ),
    "agent.record": "agent.git agent.machine agent.proposal harness.case",
    "agent.review": (
        "agent.climb agent.git agent.llm.briefing agent.machine agent.proposal agent.record agent.screen "
        "agent.sweep harness.case harness.knobs harness.report harness.statistics harness.yaml_errors"
    ),
    "agent.rhythm": "agent.git agent.proposal agent.record harness.knobs",
    "agent.screen": "agent.proposal agent.record",
    "agent.stamp": "harness.case",
    "agent.sweep": "agent.proposal agent.proposer agent.record harness.knobs",
    "harness.candidate": "harness.candidate.wall harness.channel",
    "harness.candidate.wall": "harness.channel",
    "harness.case": "harness.channel harness.knobs harness.yaml_errors",
    "harness.case.contracts": "harness.case",
    "harness.case.contracts.llama": "harness.case harness.channel",
    "harness.device.cpu": "harness.channel harness.device",
    "harness.device.gpu": "harness.channel harness.device",
    "harness.duel": "harness.case harness.channel harness.device harness.statistics",
    "harness.duel.process": (
        "harness.case harness.channel harness.device harness.device.cpu harness.knobs harness.policy "
        "harness.sandbox.kernel harness.sandbox.rungs"
    ),
    "harness.engagement": "harness.channel harness.knobs harness.yaml_errors",
    "harness.extract": "harness.serving.backends harness.sources",
    "harness.gemm": "harness.yaml_errors",
    "harness.gemm.bench": "harness.device.gpu harness.gemm harness.gemm.generator",
    "harness.gemm.claims": (
        "harness.gemm harness.gemm.families harness.gemm.generator harness.gemm.providers harness.knobs"
    ),
    "harness.gemm.compiler": "harness.device harness.gemm",
    "harness.gemm.families": "harness.gemm",
    "harness.gemm.generator": "harness.gemm harness.gemm.compiler harness.gemm.families",
    "harness.gemm.heatmap": "harness.gemm harness.gemm.portfolio harness.report",
    "harness.gemm.portfolio": (
        "harness.gemm harness.gemm.families harness.gemm.generator harness.gemm.providers"
    ),
    "harness.gemm.profiler": "harness.gemm harness.gemm.compiler",
    "harness.gemm.providers": "harness.gemm harness.gemm.bench harness.gemm.families harness.gemm.generator",
    "harness.judge": (
        "harness.case harness.channel harness.device harness.device.cpu harness.device.gpu harness.duel "
        "harness.duel.process harness.engagement harness.profile harness.sandbox.rungs harness.statistics "
        "harness.surfaces "
        "harness.surfaces.openai_http harness.surfaces.shell_json"
    ),
    "harness.judge.mutants": "harness.case harness.duel harness.duel.process",
    "harness.knobs": "harness.yaml_errors",
    "harness.policy": "harness.case",
    "harness.profile": (
        "harness.case harness.channel harness.device.cpu harness.duel harness.duel.process "
        "harness.engagement harness.policy harness.sandbox harness.sandbox.rungs"
    ),
    "harness.report": "harness.case",
    "harness.sandbox": "harness.channel",
    "harness.sandbox.canary": "harness.sandbox",
    "harness.sandbox.canary.attempts": "harness.sandbox.kernel",
    "harness.sandbox.fork": "harness.sandbox harness.sandbox.kernel",
    "harness.sandbox.kernel": "harness.channel",
    "harness.sandbox.rungs": (
        "harness.sandbox harness.sandbox.canary harness.sandbox.fork harness.sandbox.kernel"
    ),
    "harness.serving": "harness.serving.backends",
    "harness.serving.backends": "harness.candidate harness.channel",
    "harness.serving.confined": (
        "harness.candidate harness.case harness.channel harness.duel.process harness.profile "
        "harness.sandbox.kernel harness.sandbox.rungs harness.serving harness.serving.backends"
    ),
    "harness.sources": "harness.case harness.channel",
    "harness.studies": "harness.candidate harness.case harness.device harness.judge harness.report",
    "harness.surfaces": "harness.case harness.statistics",
    "harness.surfaces.openai_http": (
        "harness.case harness.case.contracts.llama harness.device harness.duel harness.duel.process "
        "harness.engagement harness.policy harness.sandbox.rungs harness.serving.confined "
        "harness.surfaces"
    ),
    "harness.surfaces.shell_json": (
        "harness.case harness.device harness.duel.process harness.policy harness.sandbox.rungs "
        "harness.surfaces"
    ),
}
"""Room -> the rooms that it may import besides the floor. A file at the root of `agent` is a room of its own."""

INSIDE = "harness.candidate"
"""Runs in the sandbox beside the workspace."""

INSIDE_MAY_IMPORT = {"harness.candidate", "harness.candidate.wall", "harness.channel"}
FRAMEWORKS = {"torch", "numpy", "triton", "numba", "cuda"}

ENTRY_POINTS = (
    "harness.judge.__main__",
    "harness.judge.pool",
    "harness.candidate.runner",
    "harness.candidate.preload",
    "harness.candidate.tool_run",
    "harness.sandbox.launch",
    "harness.serving.confined.inside",
    "harness.sandbox.fork.zygote",
    "harness.sandbox.canary.escapes",
)
"""Modules that the judge's, the candidate's and the border's processes are started with, and what holds a judge."""

HEAVY = {"torch", "numba", "triton", "matplotlib", "scipy", "pandas"}
"""Never in the controller's process, at any depth of its own code."""

WORKSPACE_LOADERS = {"harness/candidate/runner.py", "harness/case/checked.py"}
"""The only files that import code by path: the candidate's runner, and the judge's loader of contracts."""


@cache
def sources() -> dict[str, Path]:
    """Module name, without `hillclimb.`, -> its file."""
    files = (path for top in ("agent", "harness") for path in (ROOT / top).rglob("*.py"))
    return {_module(path): path for path in sorted(files)}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Every module that a file imports, at any depth of its code, as it is written there."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; name the package"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (
                name if name.removeprefix("hillclimb.") in sources() else str(node.module) for name in names
            )


@cache
def arrows() -> dict[str, set[str]]:
    """Module -> the modules of this tree that it imports."""
    return {
        name: {m.removeprefix("hillclimb.") for m in imported(path) if m.startswith("hillclimb.")}
        for name, path in sources().items()
    }


def room(module: str) -> str:
    """The folder of a module; a file at the root of `agent` or `harness` stands for itself."""
    path = sources().get(module)
    if path is None or path.name == "__init__.py" or path.parent.parent == ROOT:
        return module
    return module.rpartition(".")[0]


def is_within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def test_every_arrow_leads_to_a_room_that_is_allowed() -> None:
    floor = set(FLOOR.split())
    wrong = [
        f"{name} imports {target}"
        for name, targets in arrows().items()
        for target in sorted(targets)
        if room(target) != room(name)
        and not is_within(room(target), room(name))
        and room(target) not in floor | set(ROOMS.get(room(name), "").split())
    ]
    assert not wrong


def test_no_allowed_arrow_is_unused() -> None:
    drawn: defaultdict[str, set[str]] = defaultdict(set)
    for name, targets in arrows().items():
        drawn[room(name)] |= {room(target) for target in targets}
    unused = {name: sorted(set(allowed.split()) - drawn[name]) for name, allowed in ROOMS.items()}
    assert {name: rest for name, rest in unused.items() if rest} == {}


def test_nothing_imports_tests_scripts_or_cases() -> None:
    for name, path in sources().items():
        tops = {module.split(".")[0] for module in imported(path)}
        assert not tops & {"tests", "scripts", "cases", "agent", "harness"}, name


def test_no_circle_of_files() -> None:
    assert_acyclic(arrows())


def test_no_circle_of_folders() -> None:
    """In each folder, its files and its folders import one another in one direction."""
    modules = {name: tuple(name.split(".")) for name in sources()}
    for folder in {parts[:depth] for parts in modules.values() for depth in range(len(parts))}:
        depth = len(folder)
        within = {
            name: parts for name, parts in modules.items() if parts[:depth] == folder and len(parts) > depth
        }
        graph: defaultdict[str, set[str]] = defaultdict(set)
        for name, parts in within.items():
            graph[parts[depth]] |= {within[t][depth] for t in arrows()[name] if t in within} - {parts[depth]}
        assert_acyclic(graph)


def test_no_circle_of_rooms() -> None:
    """Nor between a folder's own files and a folder inside it."""
    graph: defaultdict[str, set[str]] = defaultdict(set)
    for name, targets in arrows().items():
        graph[room(name)] |= {room(target) for target in targets} - {room(name)}
    assert_acyclic(graph)


def assert_acyclic(graph: Mapping[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def test_what_runs_inside_imports_the_channel_and_frameworks_only() -> None:
    allowed = set(sys.stdlib_module_names) | FRAMEWORKS
    for name, path in sources().items():
        if not is_within(name, INSIDE) and not is_within(name, "harness.channel"):
            continue
        mine = INSIDE_MAY_IMPORT if is_within(name, INSIDE) else {"harness.channel"}
        for module in imported(path):
            ours = module.removeprefix("hillclimb.")
            if module != ours:
                assert any(is_within(ours, room) for room in mine), f"{name} imports {module}"
            else:
                assert module.split(".")[0] in allowed, f"{name} imports {module}"


def closure(entry_points: tuple[str, ...]) -> set[str]:
    """Every module of this tree that they import, directly or not; packages on the way included."""
    seen: set[str] = set()
    due = list(entry_points)
    while due:
        name = due.pop()
        if name in seen or name not in sources():
            continue
        seen.add(name)
        due += [*arrows()[name], *(name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1))]
    return seen


def test_the_digest_covers_all_that_judges() -> None:
    """What the processes of judge and candidate can import lies in the rooms that are digested."""
    digested = {path.resolve() for path in judging_files(ROOT / "hillclimb")}
    left_out = sorted(name for name in closure(ENTRY_POINTS) if sources()[name] not in digested)
    assert not left_out


LOADED_BY_NAME = (
    "harness.case.contracts",
    "harness.sources",
    "harness.judge.known_kernel",
    "harness.serving.backends",
)
"""Digested, though nothing of the lab imports them: what contracts and workspaces' backends import, and the kernel that
a GPU is tried with."""


def test_the_digest_covers_nothing_else() -> None:
    """What is digested and decides nothing would end open runs for nothing."""
    loaded = tuple(name for name in sources() if any(is_within(name, r) for r in LOADED_BY_NAME))
    reached = closure((*ENTRY_POINTS, *loaded))
    files = {path: name for name, path in sources().items()}
    digested = [
        files[path.resolve()] for path in judging_files(ROOT / "hillclimb") if path.resolve() in files
    ]
    assert [name for name in digested if name not in reached] == []


@pytest.mark.slow(4)
def test_the_digest_covers_all_that_a_judge_has_loaded() -> None:
    """As above, asked of a running interpreter instead of the syntax trees."""
    code = (
        f"import sys, importlib\nfor m in {ENTRY_POINTS!r}: importlib.import_module('hillclimb.' + m)\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'hillclimb'), sep='\\n')"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    digested = {path.resolve() for path in judging_files(ROOT / "hillclimb")}
    assert {Path(line).resolve() for line in loaded.split("\n") if line} <= digested


@pytest.mark.parametrize(
    "room",
    [
        "harness/report/page_text.py",
        "harness/report/plots.py",
        "harness/studies/page.py",
        "harness/gemm/shape.py",
    ],
)
def test_what_draws_does_not_change_the_digest(tmp_path: Path, room: str) -> None:
    package = copy_of_the_package(tmp_path)
    before = harness_digest(package)
    with (package / room).open("a") as file:
        file.write("\n# another word\n")
    (package / "harness" / "new").mkdir()
    (package / "harness" / "new" / "table.py").write_text("ROWS = ()\n")
    assert harness_digest(package) == before


@pytest.mark.parametrize(
    "room",
    ["harness/duel/duel.py", "harness/candidate/runner.py", "harness/records/timing.py", "__init__.py"],
)
def test_what_judges_changes_the_digest(tmp_path: Path, room: str) -> None:
    package = copy_of_the_package(tmp_path)
    before = harness_digest(package)
    with (package / room).open("a") as file:
        file.write("\n# another word\n")
    assert harness_digest(package) != before


def copy_of_the_package(folder: Path) -> Path:
    package = folder / "hillclimb"
    for path in [ROOT / "hillclimb" / "__init__.py", *(ROOT / "harness").rglob("*.py")]:
        part = path.relative_to(ROOT)
        copy = folder / (part if part.parts[0] == "hillclimb" else Path("hillclimb", part))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return package


def test_the_controller_stays_light() -> None:
    """Nothing the controller imports, directly or not, brings in a framework."""
    modules = [f"hillclimb.{name}" for name in sources() if is_within(name, "agent")]
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {module.split(".")[0] for module in loaded} & HEAVY


def test_workspaces_are_imported_in_one_place() -> None:
    loaders = {
        str(path.relative_to(ROOT))
        for path in sources().values()
        if any("importlib.util" in module for module in imported(path))
    }
    assert loaders == WORKSPACE_LOADERS


def test_nothing_is_unpickled() -> None:
    for path in sources().values():
        assert not {module.split(".")[0] for module in imported(path)} & {
            "pickle",
            "cloudpickle",
            "marshal",
            "shelve",
            "dill",
        }
