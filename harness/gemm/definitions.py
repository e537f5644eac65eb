"""The definition file: named shapes, the fixed grid, and models whose layers give more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, ValidationError

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.model import Model, ModelPart, Weight, weights
from hillclimb.harness.gemm.shape import Dtype, GemmShape
from hillclimb.harness.wording import suggestion
from hillclimb.harness.yaml_errors import case_error, keys_of, read_yaml

FILE = Path(__file__).with_name("shapes.yaml")
"""The one that is used where none is named."""

PositiveSizes = Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)]


class NamedShape(ModelPart):
    """One shape; its dtype is used where none is asked for."""

    m: PositiveInt
    n: PositiveInt
    k: PositiveInt
    dtype: Dtype = "bf16"


class GridWeight(ModelPart):
    """One layer of one model, as one of `tp` GPUs holds it."""

    model: str
    layer: str
    tp: PositiveInt = 1


GridWeights = Annotated[tuple[GridWeight, ...], Field(strict=False)]


class Grid(ModelPart):
    """Every m with every weight; every number of tokens with every layer of experts."""

    m: PositiveSizes
    weights: GridWeights
    tokens: PositiveSizes = (1,)
    experts: GridWeights = ()


class Definitions(ModelPart):
    """Everything the file holds."""

    schema_version: Literal[1] = Field(alias="schema")
    named: dict[str, NamedShape] = Field(default_factory=dict)
    grid: Grid
    models: dict[str, Model]

    def named_shapes(self, dtype: Dtype | None = None) -> Iterator[GemmShape]:
        """The single ones, of their own dtype or of this one."""
        for name, one in self.named.items():
            yield GemmShape(name, one.m, one.n, one.k, dtype or one.dtype)

    def grid_shapes(self, dtype: Dtype = "bf16") -> Iterator[GemmShape]:
        """The fixed grid, products of experts last."""
        for rows, layers in ((self.grid.m, self.grid.weights), (self.grid.tokens, self.grid.experts)):
            for layer in layers:
                weight = self._weight(layer)
                yield from (_shape(weight, count, dtype) for count in rows)

    def model_shapes(
        self,
        models: Sequence[str],
        tp_sizes: Sequence[int],
        batch_sizes: Sequence[int],
        dtype: Dtype = "bf16",
    ) -> list[GemmShape]:
        """Every layer of these models for every number of GPUs and of tokens; of equal shapes the first.

        Raises UsageError for a model that the file does not hold, or one that so many GPUs cannot share.
        """
        found: dict[tuple[int, ...], GemmShape] = {}
        for name, tp in product(models, tp_sizes):
            for weight, tokens in product(weights(name, self.model(name), tp), batch_sizes):
                shape = _shape(weight, tokens, dtype)
                found.setdefault((shape.m, shape.n, shape.k, shape.groups), shape)
        return list(found.values())

    def model(self, name: str) -> Model:
        """Raises UsageError where the file does not hold it."""
        if name not in self.models:
            raise UsageError(f"no model {name!r}: {suggestion(name, self.models)}")
        return self.models[name]

    def _weight(self, wanted: GridWeight) -> Weight:
        known = {
            weight.layer: weight for weight in weights(wanted.model, self.model(wanted.model), wanted.tp)
        }
        if wanted.layer not in known:
            raise UsageError(
                f"{wanted.model} has no layer {wanted.layer!r}: {suggestion(wanted.layer, known)}"
            )
        return known[wanted.layer]


def read_definitions(path: Path = FILE) -> Definitions:
    """Raises CaseError where the file is not as it should be, and UsageError where it is not there or its grid names
    what it lacks.
    """
    if not path.exists():
        raise UsageError(f"no definition file {path}: write one as {FILE} is, or leave it out")
    document = read_yaml(path)
    try:
        definitions = Definitions.model_validate(document)
    except ValidationError as error:
        raise case_error(path, error, known=keys_of(Definitions), page=str(FILE)) from None
    list(definitions.grid_shapes())
    return definitions


def choose(shapes: Iterable[GemmShape], names: Sequence[str]) -> list[GemmShape]:
    """The shapes of these names, in their order; all of them where none is given. Raises UsageError for others."""
    known = {shape.name: shape for shape in shapes}
    for name in names:
        if name not in known:
            raise UsageError(f"no shape {name!r}: {suggestion(name, known)}")
    return [known[name] for name in names or known]


def _shape(weight: Weight, tokens: int, dtype: Dtype) -> GemmShape:
    shape = GemmShape("", tokens * weight.rows_per_token, weight.n, weight.k, dtype, weight.groups)
    return shape.named(f"{weight.layer}_{shape.sizes}")
