"""Device code as tokens in which the author's own names are numbers; ground of `fingerprint`.

What a program defines (functions, macros, constants, types) is numbered over the whole text, other
names within the definition that uses them, both in order of appearance. Words of C++ and CUDA,
names of what is defined elsewhere, and literals stay as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cudaops.program.lexing import Token
from cudaops.program.outline import Declaration, Outline

Definitions = Mapping[str, Sequence[tuple[Token, ...]]]
"""Name to the tokens of its definitions, several where it is overloaded or conditional."""

_WORDS = frozenset({
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char",
    "class", "const", "constexpr", "const_cast", "continue", "decltype", "default", "delete",
    "do", "double", "dynamic_cast", "else", "enum", "explicit", "extern", "false", "float",
    "for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new",
    "noexcept", "not", "nullptr", "operator", "or", "private", "protected", "public",
    "register", "reinterpret_cast", "restrict", "return", "short", "signed", "sizeof", "static",
    "static_assert", "static_cast", "struct", "switch", "template", "this", "throw", "true",
    "try", "typedef", "typename", "union", "unsigned", "using", "virtual", "void", "volatile",
    "while", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "dim3", "half",
    "half2", "bfloat16", "NULL", "INFINITY", "NAN", "pragma", "unroll", "nounroll", "include",
    "define", "undef", "ifdef", "ifndef", "elif", "endif", "defined",
})  # fmt: skip
"""C++17 keywords, CUDA's built-in variables and types (CUDA C++ Programming Guide, C++ language
extensions) and the preprocessor's words."""
_COMPONENTS = frozenset("xyzw")
"""Members of vector types and of `threadIdx`."""
_FAMILIES = re.compile(
    r"__\w+|(?:u?int\w*|size|ptrdiff|wchar|char\d+|cu\w+)_t|nv_\w+"
    r"|u?(?:char|short|int|long|longlong)[1-4]|(?:float|double)[1-4]"
    r"|(?:FLT|DBL|INT|UINT|LONG|ULONG|LLONG|CUDART|M)_\w+"
)
"""Names that are nobody's own: compiler words, types of fixed size, vector types, limits."""


def definitions(files: Iterable[Outline]) -> Definitions:
    """What device code can use of these files, by unqualified name."""
    found: dict[str, list[tuple[Token, ...]]] = {}
    for facts in files:
        for item in facts.items:
            tokens = _within(facts, item.start, item.end)
            for name in _names(facts, item):
                found.setdefault(name, []).append(tokens)
        for directive in facts.lexed.directives:
            tokens = facts.lexed.tokens[directive.first : directive.last]
            live = not facts.lexed.dead(directive.start)
            if directive.keyword == "define" and len(tokens) > 2 and live:
                found.setdefault(tokens[2].text, []).append(tokens[2:])
    return found


def conditions(facts: Outline) -> tuple[str, ...]:
    """Tokens of the `#if`s outside of definitions, which choose among these."""
    lexed = facts.lexed
    return tuple(
        token.text
        for directive in lexed.directives
        if directive.keyword in ("if", "ifdef", "ifndef", "elif", "else", "endif")
        and facts.item_at(directive.start) is None
        for token in lexed.tokens[directive.first : directive.last]
    )


class Naming:
    """Numbers for names, given as definitions are reached."""

    def __init__(self, known: Definitions) -> None:
        self._definitions = known
        self._declared: set[str] = set()
        self._numbers: dict[str, str] = {}
        self._reached: dict[str, None] = {}

    def declare(self, name: str) -> None:
        """This name is the text's own, though no code defines it."""
        self._declared.add(name)

    def reach(self, name: str) -> None:
        """Whatever has this name is used; where nothing has it, nothing happens."""
        if name in self._definitions:
            self._reached.setdefault(name)

    def known(self, name: str) -> str:
        """The name's number over the whole text; the name itself where it is defined elsewhere."""
        if name not in self._definitions and name not in self._declared:
            return name
        self.reach(name)
        return self._numbers.setdefault(name, f"@{len(self._numbers)}")

    def tokens(self) -> list[str]:
        """Normalised tokens of everything reached, and of what that reaches in turn."""
        found: list[str] = []
        done = 0
        while done < len(self._reached):
            for name in list(self._reached)[done:]:
                done += 1
                found += ["@", self.known(name)]
                for tokens in self._definitions[name]:
                    found += self._normal(tokens)
        return found

    def _normal(self, tokens: Sequence[Token]) -> Iterator[str]:
        local: dict[str, str] = {}
        texts = ["", *(t.text for t in tokens), ""]
        for at, token in enumerate(tokens, 1):
            text = token.text
            if token.kind != "name":
                yield text
            elif texts[at - 1] in (".", "->"):
                component = text in _COMPONENTS
                yield text if component else local.setdefault(f".{text}", f"${len(local)}")
            elif text in self._definitions or text in self._declared:
                yield self.known(text)
            elif text in local:
                yield local[text]
            elif _is_elsewhere(text, texts[at - 1], texts[at + 1]):
                yield text
            else:
                yield local.setdefault(text, f"${len(local)}")


def _is_elsewhere(name: str, before: str, after: str) -> bool:
    """Whether a name that the program does not define is CUDA's, the language's or a library's."""
    if name in _WORDS or _FAMILIES.fullmatch(name):
        return True
    return after in ("(", "::") or before == "::"


def _within(facts: Outline, start: int, end: int) -> tuple[Token, ...]:
    """Tokens of a range with those of preprocessor lines in it: `#pragma unroll 4` tells."""
    tokens = facts.lexed.tokens
    first = bisect_left(tokens, start, key=lambda t: t.start)
    last = bisect_left(tokens, end, key=lambda t: t.start)
    return tuple(t for t in tokens[first:last] if not facts.lexed.dead(t.start))


def _names(facts: Outline, item: Declaration) -> Iterator[str]:
    """Names under which an item can be used by device code."""
    tokens = facts.tokens[item.first : item.last]
    match item.kind:
        case "function" if not item.is_host_only:
            yield item.name.split("::")[-1]
        case "variable" if item.name:
            yield item.name
        case "type":
            yield from _type_names(tokens)
        case "other" if tokens[0].text == "using" and len(tokens) > 2 and tokens[2].text == "=":
            yield tokens[1].text
        case "other" if tokens[0].text == "typedef" and len(tokens) > 2:
            yield tokens[-2].text


def _type_names(tokens: Sequence[Token]) -> Iterator[str]:
    """The type's own name, and the values of an enumeration."""
    is_enum = False
    for at, token in enumerate(tokens[:-1]):
        if token.text == "{" and not is_enum:
            return
        if token.text in ("struct", "class", "union", "enum"):
            is_enum = is_enum or token.text == "enum"
        elif token.kind == "name" and token.text not in _WORDS:
            named = tokens[at - 1].text in ("struct", "class", "union", "enum", ")")
            if named or (is_enum and tokens[at - 1].text in ("{", ",")):
                yield token.text
