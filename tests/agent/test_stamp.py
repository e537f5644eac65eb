"""Stamping a case: what is written, what is refused, and that nothing half-done stays behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.agent.stamp import TEMPLATES, create_case
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import CaseError, StorageError, UsageError

ROOT = Path(__file__).parents[2]
TEXTS = ("Llama 3.2 1B", "/models/llama", "one H200")
Place = Literal["cpu", "cuda"]
each = pytest.mark.parametrize("device", ["cpu", "cuda"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return with_templates(tmp_path / "a repo")


def with_templates(root: Path) -> Path:
    for name in TEMPLATES["cuda"]:
        shutil.copytree(ROOT / "cases" / name, root / "cases" / name)
    return root


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files(folder: Path) -> set[str]:
    return {
        p.relative_to(folder).as_posix()
        for p in folder.rglob("*")
        if "__pycache__" not in p.parts and p.is_file()
    }


@each
def test_the_case_is_valid_and_complete(root: Path, device: Place) -> None:
    folder = create_case(root, "llama_1b", "decode", *TEXTS, device)
    case = Case(folder)
    assert folder == root / "cases" / "llama_1b" / "decode"
    assert case.name == "llama_1b/decode"
    assert case.settings.device == device
    assert (case.settings.model, case.settings.model_path, case.settings.hardware) == TEXTS
    assert files(folder) == files(root / "cases" / "_template")


def test_what_tools_left_in_a_template_is_left_there(root: Path) -> None:
    for name in (".ruff_cache/0.1/1234", "workspace/.DS_Store"):
        left = root / "cases" / "_template" / name
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"\xff\xfe")
    folder = create_case(root, "llama_1b", "decode", *TEXTS)
    assert not list(folder.rglob(".*"))


def test_a_case_is_for_a_cpu_unless_a_gpu_is_asked_for(root: Path) -> None:
    assert Case(create_case(root, "llama_1b", "decode", *TEXTS)).settings.device == "cpu"


def test_the_gpus_template_holds_only_what_differs(root: Path) -> None:
    plain, over = (root / "cases" / name for name in TEMPLATES["cuda"])
    assert files(over) < files(plain)
    assert not [name for name in files(over) if (over / name).read_bytes() == (plain / name).read_bytes()]


@each
def test_every_placeholder_is_filled(root: Path, device: Place) -> None:
    folder = create_case(root, "llama_1b", "decode", *TEXTS, device)
    texts = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert not [path for path, text in texts.items() if "{{" in text]
    assert "Llama 3.2 1B" in (folder / "program.md").read_text()
    assert "llama_1b/decode" in (folder / "workspace" / "README.md").read_text()


def test_the_folder_is_readable_by_others(root: Path) -> None:
    assert create_case(root, "llama_1b", "decode", *TEXTS).stat().st_mode & 0o055 == 0o055


def test_two_cases_of_one_family(root: Path) -> None:
    create_case(root, "llama_1b", "decode", *TEXTS)
    create_case(root, "llama_1b", "prefill", *TEXTS)
    assert names(root / "cases" / "llama_1b") == ["decode", "prefill"]


def test_an_existing_folder_is_left_alone(root: Path) -> None:
    folder = root / "cases" / "llama_1b" / "decode"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("precious")
    with pytest.raises(UsageError, match=r"llama_1b/decode is there already"):
        create_case(root, "llama_1b", "decode", *TEXTS)
    assert files(folder) == {"mine.txt"}


@pytest.mark.parametrize("slug", ["", "Llama", "a-b", "a/b", "..", "_template", "a b", "ä", "x" * 65, "a\n"])
def test_bad_slugs_are_named(root: Path, slug: str) -> None:
    with pytest.raises(UsageError, match=r"--family .* is no slug"):
        create_case(root, slug, "decode", *TEXTS)
    with pytest.raises(UsageError, match=r"--case .* is no slug"):
        create_case(root, "llama_1b", slug, *TEXTS)
    assert names(root / "cases") == list(TEMPLATES["cuda"])


def test_control_characters_are_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="--hardware"):
        create_case(root, "llama_1b", "decode", "m", "p", "two\nlines")


@pytest.mark.parametrize(("device", "missing"), [("cpu", "_template"), ("cuda", "_template_cuda")])
def test_a_template_without_a_case_is_a_clear_error(root: Path, device: Place, missing: str) -> None:
    (root / "cases" / missing / "case.yaml").unlink()
    with pytest.raises(UsageError, match=f"/cases/{missing} has no case.yaml.*; restore the template"):
        create_case(root, "llama_1b", "decode", *TEXTS, device)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_repository_without_templates_gets_those_of_the_package(tmp_path: Path, device: Place) -> None:
    folder = create_case(tmp_path, "llama_1b", "decode", *TEXTS, device)
    assert Case(folder).name == "llama_1b/decode"


@pytest.mark.parametrize(("device", "broken"), [("cpu", "_template"), ("cuda", "_template_cuda")])
def test_a_broken_template_leaves_nothing_behind(root: Path, device: Place, broken: str) -> None:
    (root / "cases" / broken / "case.yaml").write_text("schema: 1\nsumary: x\n")
    with pytest.raises(CaseError, match="summary"):
        create_case(root, "llama_1b", "decode", *TEXTS, device)
    assert names(root / "cases") == list(TEMPLATES["cuda"])


@each
def test_a_refusing_disk_leaves_nothing_behind(root: Path, device: Place) -> None:
    (root / "cases" / "llama_1b").write_text("a file where the family's folder should be")
    with pytest.raises(StorageError, match="could not be written"):
        create_case(root, "llama_1b", "decode", *TEXTS, device)
    assert names(root / "cases") == [*TEMPLATES["cuda"], "llama_1b"]


@settings(max_examples=25)
@given(
    device=st.sampled_from(["cpu", "cuda"]),
    text=st.text(
        st.characters(exclude_categories=("C", "Zl", "Zp", "Zs")) | st.sampled_from(" '\"#:{}[]\\|>-&*!%@`"),
        max_size=40,
    ),
)
def test_any_printable_text_survives(
    tmp_path_factory: pytest.TempPathFactory, device: Place, text: str
) -> None:
    root = with_templates(tmp_path_factory.mktemp("root"))
    case = Case(create_case(root, "llama_1b", "decode", text, text, text, device))
    assert {case.settings.model, case.settings.model_path, case.settings.hardware} == {text.strip()}
