"""The first two messages of a briefing: the rules, and the case. They hardly change in the course of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hillclimb.agent.git.trees import is_judged
from hillclimb.agent.llm.briefing.device import ARRAYS, rules
from hillclimb.agent.llm.briefing.facts import Facts
from hillclimb.agent.llm.briefing.headroom import work_table
from hillclimb.agent.llm.briefing.prompts import render
from hillclimb.agent.llm.briefing.quoting import clip_middle, fenced, language, quoted
from hillclimb.agent.llm.briefing.truncation import BriefingPart, Extent, notice
from hillclimb.agent.rhythm.notes_files import CANDIDATES_FILE, NOTES_FILE, NOTES_MARKER
from hillclimb.harness.case.settings import Guardrail
from hillclimb.harness.policy.policy import DYNAMIC, LIBRARY_CALLS

MIN_PROGRAM_CHARS = 2_500
"""Characters of program.md that are never cut, down to the end of a paragraph."""
CONTRACT_HEAD_LINES = 45
"""Lines of contract.py that stay where it is shortened: its problems stand there."""
MAX_HUMAN_NOTES_CHARS = 8_000
"""Characters of one file of people's notes."""


def system(facts: Facts) -> str:
    """The rules; a function of case.yaml, and of whether the contract has parameters."""
    settings = facts.case.settings
    is_session = settings.surface == "session"
    policy, gate, budgets = settings.policy, settings.gate, settings.budgets
    return render(
        "system",
        entry=facts.entry,
        function=settings.entry.split(":")[1],
        mutable=", ".join(f"`{glob}`" for glob in settings.mutable if is_judged(glob)),
        imports=_names(policy.imports),
        dynamic=_names(DYNAMIC),
        arrays=ARRAYS[settings.device],
        device=list(rules(settings)),
        seeds=gate.seeds,
        error_budget=f"{gate.error_budget:g}",
        minimum_effect=f"{settings.objective.minimum_effect:.2%}",
        guardrails=", ".join(map(_guardrail, settings.guardrails)),
        prepare_seconds=f"{budgets.prepare_seconds:g}",
        call_seconds=f"{budgets.call_seconds:g}",
        memory_mib=budgets.memory_mib,
        policy=list(_policy(facts)),
        is_session=is_session,
        command=_in_order(settings.command.run) if settings.command else "",
        command_seconds=f"{settings.command.seconds:g}" if settings.command else "",
        objective=settings.objective,
        metrics=_names(settings.metrics),
        has_contract=settings.has_contract,
        has_parameters=is_session or "def parameters(" in facts.texts.contract,
        reply_tokens=settings.llm.reply_tokens,
    )


def case(facts: Facts, extent: Extent) -> BriefingPart:
    """What the case is about."""
    settings, texts = facts.case.settings, facts.texts
    program, contract = _program(texts.program, extent.program), _contract(texts.contract, extent.contract)
    people = _people(facts.files, extent.people)
    text = render(
        "case",
        name=facts.case.name,
        summary=settings.summary,
        model=settings.model,
        hardware=settings.hardware,
        machine=facts.machine,
        program=program.text,
        suites=list(_suites(facts)),
        work=work_table(facts.profile.profile) if facts.profile and facts.profile.profile.problems else "",
        has_contract=facts.case.has_contract,
        contract=contract.text,
        people=people.text,
    )
    return BriefingPart(text, (*program.cuts, *contract.cuts, *people.cuts))


def _policy(facts: Facts) -> Iterator[str]:
    policy = facts.case.settings.policy
    for allowed, what in (
        (policy.library_calls, f"finished operators of a library: `@` on arrays, {_names(LIBRARY_CALLS)}"),
        (policy.weight_caches, "values derived from an input and kept between calls"),
        (policy.graphs, "captured and replayed launches"),
        (policy.reduced_precision, "arithmetic in fewer bits than the inputs' dtype"),
    ):
        yield f"{'allowed' if allowed else 'not allowed'}: {what}"
    yield (
        "of each module only what a kernel needs: of numpy elementwise functions, reductions, memory and dtypes; of os "
        "`environ`, `path` and questions; of yaml `safe_load`; of typing annotations. A refusal names the rest"
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _in_order(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def _suites(facts: Facts) -> Iterator[str]:
    settings = facts.case.settings
    roles = {settings.objective.suite: ["scored: this is what must get faster"]}
    for rail in settings.guardrails:
        worse = f"{rail.metric} worse" if rail.metric else "slower"
        roles.setdefault(rail.suite, []).append(f"guardrail: at most {rail.max_slowdown:.0%} {worse}")
    for name, parts in roles.items():
        role, doc = "; ".join(parts), ""
        if facts.case.has_contract:
            suite = facts.case.suites[name]
            doc = f" {suite.doc}" if suite.doc else ""
            yield f"`{name}` ({role}): {', '.join(suite.problems)}, inputs {suite.distribution}.{doc}"
        elif name in facts.case.command_suites:
            run = facts.case.command_suites[name]
            doc = f" {run.doc}" if run.doc else ""
            yield f"`{name}` ({role}): the command, arguments {_in_order(run.arguments) or 'none'}.{doc}"
        else:
            asked = facts.case.request_suites[name]
            doc = f" {asked.doc}" if asked.doc else ""
            sizes = f"prompts of {asked.prompt_tokens} tokens, answers of {asked.answer_tokens}"
            yield f"`{name}` ({role}): {asked.count} requests, {asked.concurrency} at once, {sizes}.{doc}"


def _guardrail(rail: Guardrail) -> str:
    if rail.metric:
        return f"`{rail.metric}` of suite `{rail.suite}` may be at most {rail.max_slowdown:.0%} worse"
    return f"suite `{rail.suite}` may be at most {rail.max_slowdown:.0%} slower"


def _program(text: str, extent: int) -> BriefingPart:
    if not text.strip():
        return BriefingPart("The case has no program.md.")
    end = text.find("\n\n", MIN_PROGRAM_CHARS)
    if extent or end < 0:
        return BriefingPart(fenced(text, "markdown"))
    cut = f"the last {len(text) - end} characters of program.md"
    return BriefingPart(f"{fenced(text[:end], 'markdown')}\n{notice(cut)}", (cut,))


def _contract(text: str, extent: int) -> BriefingPart:
    lines = text.splitlines()
    shown = len(lines) if extent == 2 else min(CONTRACT_HEAD_LINES * extent, len(lines))
    if shown == len(lines):
        return BriefingPart(fenced(text, "python"))
    cut = f"lines {shown + 1} to {len(lines)} of contract.py"
    head = f"{fenced(chr(10).join(lines[:shown]), 'python')}\n" if shown else ""
    return BriefingPart(f"{head}{notice(cut)}", (cut,))


def _people(files: Mapping[str, str], extent: int) -> BriefingPart:
    """docs/ as people wrote it: without what the climb keeps there, which the last message has anew."""
    texts = {path: files[path] for path in sorted(files) if not is_judged(path) and path != CANDIDATES_FILE}
    if NOTES_FILE in texts:
        texts[NOTES_FILE] = texts[NOTES_FILE].split(NOTES_MARKER)[0]
    texts = {path: text for path, text in texts.items() if text.strip()}
    if not extent and texts:
        cut = f"notes of people in {', '.join(quoted(path) for path in texts)}"
        return BriefingPart(notice(cut), (cut,))
    blocks, cuts = [], []
    for path, text in texts.items():
        said, lost = clip_middle(text, MAX_HUMAN_NOTES_CHARS)
        blocks.append(f"{quoted(path)}\n\n{fenced(said, language(path))}")
        cuts += [f"{lost} characters of {quoted(path)}"] if lost else []
    return BriefingPart("\n\n".join(blocks), tuple(cuts))
