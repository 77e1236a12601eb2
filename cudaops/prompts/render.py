"""Templates beside this file; a variable that is missing is an error, never an empty string."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def _environment() -> Environment:
    # Templates make prompts and queries, not HTML: nothing is escaped.
    return Environment(
        loader=PackageLoader("cudaops", "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


def render(name: str, **values: Any) -> str:
    """Fill a template. Raises jinja2.UndefinedError for a variable that was not given."""
    return _environment().get_template(name).render(**values).strip()
