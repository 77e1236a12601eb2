"""The texts in an answer that may be its rewrite, and what each of them holds."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from cudaops.program.lexing import byte_text
from cudaops.program.outline import outline
from cudaops.prompts.answer_blocks import Block, bare, fenced, is_diff
from cudaops.prompts.answer_bounds import out_of_bounds
from cudaops.prompts.answer_directives import directive_lines, has_launch, mended
from cudaops.prompts.answer_json import json_values
from cudaops.prompts.answer_kinds import Unusable, unusable
from cudaops.prompts.answer_text import ascii_code, one_line, visible
from cudaops.prompts.answer_titles import MAX_TITLE, MAX_WHY

_SOURCE_KEYS = ("source", "code", "cuda", "rewrite", "kernel_source", "kernel_code")
_WHY_KEYS = ("why", "reason", "rationale", "explanation")
_JSON_SOURCE = re.compile(rf'"(?:{"|".join(_SOURCE_KEYS)})"\s*:\s*["\[]')


class Part(NamedTuple):
    """One text that may be a rewrite."""

    source: str
    closed: bool = True
    """Whether the fence around it was closed."""
    has_kernel: bool = False
    has_launch: bool = False
    """Whether it has a `@launch` directive."""
    has_main: bool = False
    launches: bool = False
    """Whether it has a `<<<`."""
    is_diff: bool = False
    notices: tuple[str, ...] = ()
    problem: str = ""
    """Why it was not looked at closely."""

    @staticmethod
    def of(source: str, closed: bool = True) -> Part:
        """Look at a text."""
        if problem := out_of_bounds(source):
            kernel, launch = "__global__" in source, "@launch" in source
            return Part(source, closed, kernel, launch, problem=problem)
        plain, notices = mended(ascii_code(source).strip("\n") + "\n")
        facts = outline(byte_text(plain))
        kinds = ("function", "declaration")
        return Part(
            plain,
            closed,
            has_kernel=any(i.kind in kinds and "__global__" in i.spaces for i in facts.items),
            has_launch=has_launch(plain),
            has_main=any(i.kind == "function" and i.name == "main" for i in facts.items),
            launches=any(t.text == "<<<" for t in facts.tokens),
            notices=notices,
        )


class Parts(NamedTuple):
    """An answer taken apart."""

    parts: tuple[Part, ...]
    """Each text once, in order."""
    prose: str
    """What stands between them."""
    title: str = ""
    """Of a JSON object."""
    why: str = ""


def read_parts(answer: str) -> Parts | Unusable:
    """Take a cleaned answer apart: JSON objects with a source first, then fenced blocks, then the
    bare text."""
    blocks, prose = fenced(answer)
    if (objects := _objects(answer, blocks)) is not None:
        return objects
    if not blocks:
        text = bare(answer)
        return Parts((Part.of(text),) if text.strip() else (), "")
    if any("__global__" in b.text or "@launch" in b.text for b in blocks):
        return Parts(_distinct([_of_block(b) for b in blocks]), prose)
    text = bare(prose)
    outside = [Part.of(text)] if "__global__" in text else []
    return Parts(_distinct([*(_of_block(b) for b in blocks), *outside]), prose)


def directives_alone(parts: tuple[Part, ...], prose: str) -> str:
    """The directives of an answer that put them apart from its kernels; empty where they are in two
    places."""
    places = [p.source for p in parts if not p.has_kernel and not p.has_main]
    found = [lines for text in (*places, prose) if (lines := directive_lines(text))]
    return found[0] if len(found) == 1 and "@launch" in found[0] else ""


def _of_block(block: Block) -> Part:
    if is_diff(block):
        return Part(block.text, block.closed, is_diff=True)
    return Part.of(block.text, block.closed)


def _distinct(parts: list[Part]) -> tuple[Part, ...]:
    """Without repetitions: the same code twice is one answer."""
    return tuple({" ".join(p.source.split()): p for p in reversed(parts)}.values())[::-1]


def _objects(answer: str, blocks: tuple[Block, ...]) -> Parts | Unusable | None:
    """Sources in JSON; None where the answer is none of JSON."""
    if not _JSON_SOURCE.search(answer):
        return None
    texts = [answer] if answer.lstrip()[:1] in ("{", "[") or not blocks else []
    texts += [b.text for b in blocks if b.text.lstrip()[:1] in ("{", "[")]
    for text in texts:
        found = [v for value in json_values(text) for v in _dictionaries(value)]
        sources = [(v, s) for v in found if (s := _source(v)) is not None]
        if sources:
            parts = [_inside(source) for _, source in sources]
            first = sources[0][0]
            why = next((str(first[k]) for k in _WHY_KEYS if first.get(k)), "")
            title = one_line(str(first.get("title") or ""), MAX_TITLE)
            return Parts(_distinct(parts), "", title, one_line(why, MAX_WHY))
    if any(p.has_kernel for p in map(_of_block, blocks) if '"' not in p.source[:2]):
        return None
    return unusable("malformed", "a JSON object that does not end or cannot be parsed")


def _dictionaries(value: Any) -> list[dict[str, Any]]:
    listed = value if isinstance(value, list) else [value]
    return [v for v in listed if isinstance(v, dict)]


def _source(value: dict[str, Any]) -> str | None:
    """The text of the source, which may be given as a list of lines."""
    held = next((value[k] for k in _SOURCE_KEYS if k in value), None)
    if isinstance(held, list) and all(isinstance(line, str) for line in held):
        held = "\n".join(held)
    # JSON can spell any character, also those that `clean` has taken out of the answer.
    return visible(held) if isinstance(held, str) else None


def _inside(source: str) -> Part:
    """A source in JSON may be fenced once more."""
    blocks, _ = fenced(source)
    return _of_block(blocks[0]) if len(blocks) == 1 else Part.of(source)
