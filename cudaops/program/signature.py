"""Parameters and template parameters of one function, as written.

Types as the compiler sees them: `front_end`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudaops.domain.program import Parameter
from cudaops.program.lexing import (
    Token,
    byte_text,
    closing,
    closing_angle,
    lex,
    plain_text,
    split_commas,
)

_BUILTIN_TYPES = frozenset({
    "int", "unsigned", "signed", "long", "short", "char", "float", "double", "bool", "const",
    "size_t", "auto", "void", "volatile",
})  # fmt: skip


def read_parameters(text: str) -> tuple[Parameter, ...]:
    """Parameters from the text between a function's parentheses. One without a name gets one by its
    position: a launch plan hands it on by that."""
    found: list[Parameter] = []
    for part in split_commas(lex(byte_text(text)).tokens, angles=True):
        cut = next((i for i, t in enumerate(part) if t.text == "="), len(part))
        tokens = part[:cut]
        if [t.text for t in tokens] in ([], ["void"]):
            continue
        at = _name_at(tokens)
        name = f"unnamed_{len(found)}" if at is None else tokens[at].text
        found.append(_made(name, _spelled(tokens, at)))
    return tuple(found)


def _name_at(tokens: Sequence[Token]) -> int | None:
    """Where the declared name stands: the last name outside of brackets, or in `(*name)`."""
    named: list[int] = []
    at = 0
    while at < len(tokens):
        text = tokens[at].text
        if text == "(" and at + 1 < len(tokens) and tokens[at + 1].text in ("*", "&"):
            inside = range(at + 2, closing(tokens, at))
            return next((i for i in inside if tokens[i].kind == "name"), None)
        if text in ("(", "["):
            at = closing(tokens, at)
        elif text == "<":
            at = closing_angle(tokens, at) or at
        elif tokens[at].kind == "name" and text not in _BUILTIN_TYPES:
            named.append(at)
        at += 1
    if not named or len(tokens) == 1 or all(t.text == "const" for t in tokens[: named[-1]]):
        return None
    return named[-1]


def _spelled(tokens: Sequence[Token], left_out: int | None) -> str:
    """Text of the tokens but one, spaced as written."""
    out = ""
    end = tokens[0].start
    for index, token in enumerate(tokens):
        out += (" " if end < token.start else "") + ("" if index == left_out else token.text)
        end = token.end
    return plain_text(out)


def _made(name: str, type_text: str) -> Parameter:
    spelled = re.sub(r"\s+", " ", type_text).strip()
    is_pointer = "*" in _outside_angles(spelled) or spelled.endswith("]")
    return Parameter(
        name=name,
        type_text=spelled,
        is_pointer=is_pointer,
        is_const=_is_const(spelled, is_pointer),
    )


def _outside_angles(text: str) -> str:
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def _is_const(type_text: str, is_pointer: bool) -> bool:
    plain = _outside_angles(type_text)
    if not is_pointer:
        return "const" in plain.split()
    pointee = plain.rsplit("*", 1)[0] if "*" in plain else plain.split("[")[0]
    return re.search(r"\bconst\b", pointee.rsplit("*", 1)[-1]) is not None


def read_template_parameters(text: str) -> tuple[str, ...]:
    """Template parameters, as written, from the text between the header's `<` and `>`."""
    tokens = lex(byte_text(text)).tokens
    raw = byte_text(text)
    return tuple(
        re.sub(r"\s+", " ", plain_text(raw[p[0].start : p[-1].end]))
        for p in split_commas(tokens, angles=True)
        if p
    )
