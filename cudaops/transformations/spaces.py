"""Execution spaces in a definition that is copied: written out where a macro stood for them.

A rewrite is read on its own, where the author's macros mean nothing: a helper that is `HD inline`
in his text would be a host function there.
"""

from __future__ import annotations

from collections.abc import Iterator

from cudaops.domain.program import Program
from cudaops.program.execution_spaces import SPACES, space_aliases
from cudaops.program.lexing import Edit, apply_edits, byte_text, lex, plain_text
from cudaops.program.outline import outline


def with_spaces(program: Program, text: str, space: str) -> str:
    """A function definition's text, each macro of the program that stands for execution spaces
    replaced by what it says; `space` in front where the text still names none for the device.

    `space`: what the function is known to be, `__global__` or `__device__`.
    """
    facts = outline(byte_text(text))
    if len(facts.items) != 1 or not facts.items[0].is_host_only:
        return text
    item = facts.items[0]
    start = item.first if item.template is None else item.template[1] + 1
    header = facts.tokens[start : item.last if item.body is None else item.body[0]]
    meant = _spelled(program)
    edits = [Edit(t.start, t.end, meant[t.text]) for t in header if t.text in meant]
    spelled = plain_text(apply_edits(facts.lexed.text, edits))
    if not outline(byte_text(spelled)).items[0].is_host_only:
        return spelled
    at = header[0].start
    return plain_text(apply_edits(facts.lexed.text, [Edit(at, at, f"{space} ")]))


def _spelled(program: Program) -> dict[str, str]:
    """The macros that stand for execution spaces, with their text; where several definitions do
    not agree on it, with the spaces alone."""
    found: dict[str, set[str]] = {}
    spaces: dict[str, set[str]] = {}
    for name, body in _bodies(program):
        found.setdefault(name, set()).add(body)
        spaces.setdefault(name, set()).update(SPACES & set(body.split()))
    return {
        name: next(iter(bodies)) if len(bodies) == 1 else " ".join(sorted(spaces[name]))
        for name, bodies in found.items()
    }


def _bodies(program: Program) -> Iterator[tuple[str, str]]:
    for file in program.files:
        lexed = lex(byte_text(file.text))
        names = {name for name, _ in space_aliases(lexed)}
        for directive in lexed.directives:
            words = [t.text for t in lexed.tokens[directive.first + 2 : directive.last]]
            stands = directive.keyword == "define" and SPACES & set(words[1:])
            if stands and words[0] in names:
                yield words[0], plain_text(" ".join(words[1:]))
