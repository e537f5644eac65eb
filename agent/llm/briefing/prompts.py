"""The templates in prompts/: Markdown and Jinja, filled with values that are made elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hillclimb.harness.errors import UsageError

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).resolve().parents[3] / "prompts"
"""In the clone that this package is installed from."""


def render(name: str, /, **values: object) -> str:
    """The template prompts/<name>.md.j2 with these values in it, without blank lines around it.

    Raises UsageError where the template is missing, is no template, or names a value that is not given.
    """
    from jinja2 import TemplateError, TemplateNotFound

    file = f"{name}.md.j2"
    try:
        return _environment(FOLDER).get_template(file).render(**values).strip("\n")
    except TemplateNotFound:
        raise UsageError(
            f"{FOLDER / file} is missing; run from a clone of the repository, installed with "
            "`uv pip install -e .`, and restore the file with `git checkout -- prompts`"
        ) from None
    except TemplateError as error:
        raise UsageError(
            f"{FOLDER / file}: {type(error).__name__}: {error}; mend the template, prompts/README.md names its values"
        ) from None


@cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(  # not HTML: nothing is to be escaped
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
