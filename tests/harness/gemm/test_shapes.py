"""Shapes: the seeds' five, the fixed grid, the layers of models, and what is told of names that nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import CaseError, UsageError
from hillclimb.harness.gemm.definitions import FILE, Definitions, choose, read_definitions
from hillclimb.harness.gemm.model import Model, weights
from hillclimb.harness.gemm.shape import GemmShape


@pytest.fixture(scope="module")
def known() -> Definitions:
    return read_definitions()


def test_the_grid_is_fixed(known: Definitions) -> None:
    """Figures are told of it, so a change of it is a change of every figure."""
    grid = list(known.grid_shapes())
    dense = [shape for shape in grid if shape.groups == 1]
    assert len(dense) == 14 * 15
    assert len({(shape.n, shape.k) for shape in dense}) == 14
    assert {shape.m for shape in dense} >= {1, 16, 256, 8192}
    assert len(grid) - len(dense) == 24
    assert len({shape.name for shape in grid}) == len(grid)
    assert (2112, 7168) in {(shape.n, shape.k) for shape in dense}
    assert GemmShape("experts_down_e256_m128_n7168_k256", 128, 7168, 256, "bf16", 256) in grid


def test_single_shapes_have_their_own_dtype_unless_one_is_asked_for(known: Definitions) -> None:
    assert [shape.dtype for shape in known.named_shapes()] == ["f16"] * 5
    assert {shape.dtype for shape in known.named_shapes("fp8")} == {"fp8"}
    name = "decode_mlp_m4096_n4096_k8192"
    assert choose(known.named_shapes(), [name]) == [GemmShape(name, 4096, 4096, 8192, "f16")]


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_every_model_is_split_without_a_rest(known: Definitions, tp: int) -> None:
    for name, model in known.models.items():
        if model.heads % tp:
            continue
        whole, parts = weights(name, model, 1), weights(name, model, tp)
        assert [one.layer for one in whole] == [one.layer for one in parts]
        for one, part in zip(whole, parts, strict=True):
            assert (part.groups, part.rows_per_token) == (one.groups, one.rows_per_token)
            if one.layer == "qkv_a":
                assert part == one, "short vectors are on every GPU"
            elif one.layer == "qkv":
                kv_heads = max(1, model.kv_heads // tp)
                assert part.n == (model.heads // tp + 2 * kv_heads) * model.head_dim
            else:
                assert part.n * part.k * tp == one.n * one.k


def test_known_layers_of_known_models(known: Definitions) -> None:
    """As their servers allocate them."""
    found = {
        (name, tp, one.layer): (one.n, one.k, one.groups)
        for name, tp in (
            ("meta-llama/Llama-3.1-70B", 8),
            ("deepseek-ai/DeepSeek-V3", 1),
            ("Qwen/Qwen3-30B-A3B", 1),
        )
        for one in weights(name, known.models[name], tp)
    }
    assert found["meta-llama/Llama-3.1-70B", 8, "qkv"] == (1280, 8192, 1)
    assert found["meta-llama/Llama-3.1-70B", 8, "down"] == (8192, 3584, 1)
    assert found["deepseek-ai/DeepSeek-V3", 1, "q_b"] == (24576, 1536, 1)
    assert found["deepseek-ai/DeepSeek-V3", 1, "o"] == (7168, 16384, 1)
    assert found["deepseek-ai/DeepSeek-V3", 1, "experts_gate_up"] == (4096, 7168, 256)
    assert found["Qwen/Qwen3-30B-A3B", 1, "experts_down"] == (2048, 768, 128)


def test_what_cannot_be_shared_is_told_with_what_can(known: Definitions) -> None:
    with pytest.raises(
        UsageError, match=r"Qwen2.5-7B: heads is 28, which 8 GPUs cannot share; take one of 1, 2, 4, 7"
    ):
        known.model_shapes(["Qwen/Qwen2.5-7B"], [8], [1])


def test_layers_of_models_are_told_once(known: Definitions) -> None:
    found = known.model_shapes(["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B"], [1, 2], [1, 64], "fp8")
    sizes = [(s.m, s.n, s.k, s.groups) for s in found]
    assert len(set(sizes)) == len(sizes)
    assert sizes.count((64, 6144, 4096, 1)) == 1, "both have it"
    assert {s.dtype for s in found} == {"fp8"}
    assert found[0].name == "qkv_m1_n6144_k4096"


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["qkv_m16_n6144_k4069"], "no shape 'qkv_m16_n6144_k4069': did you mean 'qkv_m16_n6144_k4096'?"),
        (["x"], r"no shape 'x': choose among .* \(3 of 239\)"),
    ],
)
def test_unknown_shapes_are_told_with_the_nearest(known: Definitions, names: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        choose([*known.named_shapes(), *known.grid_shapes()], names)


def test_unknown_models_are_told_with_the_nearest(known: Definitions) -> None:
    with pytest.raises(UsageError, match=r"no model 'Qwen3-32B': did you mean 'Qwen/Qwen3-32B'\?"):
        known.model_shapes(["Qwen3-32B"], [1], [1])


SIZES = st.integers(1, 10**5)


@given(SIZES, SIZES, SIZES, st.sampled_from([1, 8, 128]))
def test_work_counts_every_matrix_that_is_met_once(m: int, n: int, k: int, groups: int) -> None:
    wide, narrow = (GemmShape("s", m, n, k, dtype, groups) for dtype in ("bf16", "fp8"))
    assert wide.flops == narrow.flops == 2 * m * n * k
    assert wide.bytes - 2 * m * n == 2 * (narrow.bytes - 2 * m * n)
    assert narrow.bytes == m * k + min(m, groups) * n * k + 2 * m * n


def changed(tmp_path: Path, *keys: str, value: object) -> Path:
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    part = document
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    path = tmp_path / "shapes.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_a_file_of_ones_own_adds_shapes_and_models(tmp_path: Path) -> None:
    mine = {"m": 3, "n": 5, "k": 7}
    path = changed(tmp_path, "named", "mine", value=mine)
    assert choose(read_definitions(path).named_shapes(), ["mine"]) == [GemmShape("mine", 3, 5, 7, "bf16")]


@pytest.mark.parametrize(
    ("keys", "value", "told"),
    [
        (("named", "mine"), {"m": 0, "n": 5, "k": 7}, "mine.m: value 0 is wrong"),
        (("named", "mine"), {"m": 1, "n": 5}, "mine.k: is missing"),
        (("named", "mine"), {"m": 1, "n": 5, "k": 7, "dtype": "fp16"}, "mine.dtype: value 'fp16' is wrong"),
        (("modells",), {}, "modells: unknown key .* did you mean 'models'"),
        (("models", "mine"), {"hidden": 1, "haeds": 1}, "haeds: unknown key .* did you mean 'heads'"),
        (
            ("models", "Qwen/Qwen3-8B", "colour"),
            1,
            r"colour: unknown key .* remove it \(see .*shapes\.yaml\)",
        ),
        (("grid", "m"), [], "grid.m: value .* at least 1"),
        (("grid", "m"), [1, "2"], "grid.m.1: value '2' is wrong"),
    ],
)
def test_a_slip_in_the_file_is_told_by_its_key(
    tmp_path: Path, keys: tuple[str, ...], value: object, told: str
) -> None:
    with pytest.raises(CaseError, match=told):
        read_definitions(changed(tmp_path, *keys, value=value))


@pytest.mark.parametrize(
    ("weight", "told"),
    [
        ({"model": "Qwen/Qwen3-32", "layer": "o"}, "no model 'Qwen/Qwen3-32': did you mean"),
        ({"model": "Qwen/Qwen3-8B", "layer": "qvk"}, "Qwen/Qwen3-8B has no layer 'qvk': did you mean 'qkv'"),
        ({"model": "Qwen/Qwen2.5-7B", "layer": "o", "tp": 8}, "28, which 8 GPUs cannot share"),
    ],
)
def test_a_grid_of_what_there_is_not_is_told(tmp_path: Path, weight: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_definitions(changed(tmp_path, "grid", "weights", value=[weight]))


def test_a_model_says_what_it_lacks() -> None:
    dense = Model(hidden=64, heads=4, kv_heads=2, head_dim=16)
    assert [one.layer for one in weights("m", dense, 1)] == ["qkv", "o"]
