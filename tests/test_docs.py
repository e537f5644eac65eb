"""What the documentation lists is what the code has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from hillclimb.agent.record.entries import ENTRY
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.views import COLUMNS
from hillclimb.harness.case.metrics import CommandSuite, RequestSuite
from hillclimb.harness.case.settings import Settings, Suite
from hillclimb.harness.knobs.knobs import parse_knobs
from hillclimb.harness.records import Reason
from tests.agent.climb.climbed import CASE, climb_toy

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs" / "reference"


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted keys of a section and of those below it, as docs/reference/case-format.md writes them."""
    found = []
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        found.append(key)
        inner = getattr(field.annotation, "__args__", ())
        joint = "." if type(None) in inner else "[]."
        kinds = [(field.annotation, "."), *((kind, joint) for kind in inner)]
        for kind, joint in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found += keys(kind, key + joint)
    return found


def test_schemas_are_current(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "write_schemas"), str(tmp_path)], check=True, cwd=ROOT
    )
    fresh = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (DOCS / "schema").iterdir()}
    assert kept == fresh, "run scripts/write_schemas"


def test_a_real_ledger_fits_its_schema(tmp_path: Path) -> None:
    climb_toy(tmp_path, candidates=6)
    schema = json.loads((DOCS / "schema" / "ledger-line.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    path = tmp_path / "runs" / CASE / "first" / "ledger.jsonl"
    lines = path.read_text().splitlines()
    assert len(lines) > 15 and Ledger.read(path).judged == 6
    for line in lines:
        validator.validate(json.loads(line))
        assert ENTRY.validate_json(line)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_explained(reason: Reason) -> None:
    assert f"| `{reason}` | " in (DOCS / "records.md").read_text()


def test_every_kind_of_line_and_every_column_is_listed() -> None:
    text = (DOCS / "records.md").read_text()
    kinds = json.loads((DOCS / "schema" / "ledger-line.json").read_text())["discriminator"]["mapping"]
    assert all(f"| `{kind}` | " in text for kind in kinds)
    assert all(f"`{column}`" in text for column in COLUMNS)


def test_every_trailer_of_a_win_is_listed(tmp_path: Path) -> None:
    from hillclimb.agent.git.repository import Repository
    from hillclimb.agent.record.recorded_runs import find_runs

    climb_toy(tmp_path, candidates=6)
    repository = Repository.open(tmp_path)
    text = (DOCS / "records.md").read_text()
    for win in find_runs(repository, CASE)[0].wins:
        assert all(f"`Hillclimb-{name}`" in text for name in win.trailers)


@pytest.mark.parametrize("key", [*keys(Settings), *keys(Suite), *keys(CommandSuite), *keys(RequestSuite)])
def test_every_key_of_a_case_is_documented(key: str) -> None:
    text = (DOCS / "case-format.md").read_text()
    assert f"`{key}` | " in text or f"**`{key}`** | " in text


def blocks(name: str, language: str) -> list[str]:
    return [part.split("```")[0] for part in (DOCS / name).read_text().split(f"```{language}\n")[1:]]


def test_the_yaml_examples_are_valid() -> None:
    case, suite, knobs = blocks("case-format.md", "yaml")
    assert Settings.model_validate(yaml.safe_load(case))
    assert Suite.model_validate(yaml.safe_load(suite))
    assert len(parse_knobs(knobs, Path("knobs.yaml"))) == 4


def test_the_contract_example_is_a_contract(tmp_path: Path) -> None:
    import torch

    from hillclimb.harness.case.checked import load_contract

    path = tmp_path / "contract.py"
    path.write_text(blocks("case-format.md", "python")[0])
    contract = load_contract(path)
    problem = contract.problems["odd"]
    inputs: dict[str, Any] = contract.inputs(problem, "offset", torch.Generator().manual_seed(0))
    assert contract.reference(problem, inputs)["sums"].shape == contract.outputs(problem)["sums"].shape
