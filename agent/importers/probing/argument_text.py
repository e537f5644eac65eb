"""An operator's arguments as Python text in a kernel's names."""

from __future__ import annotations

import json
from typing import Any

from hillclimb.agent.importers.probing.trial_contract import Trial


def text_of(trial: Trial, replaced: dict[str, str]) -> tuple[str, str]:
    """Of the arguments, and of what the module is made with; inputs that only take results are `replaced` by outputs.

    Raises ValueError for what cannot be written.
    """
    from torch.utils import _pytree as pytree

    from hillclimb.harness.sources.skeleton import TensorPlace

    contract, skeleton = trial.contract, trial.skeleton
    inputs, scalars = iter(contract.input_names), iter(contract.attribute_names)
    sizes = ", ".join(_converted(value, next(scalars)) for value in skeleton.sizes)
    texts = []
    for leaf in skeleton.leaves:
        if isinstance(leaf, TensorPlace):
            name = next(inputs)
            name = replaced.get(name, name)
            texts.append(_LeafText(name if leaf.shape else f"{name}.reshape(())"))
        else:
            texts.append(_LeafText(_converted(leaf, next(scalars))))
    arguments, _ = pytree.tree_unflatten(texts, skeleton.structure)
    return _write(tuple(arguments) if type(arguments) is list else arguments), sizes


class _LeafText(str):
    """Python text that stands for a leaf."""

    __slots__ = ()


def _converted(value: Any, name: str) -> str:
    """Lists come as tuples, and are made lists again."""
    if isinstance(value, list):
        return f"list({name})"
    if isinstance(value, bool | int | float | str | tuple | None):
        return name
    raise ValueError(
        f"{name} is a {type(value).__name__}, which no kernel can be handed; write it into the source"
    )


def _write(tree: Any) -> str:
    if isinstance(tree, _LeafText):
        return str(tree)
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_write(value)}" for key, value in tree.items()) + "}"
    if type(tree) is list:
        return "[" + ", ".join(map(_write, tree)) + "]"
    if isinstance(tree, tuple):
        return "(" + ", ".join(map(_write, tree)) + (",)" if len(tree) == 1 else ")")
    raise ValueError(
        f"an argument is a {type(tree).__name__}, which cannot be handed on; use tensors, lists and dicts"
    )
