"""The skill for coding agents says only what is there: commands, options, files and links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from hillclimb.agent.cli import app
from hillclimb.agent.rhythm.notes_files import CANDIDATES_FILE, NOTES_FILE
from hillclimb.harness.records import Reason

ROOT = Path(__file__).resolve().parents[1]
SKILL = ROOT / "prompts/skills/hillclimb/SKILL.md"
LINK = ROOT / ".codex/skills/hillclimb"
PAGES = (SKILL, ROOT / "AGENTS.md")


def commands() -> list[list[str]]:
    """Every call of hillclimb in the pages: in fenced blocks, and in a line of prose between backticks."""
    found = []
    for page in PAGES:
        text = page.read_text()
        blocks = re.findall(r"^```bash\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
        calls = [line for block in blocks for line in block.splitlines()]
        calls += re.findall(r"`(hillclimb [^`]+)`", text)
        found += [shlex.split(call, comments=True) for call in calls if "hillclimb " in call.split(" --")[0]]
    return [
        call[1:]
        for call in found
        if call and call[0] in ("hillclimb", ".venv/bin/hillclimb") and len(call) > 1
    ]


def known(command: str) -> Any:
    found: Any = typer.main.get_command(app)
    assert command in found.commands, f"there is no 'hillclimb {command}'"
    return found.commands[command]


def test_there_is_something_to_check() -> None:
    assert len(commands()) > 15
    assert {call[0] for call in commands()} >= {
        *("check", "climb", "evaluate", "history", "show", "review", "watch", "report", "profile")
    }


@pytest.mark.parametrize("call", commands(), ids=" ".join)
def test_every_command_and_option_exists(call: list[str]) -> None:
    command = known(call[0])
    options = {name: option for option in command.params for name in option.opts if name.startswith("-")}
    named = [word.partition("=")[0] for word in call[1:] if word.startswith("--")]
    assert set(named) <= options.keys()
    values = sum(not options[name].is_flag for name in named)
    given = [word for word in call[1:] if not word.startswith("--")]
    arguments = [p for p in command.params if not any(name.startswith("-") for name in p.opts)]
    required = sum(argument.required for argument in arguments) if len(call) > 1 else 0
    assert required <= len(given) - values <= len(arguments), "an argument too few or too many"


def test_the_front_matter_is_valid() -> None:
    _, front, body = SKILL.read_text().split("---\n", 2)
    facts = yaml.safe_load(front)
    assert set(facts) == {"name", "description"}
    assert facts["name"] == SKILL.parent.name
    assert 40 < len(facts["description"]) <= 1024
    assert body.lstrip().startswith("# ")


def test_the_link_for_codex_leads_to_the_skill() -> None:
    assert LINK.is_symlink()
    assert str(LINK.readlink()) == "../../prompts/skills/hillclimb"
    assert (LINK / "SKILL.md").read_text() == SKILL.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert links
    for link in links:
        assert (page.parent / link).exists(), link


def test_the_files_that_it_names_are_those_of_the_code() -> None:
    text = SKILL.read_text()
    assert CANDIDATES_FILE in text and NOTES_FILE in text
    case = ROOT / "cases/demo/cpu_matmul"
    assert (case / "program.md").is_file()
    assert re.search(r"--knob (\w+)=", text).group(1) in (case / "workspace/knobs.yaml").read_text()  # type: ignore[union-attr]


def test_the_reasons_that_it_explains_exist() -> None:
    table = re.findall(r"^\| (`.*?`) \|", SKILL.read_text(), flags=re.MULTILINE)
    named = {name for row in table for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 12
    assert named <= {reason.value for reason in Reason}
