"""Parameters, template parameters and calls of one function, read with tree-sitter-cuda.

Where tree-sitter answers with an ERROR node the tokens are read instead, so nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from cudaops.domain.program import Parameter
from cudaops.program.lexing import Token, byte_text, lex, plain_text, split_commas

_DECLARATORS = frozenset({"identifier", "field_identifier"})
_NOT_CALLS = frozenset({
    "if", "while", "for", "switch", "return", "sizeof", "alignof", "decltype", "defined", "catch",
    "__launch_bounds__", "__attribute__", "__align__", "alignas", "static_assert", "noexcept",
})  # fmt: skip
_BUILTIN_TYPES = frozenset({
    "int", "unsigned", "signed", "long", "short", "char", "float", "double", "bool", "const",
    "size_t", "auto", "void", "volatile",
})  # fmt: skip


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_cuda.language()))


def read_parameters(text: str) -> tuple[Parameter, ...]:
    """Parameters from the text between a function's parentheses."""
    if not text.strip() or text.strip() == "void":
        return ()
    source = f"void f({text});"
    tree = _parser().parse(source.encode())
    listed = _first(tree.root_node, "parameter_list")
    if tree.root_node.has_error or listed is None:
        return _parameters_from_tokens(text)
    raw = source.encode()
    return tuple(
        _parameter(raw, node)
        for node in listed.named_children
        if node.type in ("parameter_declaration", "optional_parameter_declaration")
    )


def _first(node: Node, kind: str) -> Node | None:
    return next((n for n in _nodes(node) if n.type == kind), None)


def _nodes(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(current.children))


def _parameter(raw: bytes, node: Node) -> Parameter:
    end = node.end_byte
    default = node.child_by_field_name("default_value")
    if default is not None:
        end = raw.rindex(b"=", node.start_byte, default.start_byte)
    declarator = node.child_by_field_name("declarator")
    name = (
        None
        if declarator is None
        else next((n for n in _nodes(declarator) if n.type in _DECLARATORS), None)
    )
    if name is None:
        return _made("", raw[node.start_byte : end].decode())
    before, after = raw[node.start_byte : name.start_byte], raw[name.end_byte : end]
    return _made(raw[name.start_byte : name.end_byte].decode(), (before + after).decode())


def _parameters_from_tokens(text: str) -> tuple[Parameter, ...]:
    found = []
    for part in split_commas(lex(byte_text(text)).tokens, angles=True):
        cut = next((i for i, t in enumerate(part) if t.text == "="), len(part))
        tokens = part[:cut]
        names = [
            i for i, t in enumerate(tokens) if t.kind == "name" and t.text not in _BUILTIN_TYPES
        ]
        at = names[-1] if names and (len(tokens) > 1) else None
        if at is not None and all(t.text == "const" for t in tokens[:at]):
            at = None
        rest = [t for i, t in enumerate(tokens) if i != at]
        found.append(_made("" if at is None else tokens[at].text, _spelled(rest)))
    return tuple(found)


def _spelled(tokens: list[Token]) -> str:
    out = ""
    for previous, token in zip([None, *tokens], tokens, strict=False):
        apart = previous is not None and previous.end < token.start
        out += (" " if apart else "") + token.text
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


def called_names(text: str) -> tuple[str, ...]:
    """Functions that a definition calls, as written, in order, each once."""
    tree = _parser().parse(text.encode())
    if tree.root_node.has_error:
        return _calls_from_tokens(text)
    raw = text.encode()
    found: dict[str, None] = {}
    for node in _nodes(tree.root_node):
        function = node.child_by_field_name("function") if node.type == "call_expression" else None
        if function is not None and function.type in (
            "identifier", "qualified_identifier", "template_function",
        ):  # fmt: skip
            found[raw[function.start_byte : function.end_byte].decode()] = None
    return tuple(found)


def _calls_from_tokens(text: str) -> tuple[str, ...]:
    tokens = lex(byte_text(text)).tokens
    opener = next((i for i, t in enumerate(tokens) if t.text == "{"), 0)
    names = (
        a.text
        for a, b in zip(tokens[opener:], tokens[opener + 1 :], strict=False)
        if a.kind == "name" and b.text == "(" and a.text not in _NOT_CALLS
    )
    return tuple(dict.fromkeys(names))
