"""Forms that the studies' optimized kernels take only for large sizes, forced by knobs onto small ones, interpreted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.studies.study import choose
from tests.cases.interpreted import walk
from tests.cases.workspace import CASES

BYTES = 1 << 17

FORMS = [
    ("quantize_kv_transform", {"QKV_ORDER": "written"}),
    ("quantize_kv_transform", {"QKV_ORDER": "written", "QKV_FORM": "padded", "QKV_RESIDENT": "4", "QKV_WARPS": "1"}),
    ("quantize_kv_transform", {"QKV_ORDER": "read", "QKV_FORM": "padded", "QKV_RESIDENT": "4", "QKV_WARPS": "1"}),
    ("var_len_copy", {"VLC_SPAN": "4", "VLC_TILE": "512", "VLC_AHEAD": "never"}),
    ("var_len_copy", {"VLC_SPAN": "3", "VLC_TILE": "512", "VLC_WALKED": "0", "VLC_PIVOTS": "16"}),
    ("var_len_copy", {"VLC_AHEAD": "always", "VLC_REALIGN": "0"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "knobs"), FORMS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(FORMS)])
def test_every_form_is_right(name: str, knobs: dict[str, str], tmp_path: Path) -> None:
    (study,) = choose(CASES, None, name)
    folder = shutil.copytree(study.folder, tmp_path / name)
    shutil.copy(folder / "workspace" / "optimized.py", folder / "workspace" / "kernel.py")
    found = walk(folder, BYTES, knobs)
    assert found
    assert max(found.values()) <= 1, found
