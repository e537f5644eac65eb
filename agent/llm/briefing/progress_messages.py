"""The last two messages of a briefing: the incumbent's files, and where the climb stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hillclimb.agent.git.edits import why_not_mutable
from hillclimb.agent.git.trees import is_judged
from hillclimb.agent.llm.briefing.facts import Facts
from hillclimb.agent.llm.briefing.headroom import bucket_line, counter_line, headroom_table
from hillclimb.agent.llm.briefing.knob_summary import shares
from hillclimb.agent.llm.briefing.ledger_summary import RejectedIdea, count_reasons
from hillclimb.agent.llm.briefing.prompts import render
from hillclimb.agent.llm.briefing.quoting import clip_middle, fenced, language, outline, quoted
from hillclimb.agent.llm.briefing.truncation import BriefingPart, Extent, cut_above, largest, newest, notice
from hillclimb.agent.rhythm.families import slug
from hillclimb.harness.knobs.knobs import KNOBS_FILE
from hillclimb.harness.wording import count

MAX_DETAIL_CHARS = 2_000
MAX_REASON_CHARS = 1_000
MASKED_LANES_INTRODUCTION = (
    "Lanes masked off and trips of loops, counted over one interpreted call on each of these small problems (on larger "
    "ones tails weigh less and loops run longer):"
)


@dataclass(frozen=True)
class FileView:
    """One file of the workspace as a template shows it."""

    path: str
    remark: str
    text: str


def files(facts: Facts, extent: Extent) -> BriefingPart:
    """The incumbent: the entry first, then knobs.yaml, then the others by name."""
    first = [path for path in (facts.entry, KNOBS_FILE) if path in facts.files]
    others = other_files(facts)
    whole, named = set(others[: extent.whole]), set(others[: extent.named])
    shown, cuts = [_show(path, facts) for path in first], []
    for path in sorted(others):
        if path in whole:
            shown.append(_show(path, facts))
            continue
        abridged, cut = _abridge(path, facts, path in named)
        shown.append(abridged)
        cuts.append(cut)
    return BriefingPart(render("files", files=shown), tuple(cuts))


def progress(facts: Facts, extent: Extent) -> BriefingPart:
    """Where the climb stands, and what is asked for."""
    past = facts.past
    made = {
        "profile": _profile(facts, extent),
        "knobs": _knobs(facts, extent.observations),
        "wins": newest(past.wins, extent.wins, "wins"),
        "ablations": newest(past.ablations, extent.ablations, "wins taken back"),
        "rejected": _rejected(past.rejected, extent),
        "troubled": newest(past.troubled, extent.troubled, "replies"),
        "ideas": newest(past.ideas, extent.ideas, "ideas not tried"),
        "notes": newest(past.notes, extent.notes, "notes"),
    }
    text = render(
        "progress",
        counts=past.counts,
        standing=past.standing,
        sweeps=past.sweeps,
        families=past.families,
        under_way=past.under_way,
        signals=", ".join(facts.signals),
        family=slug(facts.family),
        reason=quoted(facts.reason, MAX_REASON_CHARS) if facts.reason else "",
        minimum_effect=f"{facts.case.settings.objective.minimum_effect:.2%}",
        **{name: part.text for name, part in made.items()},
    )
    return BriefingPart(text, tuple(cut for part in made.values() for cut in part.cuts))


def other_files(facts: Facts) -> list[str]:
    """Files that may be abridged, the smallest first."""
    names = [path for path in facts.files if is_judged(path) and path not in (facts.entry, KNOBS_FILE)]
    return sorted(names, key=lambda path: (len(facts.files[path]), path))


def _show(path: str, facts: Facts) -> FileView:
    text = facts.files[path]
    remark = f" (the entry: `{facts.case.settings.entry}`)" if path == facts.entry else ""
    return FileView(_name(path), remark + _immutable_remark(path, facts), fenced(text, language(path)))


def _abridge(path: str, facts: Facts, is_outlined: bool) -> tuple[FileView, str]:
    """A file's outline, or only its size; and the cut that this is."""
    text = facts.files[path]
    if not is_outlined:
        cut = f"all {len(text.splitlines())} lines of {quoted(path)}"
        return FileView(_name(path), _immutable_remark(path, facts), notice(cut)), cut
    lines, lost = outline(text)
    cut = f"{count(lost, 'line')} of {quoted(path)}, shown as an outline"
    said = f"{fenced(lines, language(path))}\n{notice(cut)}"
    return FileView(_name(path), _immutable_remark(path, facts), said), cut


def _name(path: str) -> str:
    return quoted(path, 240).strip('"')


def _immutable_remark(path: str, facts: Facts) -> str:
    return " (not yours to change)" if why_not_mutable(path, facts.case.settings.mutable) else ""


def _profile(facts: Facts, extent: Extent) -> BriefingPart:
    if facts.profile is None:
        return BriefingPart("")
    profile = facts.profile.profile
    tail = largest(
        [bucket_line(bucket) for bucket in profile.buckets], extent.buckets, "entries of the profile"
    )
    lanes = largest(facts.lane_lines, extent.lanes, "lines on masked lanes and loops")
    ceilings = profile.ceilings
    how = (
        f"Ceilings measured here: {ceilings.flops / 1e9:.4g} GFLOP/s, {ceilings.bytes / 1e9:.4g} GB/s ({ceilings.how})."
        if ceilings
        else "No ceilings were measured on this device, so the floor is unknown."
    )
    of = (
        "the incumbent"
        if facts.profile.commit == facts.incumbent
        else "an earlier incumbent, not the present one"
    )
    where = (
        tail.text or f"Where inside a call the time goes is not known: {quoted(profile.detail or 'not told')}"
    )
    own = "Own time of each function, as the kernel's process tells it:\n" if tail.text else ""
    counted = "\n".join(f"- {counter_line(kernel)}" for kernel in profile.counters)
    hardware = f"\n\nHardware counters of one call, caches cold:\n{counted}" if counted else ""
    masked = f"\n\n{MASKED_LANES_INTRODUCTION}\n{lanes.text}" if lanes.text else ""
    text = f"Profile of {of}.\n\n{headroom_table(facts.headroom)}\n\n{how}\n\n{own}{where}{hardware}{masked}"
    return BriefingPart(text, (*tail.cuts, *lanes.cuts))


def _knobs(facts: Facts, extent: int) -> BriefingPart:
    seen = facts.seen
    told = shares(facts.importances, facts.importances_missing, facts.interactions) if seen.values else ()
    unread = ", ".join(facts.unread_knobs)
    never = f"The incumbent's source never reads {unread}: turning what is not read changes nothing."
    head = [*([never] if unread else []), *seen.spread, *told]
    if extent or not seen.values:
        return BriefingPart("\n".join(f"- {line}" for line in (*head, *seen.values)))
    return _below(head, f"what was seen of each value of {count(len(seen.values), 'knob')}")


def _below(lines: Sequence[str], cut: str) -> BriefingPart:
    return BriefingPart("\n".join([*(f"- {line}" for line in lines), notice(cut)]), (cut,))


def _rejected(every: Sequence[RejectedIdea], extent: Extent) -> BriefingPart:
    """The newest, by family; those left out are counted by reason."""
    left = len(every) - extent.rejected
    older, shown = every[: max(0, left)], every[max(0, left) :]
    cut = f"{left} older rejected ideas: {count_reasons(item.reason for item in older)}" if left > 0 else ""
    full = {item.n for item in shown if item.detail}
    full = set(sorted(full)[-extent.detailed :]) if extent.detailed else set()
    lines, cuts = [], [cut] if cut else []
    for family in dict.fromkeys(item.family for item in shown):
        lines.append(f"\n{family or 'no family named'}:")
        for item in shown:
            if item.family == family:
                told, lost = _tell(item, item.n in full)
                lines.append(told)
                cuts += [f"{count(lost, 'character')} of the detail of #{item.n}"] if lost else []
    return BriefingPart(cut_above(lines, cut).text.strip("\n"), tuple(cuts))


def _tell(item: RejectedIdea, is_full: bool) -> tuple[str, int]:
    if not is_full:
        return f"- {item.line}; {item.last_line}" if item.last_line else f"- {item.line}", 0
    said, lost = clip_middle(item.detail, MAX_DETAIL_CHARS)
    return f"- {item.line}\n{fenced(said)}", lost
