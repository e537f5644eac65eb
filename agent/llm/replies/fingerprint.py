"""A workspace's fingerprint: equal for workspaces that are the same idea, whatever their comments and formatting."""

from __future__ import annotations

import ast
import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import yaml

from hillclimb.agent.git.trees import is_judged
from hillclimb.agent.llm.replies.edit_checks import is_small_yaml
from hillclimb.harness.errors import CaseError
from hillclimb.harness.yaml_errors import parse_yaml

_MAX_PYTHON_CHARS = 1 << 20
"""Characters; what is longer is taken as plain text."""


def fingerprint(files: Mapping[str, str]) -> str:
    """sha256, in hex, over the paths and the normalised contents of all files that are judged.

    Python counts by its syntax tree without docstrings, YAML by its value, anything else by its lines without
    the blanks around them.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in files if is_judged(path)):
        for part in (path, _normalised(path, files[path])):
            data = part.encode(errors="surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _normalised(path: str, content: str) -> str:
    if path.endswith(".py") and len(content) <= _MAX_PYTHON_CHARS:
        return _normalised_python(content)
    if path.endswith((".yaml", ".yml")) and is_small_yaml(content):
        return _normalised_yaml(content)
    return _normalised_text(content)


def _normalised_text(content: str) -> str:
    return "\n".join(stripped for line in content.split("\n") if (stripped := line.strip()))


def _normalised_python(content: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
        return ast.dump(_without_docstrings(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return _normalised_text(content)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return tree


def _normalised_yaml(content: str) -> str:
    """The mapping as JSON; with aliases, which can stand for astronomically much, as text."""
    try:
        if "*" in content and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(content)):
            return _normalised_text(content)
        return json.dumps(parse_yaml(content, Path()), sort_keys=True, default=repr)
    except (CaseError, yaml.YAMLError, TypeError, ValueError, RecursionError):
        return _normalised_text(content)
