"""Runs a plan's operator on small inputs and says what a case of it needs: names, problems, distributions, doubts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hillclimb.agent.importers.formats.imported import Findings, Plan, Sizes, WeightPlace
from hillclimb.agent.importers.probing import checks
from hillclimb.agent.importers.probing.argument_text import text_of
from hillclimb.agent.importers.probing.examples import named_call, plan_of_calls, plan_of_texts
from hillclimb.agent.importers.probing.oracle import SMALL_BYTES, excuses_for, find_accepted
from hillclimb.agent.importers.probing.sizes import ODD_BYTES, neighbours_of, small_problems
from hillclimb.agent.importers.probing.trial_contract import Trial, trial_of

if TYPE_CHECKING:
    from hillclimb.harness.sources.sourced_contract import SourcedContract

MAX_RUN_BYTES = 256 << 20
"""Most that a problem may move to be run here, where no smaller one is."""


def explore(plan: Plan, source: Path) -> Findings:
    """Raises whatever the source raises, and ValueError for what cannot be a case."""
    plan = _with_examples(plan, source)
    trial = trial_of(plan, source)
    plan = _with_real_draws(plan, source, trial)
    trial = trial_of(plan, source) if plan is not trial.plan else trial
    problems, neighbours = _problems(trial)
    sample = _sample(trial, problems)
    told: list[str] = []
    mode = "train"
    if sample is not None and checks.is_random(trial.contract, sample):
        trial, mode = trial_of(plan, source, "eval"), "eval"
        told.append("mode: in training the module draws random numbers, so it is evaluated as in inference")
        if plan.operator.kind != "Module" or checks.is_random(trial.contract, sample):
            raise ValueError(
                "the operator draws random numbers, so no result of it can be checked; take them out"
            )
    contract = trial.contract
    contract.constant_weights = tuple(_constant_weights(trial, sample))
    buffers: dict[str, int] = {}
    excused: dict[str, str] = {}
    distributions, unmixed = ["source"], ""
    if sample is not None:
        buffers = checks.find_output_buffers(contract, sample) if plan.format.startswith("GPU MODE") else {}
        contract.unread = tuple(buffers)
        contract.output_names = tuple(_named_by(buffers, contract.output_names))
        contract.forget()
        contract.is_in_place = checks.find_in_place(contract, sample)
        _expect_finite(contract, sample)
        unmixed = checks.structure_of(contract, sample)
        run = [sizes for sizes in problems.values() if contract.work(sizes).bytes <= SMALL_BYTES]
        distributions = _distributions(trial, run or [sample])
        ignored = checks.find_ignored(contract, sample)
        told += _doubts(trial, sample, ignored)
        contract.problems, contract.neighbours = problems, neighbours
        contract.distributions, contract.unmixed = tuple(distributions), unmixed
        accepted = find_accepted(plan, contract, source)
        problems, unmixed = dict(contract.problems), contract.unmixed
        neighbours = {name: near for name, near in neighbours.items() if name in problems}
        excused, doubtful = excuses_for(accepted, ignored, plan.has_own_sizes)
        told += doubtful
    else:
        told.append(
            "checks: every problem is too large to be run here; `hillclimb check` on a GPU is the first look"
        )
    told += _told_sizes(plan, problems)
    found = _findings(trial, mode, buffers, problems, neighbours, told)
    return found.model_copy(update={"distributions": distributions, "unmixed": unmixed, "excused": excused})


def _with_examples(plan: Plan, source: Path) -> Plan:
    """Examples that are values, as shapes and ranges."""
    if not plan.example and plan.draw.function != "EXAMPLES":
        return plan
    if plan.example:
        calls = plan_of_texts(plan.example)
    else:
        from hillclimb.harness.sources.source_file import load_source

        given = load_source(source)["EXAMPLES"]
        calls = [named_call(example, plan.argument_names) for example in given]
    return _drawn_by_shapes(plan, calls)


def _drawn_by_shapes(plan: Plan, calls: list[dict[str, Any]]) -> Plan:
    draw, problems = plan_of_calls(calls)
    names = list(next(iter(problems.values())))
    return plan.model_copy(
        update={
            "draw": draw,
            "problems": problems,
            "timed": [list(problems)[-1]] if len(problems) > 1 else list(problems),
            "changeable": [n for n in names if n not in draw.scalars],
            "constants": [],
            "fixed": [],
        }
    )


def _with_real_draws(plan: Plan, source: Path, trial: Trial) -> Plan:
    """Where the source draws the same values whatever the seed, or others for the same one: values by their ranges."""
    if not plan.may_redraw or not plan.draw.function:
        return plan
    first = next(iter(plan.problems.values()))
    moved = trial.contract.work(first).bytes
    if moved > MAX_RUN_BYTES:
        return plan
    once, again, other = (checks.draw(trial.contract, first, seed=seed) for seed in (1, 1, 2))
    arguments = [
        n for n, p in zip(trial.contract.input_names, trial.skeleton.places, strict=True) if p.path[1] == "0"
    ]
    is_fresh = checks.are_equal(once, again) and not all(
        checks.are_equal([once[name]], [other[name]]) for name in arguments
    )
    if is_fresh:
        return plan
    from hillclimb.harness.sources.source_file import load_source

    given = load_source(source)[plan.draw.function]()
    found = _drawn_by_shapes(plan, [named_call(given, plan.argument_names)])
    how = f"{plan.draw.function}: its values do not follow the seed, so they are drawn anew with their mean and range"
    return found.model_copy(update={"told": [*plan.told, how]})


def _problems(trial: Trial) -> tuple[dict[str, Sizes], dict[str, list[Sizes]]]:
    """The plan's, with small ones where the plan has none that small."""
    problems = dict(trial.plan.problems)
    few = [name for name, sizes in problems.items() if _is_small(trial, sizes)]
    if few and len(problems) > 1:
        near = (
            []
            if trial.plan.has_own_sizes
            else neighbours_of(trial, problems[few[-1]], list(problems.values()))
        )
        return problems, ({few[-1]: near} if near else {})
    small, neighbours = small_problems(trial, next(iter(problems.values())))
    return {**problems, **{n: s for n, s in small.items() if n not in problems}}, neighbours


def _is_small(trial: Trial, sizes: Sizes) -> bool:
    return trial.contract.work(sizes).bytes <= ODD_BYTES


def _sample(trial: Trial, problems: dict[str, Sizes]) -> Sizes | None:
    """The problem that is run here: the smallest of over a few elements."""
    sizes = {name: trial.contract.work(body).bytes for name, body in problems.items()}
    name = "odd" if "odd" in problems else min(sizes, key=lambda n: sizes[n])
    return problems[name] if sizes[name] <= MAX_RUN_BYTES else None


def _constant_weights(trial: Trial, sample: Sizes | None) -> list[str]:
    if sample is None:
        return []
    weights = {
        n for n, p in zip(trial.contract.input_names, trial.skeleton.places, strict=True) if p.path[1] == "1"
    }
    drawn = checks.draw(trial.contract, sample)
    return [
        n
        for n, t in drawn.items()
        if n in weights and t.is_floating_point() and bool((t == t.flatten()[0]).all())
    ]


def _named_by(buffers: dict[str, int], names: tuple[str, ...]) -> list[str]:
    """Outputs have the names of the inputs that take them."""
    named = {number: name for name, number in buffers.items()}
    return [named.get(number, name) for number, name in enumerate(names)]


def _expect_finite(contract: SourcedContract, sample: Sizes) -> None:
    """Raises ValueError, or what the source raises, where the source's own inputs have no exact result."""
    inputs = checks.draw(contract, sample)
    contract.reference(sample, inputs)
    contract.attainable(sample, inputs)
    if not checks.is_usable(contract, sample, "source"):
        raise ValueError(
            "its exact result for its own inputs is not finite, so nothing can be checked; draw others"
        )


def _distributions(trial: Trial, problems: list[Sizes]) -> list[str]:
    contract = trial.contract
    drawn = checks.draw(contract, problems[0])
    places = zip(contract.input_names, trial.skeleton.places, strict=True)
    floats = [drawn[n] for n, p in places if p.path[1] == "0" and n in drawn and drawn[n].is_floating_point()]
    signed = ["signed"] if any(bool((tensor >= 0).all()) for tensor in floats) else []
    wanted = ["source", *(["scaled", *signed, "offset"] if floats else [])]
    if contract.constant_weights:
        wanted.append("weights")
    summed = "sum to 1" in checks.structure_of(contract, problems[0])
    tried = [n for n in wanted if n in ("source", "weights") or not summed]
    return [n for n in tried if all(checks.is_usable(contract, sizes, n) for sizes in problems)]


def _doubts(trial: Trial, sample: Sizes, ignored: list[str]) -> list[str]:
    contract = trial.contract
    told = checks.vacuous_outputs(contract, sample)
    for name in ignored:
        told.append(f"{name}: its contents change no result, so a kernel need not read it")
    told += checks.rough_errors(contract, sample)
    return told


def _told_sizes(plan: Plan, problems: dict[str, Sizes]) -> list[str]:
    public = next(iter(plan.problems.values()))
    small = problems.get("tiny")
    if small is None:
        return []
    lowered = [f"{n}={small[n]}" for n in plan.fixed if small[n] != public[n]]
    return (
        [f"tiny, odd: they lower what the operator is made with, too: {', '.join(lowered)}"]
        if lowered
        else []
    )


def _findings(
    trial: Trial,
    mode: Any,
    buffers: dict[str, int],
    problems: dict[str, Sizes],
    neighbours: dict[str, list[Sizes]],
    told: list[str],
) -> Findings:
    contract, plan = trial.contract, trial.plan
    named = list(zip(contract.input_names, trial.skeleton.places, strict=True))
    outputs = {name: contract.output_names[number] for name, number in buffers.items()}
    arguments, sizes = text_of(trial, outputs)
    dtypes = {
        contract.output_names[number]: str(dict(named)[name].dtype).removeprefix("torch.")
        for name, number in buffers.items()
    }
    return Findings(
        input_names=list(contract.input_names),
        unread=list(buffers),
        output_names=list(contract.output_names),
        attribute_names=list(contract.attribute_names),
        constant_weights=list(contract.constant_weights),
        output_dtypes=dtypes,
        is_in_place=contract.is_in_place,
        mode=mode,
        problems=problems,
        draw=plan.draw,
        timed=plan.timed,
        constants=plan.constants,
        neighbours=neighbours,
        distributions=[],
        weights=[WeightPlace(name=p.path[5:-2], argument=n) for n, p in named if p.path.startswith("[1]")],
        arguments_text=arguments,
        result_paths=list(trial.result_paths),
        sizes_text=sizes,
        public_bytes=contract.work(plan.problems[plan.timed[-1]]).bytes,
        told=[*plan.told, *told],
    )
