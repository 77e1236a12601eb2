"""A prompt: named parts, those that never change in a run first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cudaops.prompts.render import render
from cudaops.prompts.sizes import count_tokens

MOST_TOKENS = 8000
"""From here on optional parts are left out. Source: issue 5, which bounds the prompts for
naive_matmul; what must be said, a long kernel or incumbent, is said whatever it takes."""


class Part(NamedTuple):
    """One piece of a prompt."""

    name: str
    text: str
    stable: bool
    """The same, byte for byte, in every call of this role in a run."""


class Draft(NamedTuple):
    """A part before its template is filled."""

    name: str
    template: str
    values: Mapping[str, Any]
    """Exactly the variables of the template."""
    stable: bool = False
    optional: bool = False
    """Left out where the prompt would be too long."""

    def part(self) -> Part:
        """The template filled. Raises jinja2.UndefinedError where a value is missing."""
        return Part(self.name, render(self.template, **self.values), self.stable)


class Prompt(NamedTuple):
    """What is sent for one question, in the order in which it is sent."""

    parts: tuple[Part, ...]

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
        """Tokens by part, in order, by `cudaops.prompts.sizes.count_tokens`."""
        return {part.name: count_tokens(part.text) for part in self.parts}


def prompt_of(drafts: tuple[Draft, ...]) -> Prompt:
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


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(texts)
