"""Forms that the studies' optimized kernels take only for large sizes, forced by knobs onto small ones, interpreted."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from hillclimb.harness.studies.study import choose_cases
from tests.cases.interpreted import walk
from tests.cases.workspace import CASES

BYTES = 1 << 16

FORMS = [
    ("quantize_kv_transform", {"QKV_ORDER": "written"}, ""),
    ("quantize_kv_transform", {"QKV_ORDER": "written", "QKV_RESIDENT": "4", "QKV_WARPS": "1"}, "PROCESSORS"),
    ("quantize_kv_transform", {"QKV_ORDER": "read", "QKV_RESIDENT": "4", "QKV_FORM": "padded"}, "PROCESSORS"),
    ("var_len_copy", {"VLC_SPAN": "4", "VLC_TILE": "512", "VLC_AHEAD": "never"}, ""),
    ("var_len_copy", {"VLC_SPAN": "3", "VLC_PIVOTS": "16", "VLC_WALKED": "0", "VLC_AHEAD": "never"}, ""),
    ("var_len_copy", {"VLC_AHEAD": "always", "VLC_REALIGN": "0"}, ""),
]
"""A case, knobs, and a constant of its kernel that is 1 instead."""

HARMLESS = ["divide by zero"]
"""Kernels may divide first and select afterwards."""


@pytest.mark.slow(6)
@pytest.mark.parametrize(
    ("name", "knobs", "one"), FORMS, ids=[f"{form[0]}-{i}" for i, form in enumerate(FORMS)]
)
def test_every_form_is_right(name: str, knobs: dict[str, str], one: str, tmp_path: Path) -> None:
    (study,) = choose_cases(CASES, None, name)
    folder = shutil.copytree(study.folder, tmp_path / name)
    source = (folder / "workspace" / "optimized.py").read_text()
    if one:
        source, replaced = re.subn(rf"^{one} = \d+$", f"{one} = 1", source, flags=re.MULTILINE)
        assert replaced == 1
    (folder / "workspace" / "kernel.py").write_text(source)
    found = walk(folder, BYTES, knobs, HARMLESS)
    assert found
    assert max(found.values()) <= 1, found
