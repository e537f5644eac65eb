"""Turns what a YAML parser or pydantic says into an error that names file, key, value and remedy."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hillclimb.harness.errors import CaseError
from hillclimb.harness.wording import did_you_mean, nearest

MAX_FILE_BYTES = 1 << 20
"""Bytes of the largest YAML file that is read; a person writes a few thousand."""


MAX_BRACKETS = 1000
"""PyYAML takes time with the square of the depth: 8000 brackets, 5 s."""


class _NoDuplicates(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, which plain YAML silently lets win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} stands twice", problem_mark=key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)


@lru_cache(maxsize=64)
def _load(text: str) -> Any:
    """A document; not to be changed, for a night reads the same few texts thousands of times."""
    return yaml.load(text, _NoDuplicates)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping with string keys. Raises CaseError where it is missing, unreadable or something else."""
    return parse_yaml(_read_text(path), path)


def parse_yaml(text: str, path: Path) -> dict[str, Any]:
    """The mapping in `text`, which stands (or would stand) at `path`. Raises CaseError."""
    if len(text) > MAX_FILE_BYTES:
        raise CaseError(
            path, "", f"has {len(text)} characters", f"a case's file has at most {MAX_FILE_BYTES}"
        )
    if text.count("[") + text.count("{") > MAX_BRACKETS:
        problem = f"has more than {MAX_BRACKETS} opening brackets"
        raise CaseError(path, "", problem, "write lists and mappings as indented lines")
    try:
        document = deepcopy(_load(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise CaseError(path, line, f"is not YAML as it should be: {problem}", "mend it there") from None
    except (ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        # PyYAML lets its scalar constructors raise what they like: 2001-13-45, !!int "", a thousand brackets.
        problem = f"holds a value that cannot be read ({type(error).__name__}: {error})"
        raise CaseError(path, "", problem, "quote it, or write a plain number") from None
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise CaseError(path, "", "is not a mapping of names to values", "write it as 'key: value' lines")
    return document


def _read_text(path: Path) -> str:
    """A UTF-8 text file of sane size; anything else (a folder, a pipe, a gigabyte) is a CaseError."""
    try:
        if not path.exists():
            remedy = "create it, or stamp a case with 'hillclimb new-case'"
            raise CaseError(path, "", "does not exist", remedy)
        if not path.is_file():
            raise CaseError(path, "", "is not a regular file", "put a text file there")
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise CaseError(path, "", f"has {size} bytes", f"a case's file has at most {MAX_FILE_BYTES}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read ({error})"
        raise CaseError(path, "", problem, "make it a readable UTF-8 text file") from None


EXPECTED = {
    "tuple_type": "a list, as [a, b]",
    "list_type": "a list, as [a, b]",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
    "string_type": "text; quote it where it looks like something else",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "string_pattern_mismatch": "text of the pattern {pattern}",
}
"""What pydantic's types of error ask for, in words that a writer of YAML knows."""


def case_error(
    path: Path,
    error: ValidationError,
    *,
    prefix: str = "",
    drop: Iterable[str] = (),
    known: Iterable[str] = (),
    page: str = "docs/reference/case-format.md",
) -> CaseError:
    """The first thing wrong, as a CaseError; `known` are the keys to suggest for an unknown one, `page` shows all."""
    all_errors = error.errors(include_url=False)
    known = list(known)
    first = _most_telling(all_errors, known)
    parts = _keys(first, set(drop))
    key = ".".join([prefix, *parts] if prefix else parts)
    value = short(first.get("ctx", {}).get("tag", first.get("input")))
    if first["type"] == "extra_forbidden":
        remedy = did_you_mean(parts[-1], known) or f"remove it (see {page})"
        return CaseError(path, key, f"unknown key (value {value})", remedy)
    if first["type"] in ("missing", "union_tag_not_found"):
        return CaseError(path, key, "is missing", f"add it ({page} shows it)")
    if first["type"] == "value_error":
        return CaseError(path, key, f"value {value} is wrong", first["msg"].removeprefix("Value error, "))
    same = [other for other in all_errors if _keys(other, set(drop)) == parts]
    wanted = _expected(first) if len(same) == 1 else "true, false, a number or text"
    return CaseError(path, key, f"value {value} is wrong", f"it must be {wanted}")


def keys_of(model: type[BaseModel]) -> set[str]:
    """Every key of a section and of the sections below it, for 'did you mean'."""
    fields = model.model_fields.items()
    below = (keys_of(kind) for _, field in fields for kind in _models_in(field.annotation))
    return {field.alias or name for name, field in fields}.union(*below)


def _models_in(kind: object) -> Iterator[type[BaseModel]]:
    """The models that a field's type is made of, whatever holds them."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from _models_in(part)


def _most_telling(errors: list[ErrorDetails], known: list[str]) -> ErrorDetails:
    """The first, but for a key that is missing because it is misspelt: then the misspelt one."""
    unknown = [error for error in errors if error["type"] == "extra_forbidden"]
    missing = {str(error["loc"][-1]) for error in errors if error["type"] == "missing" and error["loc"]}
    slips = [error for error in unknown if set(nearest(str(error["loc"][-1]), known)) & missing]
    return slips[0] if slips else errors[0]


def _keys(error: ErrorDetails, drop: set[str]) -> list[str]:
    """The keys that lead to the value, without the names of the types that were tried on the way."""
    *above, last = [str(part) for part in error["loc"]] or [""]
    is_a_key = error["type"] in ("extra_forbidden", "missing")
    keys = [part for part in above if part not in drop]
    keys += [last] if last and (is_a_key or last not in drop) else []
    return [*keys, "type"] if error["type"].startswith("union_tag") else keys


def _expected(error: ErrorDetails) -> str:
    if error["type"] in EXPECTED:
        return EXPECTED[error["type"]].format(**error.get("ctx", {}))
    return error["msg"].removeprefix("Input should be ")


def short(value: object) -> str:
    """A value cut to a line; YAML aliases can make the whole of it astronomically long."""
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = 60
    try:
        return brief.repr(value)
    except ValueError:  # Python prints no whole number of more than 4300 digits
        return "a number of thousands of digits"
