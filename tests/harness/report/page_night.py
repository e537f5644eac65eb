"""A long night that never was: a real repository, ledger, commits and samples, with verdicts drawn from a seed."""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.entries import (
    BaselinedEntry,
    CalledEntry,
    ConfirmingEntry,
    Entry,
    FinishedEntry,
    Idea,
    JudgedEntry,
    OpenedEntry,
    Phase,
    ProfiledEntry,
    ProposedEntry,
    RemeasuredEntry,
    Samples,
    SessionEntry,
    SettledEntry,
    TokenUsage,
    TurnedEntry,
)
from hillclimb.harness.knobs.knobs import KnobValue
from hillclimb.harness.records import (
    Block,
    Bucket,
    Ceilings,
    Environment,
    GateReport,
    Interval,
    Pair,
    ProblemTime,
    Profile,
    Provenance,
    Reason,
    Screening,
)
from tests.fakes.toy import write_toy

CASE, TAG, START = "demo/toy", "night", 1_763_700_000.0
WORKSPACE = "cases/demo/toy/workspace"
KNOBS = """\
MM_TILE_M: {type: log-int, low: 8, high: 256, default: 8, doc: rows of C that one task computes}
MM_TILE_N: {type: log-int, low: 8, high: 256, default: 8, doc: columns of C that one task computes}
MM_ORDER: {type: choice, choices: [ijk, ikj, kij], default: ijk, doc: order of the loops}
MM_UNROLL: {type: int, low: 1, high: 8, default: 1}
MM_FASTMATH: {type: bool, default: false}
"""
DEFAULTS: dict[str, KnobValue] = {
    "MM_TILE_M": 8,
    "MM_TILE_N": 8,
    "MM_ORDER": "ijk",
    "MM_UNROLL": 1,
    "MM_FASTMATH": False,
}
FAMILIES = ("vectorise", "tiling", "packing", "parallel", "prefetch")
IDEAS = {
    "vectorise": (
        "accumulate eight columns at once so that the inner loop becomes FMA vectors",
        "hoist the row of A into a local array before the k loop",
    ),
    "tiling": (
        "split k into blocks that stay in L1 and add up in registers",
        "tile j by 64 and keep one panel of B hot in L2",
    ),
    "packing": (
        "pack B into contiguous panels once for each call",
        "transpose A tiles while copying, to read them with stride one",
    ),
    "parallel": (
        "parallelise over the tiles of C instead of over its rows",
        "give every thread a contiguous band of rows, uneven ones last",
    ),
    "prefetch": (
        "start loading the next panel while this one is multiplied",
        "unroll k by four with two independent accumulators",
    ),
}
FAILURES = (
    (
        Reason.WRONG_RESULT,
        "problem 128x96x64, wide: C[17, 40] is 3.2181 and should be 3.2009; 41 times the budget",
    ),
    (
        Reason.DOES_NOT_LOAD,
        "kernel.py line 31: Cannot unify array(float32, 2d, C) and array(float32, 1d, C) for 'acc'",
    ),
    (Reason.RAISED, "IndexError: index 96 is out of bounds for axis 1 with size 96"),
    (Reason.NOT_FINITE, "problem 1x1x1, zeros: C holds NaN"),
    (Reason.CRASHED, "the process ended by SIGSEGV in call 3 of 56"),
    (Reason.DOES_NOT_APPLY, "it changes nothing"),
)
FAULTS = ("timeout", "rate_limited", "html_reply", "connection_reset")
PROVENANCE = Provenance(
    contract="3f" * 32,
    benchmarks="9a" * 32,
    harness="c4" * 32,
    device="AMD EPYC 7763 64-Core Processor",
    device_id="5b1f6c0c9e4f4d07",
    sandbox="bubblewrap",
    software={"python": "3.11.2", "kernel": "6.1.0", "torch": "2.8.0", "numba": "0.62.1"},
    seed_commitment="7e" * 32,
)


def kernel(draw: random.Random, quality: int) -> str:
    """Some lines of a kernel, never the same twice."""
    body = [f"            acc{i} += a[i, k + {i}] * b[k + {i}, j]  # {draw.random():.6f}" for i in range(8)]
    fixed = [f"# step {i}: the loop as it was written first, kept for the diff's context" for i in range(60)]
    head = ["import numba", "", "", f"# version {quality}", "@numba.njit(fastmath=True)", "def run(a, b, c):"]
    loops = ["    for i in range(a.shape[0]):", "        for j in range(b.shape[1]):"]
    return "\n".join([*head, *fixed[:30], *loops, *body, *fixed[30:], ""])


@dataclass
class Night:
    """Writes one run below `root`; `change` may alter every proposal before it is written."""

    root: Path
    candidates: int = 60
    seed: int = 7
    win_every: int = 9
    with_model: bool = True
    is_finished: bool = True
    change: Callable[[int, Proposal], Proposal] = lambda n, proposal: proposal
    entries: list[Entry] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.root / "runs" / CASE / TAG

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    def write(self) -> Night:
        """Repository, commits, samples and ledger."""
        self._draw = random.Random(self.seed)
        self.root.mkdir(parents=True, exist_ok=True)
        self._start()
        for n in range(1, self.candidates + 1):
            self._tell(n)
        self._importer.communicate()
        self._end()
        self.ledger.write_text("".join(f"{entry.model_dump_json()}\n" for entry in self.entries))
        return self

    def _start(self) -> None:
        folder = write_toy(self.root)
        (folder / "workspace/knobs.yaml").write_text(KNOBS)
        (folder / "workspace/kernel.py").write_text(kernel(self._draw, 0))
        for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "start"]):
            self._git(*command)
        self.base = self._git("rev-parse", "HEAD").strip()
        (self.folder / "samples").mkdir(parents=True)
        importer = ["git", "-C", str(self.root), "fast-import", "--quiet", "--cat-blob-fd=1"]
        self._importer = subprocess.Popen(importer, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._incumbent, self._best, self._knobs, self._k, self._ks = self.base, 1.0, dict(DEFAULTS), 0, 0
        self._text, self._now, self._phase = kernel(random.Random(self.seed), 0), START, ""
        self._tip = self.base
        self._open()

    def _open(self) -> None:
        self._add(
            OpenedEntry(
                schema_version=1,
                time=START,
                base=self.base,
                snapshot=False,
                provenance=PROVENANCE,
                case=CASE,
                case_path="cases/demo/toy",
                tag=TAG,
                seed=0,
                alpha=0.01,
            )
        )
        self._add(SessionEntry(time=START, pid=4711, host="lab"))
        gate = GateReport(passed=True, runs=56, worst=0.21, worst_at="ragged/wide")
        noise = Interval(estimate=1.0003, low=0.9981, high=1.0025, pairs=6)
        self._add(
            BaselinedEntry(
                time=START + 41,
                gate=gate,
                seconds_per_call=9.81e-3,
                pair_sd=0.0042,
                noise=noise,
                seconds=38.0,
            )
        )
        self._add(ProfiledEntry(time=START + 52, commit=self.base, profile=_profile(9.81e-3, 0.91)))

    def _tell(self, n: int) -> None:
        """One candidate, start to end."""
        self._turn(n)
        self._now += self._draw.uniform(3, 12)
        proposal = self.change(n, self._propose(n))
        self._add(ProposedEntry(n=n, time=self._now, proposal=proposal))
        kept = n % self.win_every == 0
        if kept:
            self._ks += 1
            self._add(ConfirmingEntry(n=n, k=self._ks, alpha=0.06 / (math.pi**2 * self._ks**2)))
        judged = self._judge(n, proposal, kept)
        self._add(judged)
        self._add(SettledEntry(n=n))
        samples = Samples(n=n, screening=_screening(self._draw, judged))
        (self.folder / "samples" / f"{n}.json").write_text(samples.model_dump_json())

    def _turn(self, n: int) -> None:
        phase: Phase = "sweep" if not self.with_model or (n // 12) % 2 == 0 else "edit"
        if n % 53 == 0:
            phase = "ablate"
        if phase == self._phase:
            return
        self._phase, self._family = phase, FAMILIES[(n // 24) % len(FAMILIES)] if phase == "edit" else ""
        reasons = {
            "sweep": "the last win changed the kernel: its knobs are tuned anew",
            "edit": "the sweep's last 11 values lie within 0.3 %, below the noise floor of 0.42 %",
            "ablate": "3 wins were not checked again since the kernel changed",
        }
        signals = {
            "sweep": (),
            "edit": ("sweep_below_noise", "top_buckets_unmoved"),
            "ablate": ("old_wins_unchecked",),
        }
        self._add(
            TurnedEntry(
                time=self._now,
                n=n,
                phase=phase,
                family=self._family,
                reason=reasons[phase],
                signals=signals[phase],
            )
        )

    def _propose(self, n: int) -> Proposal:
        if self._phase == "edit":
            call = self._call(n)
            self._text = kernel(self._draw, n)
            idea = self._draw.choice(IDEAS[self._family])
            edits = (Edit(path="kernel.py", content=self._text),)
            return Proposal(author="llm", idea=idea, family=self._family, edits=edits, call=call)
        if self._phase == "ablate":
            edits = (Edit(path="kernel.py", content=kernel(self._draw, -n)),)
            return Proposal(
                author="ablation", idea="without win #9: is it still worth its lines?", edits=edits, undoes=9
            )
        choices: dict[str, list[Any]] = {
            "MM_TILE_M": [8, 16, 32, 64, 128, 256],
            "MM_TILE_N": [8, 16, 32, 64, 128, 256],
            "MM_ORDER": ["ijk", "ikj", "kij"],
            "MM_UNROLL": list(range(1, 9)),
            "MM_FASTMATH": [True, False],
        }
        names = self._draw.sample(list(choices), self._draw.randint(1, 3))
        knobs: dict[str, Any] = {name: self._draw.choice(choices[name]) for name in names}
        idea = ", ".join(f"{name}={value}" for name, value in knobs.items())
        return Proposal(author="sweep", idea=idea, knobs=knobs)

    def _call(self, n: int) -> int:
        """Calls up to the one that this candidate comes from."""
        if self._draw.random() < 0.35:
            outcome: Literal["fault", "unusable"] = self._draw.choice(["fault", "unusable"])
            fault = self._draw.choice(FAULTS) if outcome == "fault" else ""
            told = (
                "no reply within 600 s, 3 attempts"
                if fault
                else "FILE kernel.py, block 2: SEARCH text is not in the file"
            )
            self._record_call(outcome, fault, told)
        return self._record_call("proposal", "", "", idea=IDEAS[self._family][0])

    def _record_call(self, outcome: Any, fault: str, detail: str, idea: str = "") -> int:
        self._k += 1
        prompt = self._draw.randint(14_000, 21_000)
        usage = (
            TokenUsage()
            if fault
            else TokenUsage(
                prompt=prompt, cached=prompt // 2, completion=self._draw.randint(900, 5200), reasoning=700
            )
        )
        cost = None if fault else round(usage.prompt * 1e-6 + usage.completion * 8e-6, 6)
        seconds = 600.0 if fault else self._draw.uniform(8, 90)
        ideas = (Idea(family="packing", idea="pack both operands"),)
        self._add(
            CalledEntry(
                k=self._k,
                time=self._now,
                seconds=seconds,
                model="gpt-5-mini",
                incumbent=self._incumbent,
                family=self._family,
                outcome=outcome,
                fault=fault,
                detail=detail,
                attempts=3 if fault else 1,
                usage=usage,
                cost=cost,
                idea=idea,
                ideas=ideas,
            )
        )
        return self._k

    def _judge(self, n: int, proposal: Proposal, kept: bool) -> JudgedEntry:
        draw = self._draw
        failed = None if kept or draw.random() > 0.4 else draw.choice(FAILURES)
        gain = 1 + draw.uniform(0.02, 0.8) / self._ks if kept else draw.uniform(0.35, 1.02)
        parent = self._incumbent
        commit = None if failed and failed[0] is Reason.DOES_NOT_APPLY else self._commit(n, proposal, kept)
        if kept:
            self._best, self._incumbent = self._best * gain, commit or parent
            self._knobs |= proposal.knobs
            self._tip = f":{n}"
        gate = GateReport(
            passed=failed is None,
            reason=failed[0] if failed else None,
            detail=failed[1] if failed else "",
            runs=9 if failed else 56,
            worst=41.0 if failed else 0.34,
            worst_at="ragged/wide",
        )
        slow = Reason.SLOWER if gain < 0.98 else Reason.NO_PROVEN_GAIN
        return JudgedEntry(
            n=n,
            time=self._now + 2,
            kept=kept,
            reason=None if kept else failed[0] if failed else slow,
            detail="" if kept else failed[1] if failed else f"{gain:.4f}x on the screening pair",
            gate=gate,
            screened=None if failed else gain,
            speedup=Interval(estimate=gain, low=gain * 0.991, high=gain * 1.009, pairs=5) if kept else None,
            cumulative=Interval(estimate=self._best, low=self._best * 0.97, high=self._best * 1.03, pairs=5)
            if kept
            else None,
            seconds_per_call=9.81e-3 / self._best if kept else None,
            e_value=3.1e6 if kept else None,
            tree="ab" * 20,
            parent=parent,
            commit=commit,
            ref=f"refs/hillclimb/{CASE}/{TAG}/rejected/{n}" if commit and not kept else None,
            seconds=draw.uniform(0.4, 9.0),
        )

    def _commit(self, n: int, proposal: Proposal, kept: bool) -> str:
        files = {edit.path: edit.content or "" for edit in proposal.edits}
        if proposal.knobs:
            files["knobs.yaml"] = _with(KNOBS, self._knobs | proposal.knobs)
        ref = f"refs/heads/hillclimb/{CASE}/{TAG}" if kept else f"refs/hillclimb/{CASE}/{TAG}/rejected/{n}"
        who = f"hillclimb <lab@hillclimb.invalid> {int(self._now)} +0000"
        parts = [f"commit {ref}\nmark :{n}\nauthor {who}\ncommitter {who}\ndata 4\nidea\nfrom {self._tip}\n"]
        for path, content in files.items():
            parts.append(
                f"M 100644 inline {json.dumps(f'{WORKSPACE}/{path}')}\ndata {len(content.encode())}\n{content}\n"
            )
        assert self._importer.stdin and self._importer.stdout
        self._importer.stdin.write("".join([*parts, f"get-mark :{n}\n"]).encode())
        self._importer.stdin.flush()
        return self._importer.stdout.readline().decode().strip()

    def _end(self) -> None:
        if not self.is_finished:
            return
        self._add(
            ProfiledEntry(
                time=self._now + 3, commit=self._incumbent, profile=_profile(9.81e-3 / self._best, 0.38)
            )
        )
        speedup = Interval(estimate=self._best * 0.99, low=self._best * 0.95, high=self._best * 1.03, pairs=8)
        self._add(
            RemeasuredEntry(
                time=self._now + 30,
                commit=self._incumbent,
                speedup=speedup,
                seconds_per_call=(9.81e-3, 9.81e-3 / self._best),
            )
        )
        importances = {
            "MM_ORDER": 0.46,
            "MM_TILE_N": 0.27,
            "MM_TILE_M": 0.16,
            "MM_UNROLL": 0.08,
            "MM_FASTMATH": 0.03,
        }
        self._add(
            FinishedEntry(
                time=self._now + 31,
                reason=f"the budget of {self.candidates} candidates is used up",
                importances=importances,
            )
        )

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def _git(self, *arguments: str) -> str:
        who = ("-c", "user.name=user", "-c", "user.email=user@example.org")
        command = ["git", "-C", str(self.root), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _with(text: str, knobs: dict[str, KnobValue]) -> str:
    """knobs.yaml with other defaults."""
    return "".join(_line_with(line, knobs) for line in text.splitlines())


def _line_with(line: str, knobs: dict[str, KnobValue]) -> str:
    name = line.split(":")[0]
    return line.replace(f"default: {_yaml(DEFAULTS[name])}", f"default: {_yaml(knobs[name])}") + "\n"


def _yaml(value: KnobValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _screening(draw: random.Random, judged: JudgedEntry) -> Screening:
    gate = judged.gate or GateReport(passed=True)
    pairs: Iterable[Pair] = ()
    if judged.screened is not None:
        pairs = [_pair(draw, "screen", judged.screened, draw.randint(4, 12))]
    if judged.kept and judged.screened:
        pairs = [
            *pairs,
            *(_pair(draw, stage, judged.screened, 5) for stage in ("decide", "report") for _ in range(4)),
        ]
    return Screening(
        gate=gate, reason=judged.reason, speedup=judged.screened, pairs=tuple(pairs), seconds=1.0
    )


def _pair(
    draw: random.Random, stage: Literal["screen", "decide", "report"], speedup: float, blocks: int
) -> Pair:
    def block() -> Block:
        a, b = 1e-3 * draw.uniform(0.99, 1.01), 1e-3 * speedup * draw.uniform(0.99, 1.01)
        return Block(order="ABBA", seconds=(a, b, b, a), environment=Environment(others=0.02))

    return Pair(stage=stage, suite="main", blocks=tuple(block() for _ in range(blocks)))


def _profile(seconds: float, share: float) -> Profile:
    problems = tuple(
        ProblemTime(
            problem=name, seconds_per_call=seconds * factor, flops=5.4e8 * factor, bytes=4.2e6 * factor
        )
        for name, factor in (("square 512", 1.0), ("tall 2048x256x64", 0.7), ("ragged 513x255x129", 0.4))
    )
    buckets = (
        Bucket(name="kernel.py:31 run, inner loop", share=share, seconds_per_call=seconds * share, calls=1),
        Bucket(name="kernel.py:18 pack_panel", share=0.94 - share, seconds_per_call=seconds * 0.1, calls=16),
        Bucket(name="numba dispatch", share=0.06, seconds_per_call=seconds * 0.06, calls=1),
    )
    ceilings = Ceilings(
        flops=6.2e11, bytes=4.1e10, how="a matrix product of 1024 in float32 and a copy of 256 MiB"
    )
    return Profile(problems=problems, buckets=buckets, ceilings=ceilings, seconds=4.0)
