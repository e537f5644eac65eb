"""A would-be winner under compute-sanitizer: memory it may not touch, races, barriers, values nobody wrote.

The gate sees an access beside an array only where it lands in a guard or changes a result. Here every tensor is an
allocation of its own (harness.candidate.tool_run), and the tool looks at every access. The candidate shares the
sandbox with the tool and could forge its log (harness.profile.tool_run): this tier finds the memory bugs of honest
kernels, and a clean log proves nothing about others.

What is held against a kernel: errors of the tool chosen by the case. What is only told: warnings, leaks, failing calls
of the CUDA interface, and races of a write with a write, which Triton's own reductions show where all lanes store
results that differ in rounding alone (triton-lang/triton issue 7264).

Texts are those of compute-sanitizer 2025.3 and 2026.4, and of older ones where they were found; the user manual's
examples are in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.profile.problem_writer import ProblemDraft
from hillclimb.harness.profile.rows import printable
from hillclimb.harness.profile.tool_run import ToolOutput, ToolSandbox, draft_problems, find_program
from hillclimb.harness.records import Progress, Reason, Watch

PLACES = (
    "/usr/local/cuda/bin/compute-sanitizer",
    "/usr/local/cuda/compute-sanitizer/compute-sanitizer",
    "/usr/local/cuda-*/bin/compute-sanitizer",
    "/usr/local/cuda-*/compute-sanitizer/compute-sanitizer",
)
ERROR_STATUS = 86
MAX_FINDINGS = 20
MAX_TEXT_CHARS = 400

START_SECONDS = 90
"""Until the kernel's process, importing torch under the tool, must have spoken to it."""

PADDING_BYTES = 512
"""Left free behind every allocation, so that an access a little past the end is not one to a neighbour."""

PREFIX = "========="
CONTINUED = "    "
"""What follows the prefix in every line of a record but its first."""

IGNORED_LINE = re.compile(r"COMPUTE-SANITIZER|Saved host backtrace|(LEAK|ERROR|RACECHECK) SUMMARY|$")
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: .*?\((\d+) error)")
TOOL_FAILURE_LINE = re.compile(
    r"Internal Sanitizer Error|Error:|Error launching|Target application|Unable to|Device not supported|"
    r"Tracking kernels"
)
"""The tool could not look, or not at all of it."""

PLACE = re.compile(r"^at (?:0x[0-9a-fA-F]+ in )?(?P<place>.+)$")
RACE_PLACE = re.compile(r" access at (?:0x[0-9a-fA-F]+ in )?(?P<place>.+?)(?: \[[\d,]+ hazards?\])?$")


@dataclass(frozen=True)
class FindingKind:
    """A kind of record by the way its first line begins."""

    pattern: re.Pattern[str]
    name: str
    """What it is called; {1}, {2} stand for what the pattern's groups found."""
    reason: Reason | None
    """None: told, not held against the kernel."""


KINDS = (
    FindingKind(re.compile(r"Invalid __(\w+)__ read"), "invalid {1} read", Reason.MEMORY_ERROR),
    FindingKind(re.compile(r"Invalid __(\w+)__ (\w+)"), "invalid {1} {2}", Reason.WROTE_OUT_OF_BOUNDS),
    FindingKind(re.compile(r"Potential invalid __(\w+)__ (\w+)"), "perhaps invalid {1} {2}", None),
    FindingKind(re.compile(r"Uninitialized __(\w+)__ memory"), "uninitialised {1} read", Reason.MEMORY_ERROR),
    FindingKind(re.compile(r"Malloc/Free error"), "device heap error", Reason.MEMORY_ERROR),
    FindingKind(re.compile(r"Tensor Memory"), "tensor memory error", Reason.MEMORY_ERROR),
    FindingKind(re.compile(r"(?:Error|ERROR): Race reported"), "shared memory race", Reason.DATA_RACE),
    FindingKind(re.compile(r"(?:Error|ERROR): .*Potential (\w+) hazard"), "{1} hazard", Reason.DATA_RACE),
    FindingKind(re.compile(r"Barrier error detected"), "barrier error", Reason.DATA_RACE),
    FindingKind(re.compile(r"Deadlock detected"), "deadlock", Reason.DATA_RACE),
    FindingKind(re.compile(r"(?:Warning|WARNING|WARN|Info|INFO):"), "warning", None),
    FindingKind(re.compile(r"Leaked "), "leak", None),
    FindingKind(re.compile(r"Unused "), "unused memory", None),
    FindingKind(re.compile(r"Program hit "), "failing CUDA call", None),
)
"""The first that matches names a record."""


@dataclass(frozen=True)
class Finding:
    """Records of one kind at one place, told by the first of them."""

    kind: str
    reason: Reason | None
    kernel: str
    """The device function, as the tool names it; empty where it names none."""
    text: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.text} ({self.count} times)" if self.count > 1 else self.text


@dataclass(frozen=True)
class SanitizerLog:
    """One tool's log, read."""

    findings: tuple[Finding, ...] = ()
    failure: str = ""
    """What the tool says it could not do; empty where it says nothing of the kind."""
    errors: int | None = None
    """By its own count; None where the log ends before it."""


@dataclass(frozen=True)
class SanitizerReport:
    """What one tool found, over which problems."""

    tool: str
    findings: tuple[Finding, ...] = ()
    problems_run: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Problems there was no time or no room for."""
    failure: str = ""
    """Why it did not look, or not to the end; empty where it did."""

    def require_clean(self) -> None:
        """Raises CandidateFault with the first finding that is held against the kernel."""
        held = [finding for finding in self.findings if finding.reason is not None]
        if held:
            more = f"; and {len(held) - 1} more of its findings" if len(held) > 1 else ""
            assert held[0].reason is not None
            raise CandidateFault(held[0].reason, f"under {self.tool}: {held[0]}{more}")

    def note(self) -> str:
        """One sentence for the record."""
        if not self.problems_run and self.failure:
            return f"{self.tool} came to nothing: {self.failure}"
        parts = [f"{self.tool} found {self._found()} in {', '.join(self.problems_run) or 'no problem'}"]
        if self.left_out:
            parts.append(f"not looked at: {', '.join(self.left_out)}")
        if self.failure:
            parts.append(self.failure)
        return "; ".join(parts)

    def _found(self) -> str:
        if not self.findings:
            return "nothing"
        return ", ".join(dict.fromkeys(finding.kind for finding in self.findings))


@dataclass(frozen=True)
class Sanitizer:
    """Runs compute-sanitizer over one side. `program` is its path inside the sandbox; None where there is none."""

    program: Path | None
    sandbox: ToolSandbox
    seconds: float = 120.0
    """For one tool over all problems, its start and the kernel's compilation included."""

    def check(
        self, sources: Sequence[InputSource], tools: Sequence[str], watch: Watch
    ) -> Iterator[SanitizerReport]:
        """Each tool over every problem there is room and time for, lightest first. Raises MachineError."""
        fitting, large = draft_problems(sources)
        for done, tool in enumerate(tools):
            watch(Progress(stage="sanitize", done=done, of=len(tools)))
            found = self._run(tool, fitting)
            yield replace(found, left_out=(*found.left_out, *large))

    def _run(self, tool: str, fitting: Sequence[ProblemDraft]) -> SanitizerReport:
        names = tuple(one.problem for one in fitting)
        if not fitting:
            return SanitizerReport(tool, failure="no problem is small enough for it")
        if self.program is None:
            return SanitizerReport(tool, left_out=names, failure="compute-sanitizer is not installed")
        if self.sandbox.rung.name != "bubblewrap":
            trouble = f"it runs behind bubblewrap only, and the sandbox here is {self.sandbox.rung.name}"
            return SanitizerReport(tool, left_out=names, failure=trouble)
        program = str(self.program)
        heard = self.sandbox.run(lambda log: sanitizer_command(program, tool, log), fitting, self.seconds)
        return report_of_run(tool, names, heard)


def find_sanitizer() -> Path | None:
    """The program on this machine, where the sandbox shows it too."""
    return find_program("compute-sanitizer", PLACES)


def sanitizer_command(program: str, tool: str, log: str) -> list[str]:
    """The tool's command line; the kernel's own goes after it."""
    options = {
        "--tool": tool,
        "--log-file": log,
        "--error-exitcode": str(ERROR_STATUS),
        "--launch-timeout": str(START_SECONDS),
        "--print-limit": "100",
        "--show-backtrace": "device",
        "--demangle": "simple",
    }
    if tool == "memcheck":
        # torch and Triton make calls that fail, and handle it
        options |= {"--padding": str(PADDING_BYTES), "--report-api-errors": "no"}
    if tool == "racecheck":
        options["--racecheck-report"] = "analysis"
    return [program, *(word for option in options.items() for word in option)]


def report_of_run(tool: str, problems: Sequence[str], heard: ToolOutput) -> SanitizerReport:
    """What a run comes to."""
    log = parse_log(heard.log)
    left_out = tuple(name for name in problems if name not in heard.problems_run)
    return SanitizerReport(tool, log.findings, heard.problems_run, left_out, _failure(heard, log))


def parse_log(text: str) -> SanitizerLog:
    """Findings out of a log, whatever it holds; most frequent kinds of a place told once."""
    found: dict[tuple[str, str, str], Finding] = {}
    trouble = ""
    for first, rest in _records(text):
        if IGNORED_LINE.match(first):
            continue
        finding = _finding(first, rest)
        if finding is None:
            trouble = trouble or first
            continue
        key = finding.kind, finding.kernel, _place(first, rest)
        known = found.get(key)
        found[key] = replace(known, count=known.count + 1) if known else finding
    findings = sorted(found.values(), key=lambda finding: finding.reason is None)
    return SanitizerLog(tuple(findings[:MAX_FINDINGS]), printable(trouble[:MAX_TEXT_CHARS]), _errors(text))


def _records(text: str) -> Iterator[tuple[str, list[str]]]:
    """The first line of each record, and the lines that belong to it."""
    first, rest = "", list[str]()
    for line in text.split("\n"):
        prefix, found, body = line.partition(PREFIX)
        if not found or prefix.strip("\r\x00 "):
            continue
        if body.startswith(CONTINUED):
            rest.append(body.strip())
            continue
        if first:
            yield first, rest
        first, rest = body.strip(), []
    if first:
        yield first, rest


def _finding(first: str, rest: list[str]) -> Finding | None:
    """What a record says; None where it is about the tool itself."""
    whole = printable(" ".join([first, *(line for line in rest if "Frame:" not in line)])[:MAX_TEXT_CHARS])
    kernel = _kernel(_place(first, rest))
    for kind in KINDS:
        if match := kind.pattern.match(first):
            name = kind.name.format("", *(group.lower() for group in match.groups()))
            return Finding(printable(name[:60]), _reason(kind, first, rest), kernel, whole)
    return None if TOOL_FAILURE_LINE.match(first) else Finding("something else", None, kernel, whole)


def _reason(kind: FindingKind, first: str, rest: list[str]) -> Reason | None:
    if kind.reason is Reason.WROTE_OUT_OF_BOUNDS and any("misaligned" in line for line in rest):
        return Reason.MEMORY_ERROR
    if kind.reason is Reason.DATA_RACE and _is_write_with_write(first, rest):
        return None
    return kind.reason


def _is_write_with_write(first: str, rest: list[str]) -> bool:
    if "Race reported" in first:
        return not any("Read access" in line for line in (first, *rest))
    return "WAW hazard" in first


def _place(first: str, rest: list[str]) -> str:
    for line in rest:
        if match := PLACE.match(line):
            return match["place"]
    for line in (first, *rest):
        if match := RACE_PLACE.search(line):
            return match["place"]
    return ""


def _kernel(place: str) -> str:
    """The function's name: `f(int *)+0x90 in file.cu:4`, or `/path/file.py:175:f` of older versions."""
    function = place.split("+0x")[0].split(" in ")[0]
    if "+0x" not in place and (match := re.search(r":\d+:(.+)$", place)):
        function = match[1]
    return printable(function.strip()[:MAX_TEXT_CHARS])


def _errors(text: str) -> int | None:
    counts = [int((match[1] or match[2])[:12]) for match in SUMMARY.finditer(text)]
    return counts[-1] if counts else None


def _failure(heard: ToolOutput, log: SanitizerLog) -> str:
    if heard.exit is None:
        return f"its time was up after {heard.seconds:.0f} s"
    if log.failure:
        return f"it says: {log.failure}{_last_words(heard)}"
    if log.errors is None:
        return f"its log has no end ({heard.exit}){_last_words(heard)}"
    if not heard.problems_run and not log.findings:
        return f"the kernel was not called ({heard.exit}){_last_words(heard)}"
    return ""


def _last_words(heard: ToolOutput) -> str:
    printed = printable(heard.printed.strip()[-MAX_TEXT_CHARS:])
    return f"; printed: {printed}" if printed else ""
