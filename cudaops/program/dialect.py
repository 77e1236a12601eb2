"""CUDA spellings that a C++ compiler does not know: dynamic shared memory, unroll pragmas, PTX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from cudaops.program.lexing import (
    Directive,
    Edit,
    Lexed,
    Token,
    apply_edits,
    byte_text,
    closing,
    hollow,
    opening,
    plain_text,
    split_commas,
)
from cudaops.program.outline import Declaration, Outline, outline
from cudaops.program.ptx_asm import asm_edits

UNROLL_ALL = 127
"""What a bare `#pragma unroll` becomes; g++ unrolls no loop further than its trip count."""
_UNROLL_MOST = 65534
"""Largest factor g++ takes. Source: GCC manual, loop-specific pragmas."""
_LOOPS = frozenset({"for", "while", "do"})
_NAMED = re.compile(r"CUDAOPS_DYNAMIC_SHARED\([^;]*, *(\w+)\)")
_BEFORE_BODY = frozenset({")", "const", "noexcept", "override", "final"})
_ATTRIBUTES = frozenset({"__align__", "alignas", "__attribute__"})
_TO_ITS_LINES_END = re.compile(r"(?:[ \t\r\f\v]|/\*[^\n]*?\*/)*(?://[^\n]*)?(?:\n|$)")
_CONTROLS = frozenset({"if", "for", "while", "switch", "catch", "constexpr"})
_OPENS_BLOCK = frozenset({"{", "}", ";", "else", "do", "try", ":"})
"""What comes before a brace that opens no function."""


class SharedGlobal(NamedTuple):
    """`extern __shared__ T name[];` at namespace scope."""

    name: str
    declaration: str
    """What declares it inside of a function, for a C++ compiler."""
    written: str
    """As its author declares it."""
    namespaces: tuple[str, ...] = ()
    """Around it, outermost first."""


def dialect_edits(
    lexed: Lexed, macros: frozenset[str] = frozenset(), *, author: bool = False
) -> list[Edit]:
    """Edits that keep every line where it is; `macros` may stand for a loop's head. `author`: of
    whose inline PTX more is followed than a rewrite may hold."""
    asm = asm_edits(lexed, author=author)
    levels = _optimisation_edits(lexed)
    return [*_shared_edits(lexed), *_unroll_edits(lexed, macros), *levels, *asm]


def macro_names(lexed: Lexed) -> frozenset[str]:
    """Every name that the text defines as a macro."""
    return frozenset(
        lexed.tokens[d.first + 2].text
        for d in lexed.directives
        if d.keyword == "define" and d.last > d.first + 2
    )


def shared_globals(facts: Outline) -> list[SharedGlobal]:
    """Dynamic shared memory declared outside of any function."""
    found = []
    for item in facts.items:
        if is_shared_global(item):
            declared = _item_declared(facts, item)
            if declared is not None:
                names = [n.strip() for n in _NAMED.findall(declared)]
                written = plain_text(facts.lexed.text[item.start : item.end]).rstrip(" ;") + ";"
                found += [SharedGlobal(n, declared + ";", written, item.namespaces) for n in names]
    return found


def _item_declared(facts: Outline, item: Declaration) -> str | None:
    return _declared([t for t in facts.tokens[item.first : item.last] if t.text != ";"])


def is_shared_global(item: Declaration) -> bool:
    """Whether it is `extern __shared__` at namespace scope."""
    return item.kind == "variable" and {"extern", "__shared__"} <= item.specifiers


class _Naming(NamedTuple):
    """A body that names such memory."""

    braces: tuple[int, int]
    """Indices of their tokens."""
    needed: list[SharedGlobal]
    edits: list[Edit]
    """Those that take namespaces away before the names."""


def shared_global_edits(facts: Outline, known: Sequence[SharedGlobal]) -> Iterator[Edit]:
    """Declare such memory around the body of each function that names it instead."""
    for (first, last), needed, edits in _bodies_naming(facts, known):
        yield from edits
        # A block of its own: what the body declares under the same name hides it.
        opened, closed = facts.tokens[first], facts.tokens[last]
        text = " ".join(dict.fromkeys(s.declaration for s in needed))
        yield Edit(opened.end, opened.end, f" {text} {{")
        yield Edit(closed.start, closed.start, "} ")


def declaring_shared_globals(
    text: str, files: Iterable[str], namespaces: tuple[str, ...] = ()
) -> str:
    """A kernel's text with such memory of its program's `files` declared in its body too, as its
    author writes it: who asks the body for its shared memory finds all of it.

    `namespaces`: around the kernel.
    """
    outlines = (outline(byte_text(file)) for file in files if "__shared__" in file)
    known = [shared for facts in outlines for shared in shared_globals(facts)]
    if not known:
        return text
    facts = outline(byte_text(text))
    edits = []
    for (first, _), needed, more in _bodies_naming(facts, known, namespaces):
        at = facts.tokens[first].end
        lines = "".join(f"\n    {line}" for line in dict.fromkeys(s.written for s in needed))
        edits += [*more, Edit(at, at, lines)]
    return plain_text(apply_edits(facts.lexed.text, edits))


def _bodies_naming(
    facts: Outline, known: Sequence[SharedGlobal], around: tuple[str, ...] = ()
) -> Iterator[_Naming]:
    """`around`: namespaces that the text itself does not show."""
    if not known:
        return
    spelt = {s.name: _spellings(facts.lexed, s.name) for s in known}
    for item in facts.items:
        visible = _visible(known, (*around, *item.namespaces))
        for first, last in _device_bodies(facts, item):
            words = {t.text for t in facts.tokens[first:last]}
            hidden = _parameter_words(facts.tokens, first)
            needed = [s for n, s in visible.items() if spelt[n] & words and n not in hidden]
            edits = []
            for other in (s for s in known if visible.get(s.name, s) is s):
                if found := [*_unqualified(facts, first, last, other)]:
                    edits += found
                    needed.append(other)
            if needed:
                yield _Naming((first, last), needed, edits)


def without_shared_globals(facts: Outline) -> list[Edit]:
    """Take their declarations at namespace scope away, lines kept."""
    return [
        Edit(i.start, i.end, hollow(facts.lexed, i.start, i.end))
        for i in facts.items
        if is_shared_global(i) and _item_declared(facts, i) is not None
    ]


def _visible(known: Sequence[SharedGlobal], namespaces: tuple[str, ...]) -> dict[str, SharedGlobal]:
    """By name, what a function in `namespaces` means by it: the innermost around it."""
    around = [s for s in known if namespaces[: len(s.namespaces)] == s.namespaces]
    return {s.name: s for s in sorted(around, key=lambda s: len(s.namespaces))}


def _device_bodies(facts: Outline, item: Declaration) -> Iterator[tuple[int, int]]:
    """Token indices of the braces of each function that is the item, or a member of it."""
    if item.body is not None and item.spaces & {"__global__", "__device__"}:
        yield item.body
    elif item.kind == "type":
        at = next((i for i in range(item.first, item.last) if facts.tokens[i].text == "{"), None)
        at = item.last if at is None else at + 1
        while at < item.last:
            opens = facts.tokens[at].text == "{" and facts.tokens[at - 1].text in _BEFORE_BODY
            if opens:
                end = closing(facts.tokens, at)
                yield at, end
                at = end
            at += 1


def _unqualified(facts: Outline, first: int, last: int, shared: SharedGlobal) -> Iterator[Edit]:
    """Take `a::b::` away before its name: inside of the function it is declared without."""
    depth = len(shared.namespaces)
    for at in range(first, last):
        # `a::b::name` with any number of the outer names left out.
        start = at
        for space in reversed(shared.namespaces if facts.tokens[at].text == shared.name else ()):
            before = [t.text for t in facts.tokens[start - 2 : start]]
            if before != [space, "::"]:
                break
            start -= 2
        if depth and start < at:
            yield Edit(facts.tokens[start].start, facts.tokens[at].start, "")


def _parameter_words(tokens: Sequence[Token], brace: int) -> set[str]:
    """What is between the parentheses before a body: parameters hide what they are called."""
    at = brace - 1
    while at > 0 and tokens[at].text in _BEFORE_BODY - {")"}:
        at -= 1
    return {t.text for t in tokens[opening(tokens, at) : at]} if tokens[at].text == ")" else set()


def _spellings(lexed: Lexed, name: str) -> frozenset[str]:
    """The name, and every macro of the text that stands for something with it."""
    found = {name}
    defined = [
        [t.text for t in lexed.tokens[d.first + 2 : d.last]]
        for d in lexed.directives
        if d.keyword == "define" and d.last > d.first + 2
    ]
    while more := {w[0] for w in defined if found & set(w[1:])} - found:
        found |= more
    return frozenset(found)


def _shared_edits(lexed: Lexed) -> Iterator[Edit]:
    tokens = lexed.tokens
    for index, token in enumerate(tokens):
        if token.text == "extern":
            statement = _statement(tokens, index)
            declared = _declared(statement)
            if declared is not None:
                start, end = statement[0].start, statement[-1].end
                yield Edit(start, end, _same_lines(declared, lexed, start, end))
        elif token.text == "static":
            near = next((t for t in tokens[index + 1 : index + 4] if t.text == "__shared__"), None)
            if near is not None and near.directive == token.directive:
                yield Edit(token.start, token.end, "")
        elif token.text == "__shared__":
            yield from _after_shared(tokens, index)


def _after_shared(tokens: Sequence[Token], index: int) -> Iterator[Edit]:
    """`static` is in the word already; `alignas` behind it is to g++ no place for an attribute."""
    for token in tokens[index + 1 : index + 3]:
        if token.text == "static":
            yield Edit(token.start, token.end, "")
        elif token.text == "alignas":
            yield Edit(token.start, token.end, "__align__")
            return
        else:
            return


def _statement(tokens: Sequence[Token], index: int) -> list[Token]:
    """Tokens from `index` to before the next `;`, at most 64, all in the same directive or none."""
    found: list[Token] = []
    for token in tokens[index : index + 64]:
        if token.text in (";", "{", "}") or token.directive != tokens[index].directive:
            break
        found.append(token)
    return found


def _declared(statement: Sequence[Token]) -> str | None:
    """What declares `extern __shared__ T name[], ...` inside of a function; None for other text."""
    if statement[-1].text != "]" or all(t.text != "__shared__" for t in statement):
        return None
    kept: list[Token] = []
    index = 0
    while index < len(statement):
        word = statement[index].text
        if word in _ATTRIBUTES and "(" in [t.text for t in statement[index + 1 : index + 2]]:
            index = closing(statement, index + 1)
        elif word not in ("extern", "__shared__", "static"):
            kept.append(statement[index])
        index += 1
    first_bracket = next((i for i, t in enumerate(kept) if t.text == "["), len(kept))
    parts = split_commas(kept[first_bracket - 1 :])
    if first_bracket < 2 or any(_shape(p) != ("name", "[") for p in parts):
        return None
    type_text = _joined(kept[: first_bracket - 1])
    return "; ".join(_one_declared(type_text, part) for part in parts)


def _shape(declarator: Sequence[Token]) -> tuple[str, str]:
    """Kind of the first token and the second token: `("name", "[")` for `name[]`."""
    return ("", "") if len(declarator) < 2 else (declarator[0].kind, declarator[1].text)


def _joined(tokens: Sequence[Token]) -> str:
    """Tokens as written, on one line."""
    gaps = [" " if a.end < b.start else "" for a, b in pairwise(tokens)]
    return "".join(t.text + g for t, g in zip(tokens, [*gaps, ""], strict=True))


def _one_declared(type_text: str, declarator: Sequence[Token]) -> str:
    name = declarator[0].text
    rest = "".join(t.text for t in declarator[closing(declarator, 1) + 1 :])
    if rest or "," in type_text:
        # A macro argument can hold neither a comma nor a row type's brackets.
        row = f"cudaops_row_{name}"
        return f"typedef {type_text} {row}{rest}; CUDAOPS_DYNAMIC_SHARED({row}, {name})"
    return f"CUDAOPS_DYNAMIC_SHARED({type_text}, {name})"


def _same_lines(replacement: str, lexed: Lexed, start: int, end: int) -> str:
    original = lexed.text[start:end]
    newline = "\\\n" if "\\\n" in original else "\n"
    return replacement + newline * (original.count("\n") - replacement.count("\n"))


def _unroll_edits(lexed: Lexed, macros: frozenset[str]) -> Iterator[Edit]:
    for directive in lexed.directives:
        words = lexed.tokens[directive.first : directive.last]
        if (
            directive.keyword == "pragma"
            and len(words) > 2
            and words[2].text in ("unroll", "nounroll")
        ):
            head = _next_code(lexed, directive)
            start, end = words[0].start, words[-1].end
            fits = head in _LOOPS or head in macros
            new = f"#pragma {_unrolled(' '.join(t.text for t in words[2:]))}" if fits else ""
            yield Edit(start, end, _same_lines(new, lexed, start, end))
    for index, token in enumerate(lexed.tokens[2:], 2):
        inside = lexed.tokens[index - 2].text == "_Pragma" and token.kind == "string"
        if inside and re.match(r'"\s*(no)?unroll\b', token.text):
            yield Edit(token.start, token.end, f'"{_unrolled(token.text.strip(chr(34)))}"')


def _optimisation_edits(lexed: Lexed) -> Iterator[Edit]:
    """Without the levels at which g++ is to optimise a function, which nvcc keeps from device code:
    of another level's functions the time model sees nothing."""
    for directive in lexed.directives:
        words = [t.text for t in lexed.tokens[directive.first : directive.last]]
        if directive.keyword == "pragma" and words[2:4] == ["GCC", "optimize"]:
            start, end = directive.start, lexed.tokens[directive.last - 1].end
            yield Edit(start, end, _same_lines("", lexed, start, end))
    for at, token in enumerate(lexed.tokens):
        if token.text not in ("__attribute__", "__attribute"):
            continue
        last = closing(lexed.tokens, at + 1)
        for inner in range(at, last):
            word, after = lexed.tokens[inner], lexed.tokens[inner + 1]
            if word.text.strip("_") == "optimize" and after.text == "(":
                end = lexed.tokens[closing(lexed.tokens, inner + 1)].end
                yield Edit(word.start, end, _same_lines("", lexed, word.start, end))


def _next_code(lexed: Lexed, directive: Directive) -> str:
    return next((t.text for t in lexed.tokens[directive.last :] if t.directive < 0), "")


def _unrolled(text: str) -> str:
    if text.strip().startswith("no"):
        return "GCC unroll 1"
    factor = re.search(r"unroll\s*\(?\s*(\d+)\s*\)?\s*$", text)
    count = UNROLL_ALL if factor is None else max(1, min(int(factor.group(1)), _UNROLL_MOST))
    return f"GCC unroll {count}"


def lenient_edits(facts: Outline) -> Iterator[Edit]:
    """What nvcc takes of an author's text and g++ refuses, every line kept."""
    yield from _stray_backslashes(facts.lexed)
    for item in facts.items:
        if item.name == "main" and not item.namespaces and item.body is not None:
            yield from _returns_of_main(facts.tokens, item)
        for first, last in _device_bodies(facts, item):
            yield from _braced_news(facts.tokens, first, last)


def _stray_backslashes(lexed: Lexed) -> Iterator[Edit]:
    """One with blanks or a comment between it and the end of its line continues that line."""
    for token in lexed.tokens:
        continues = token.text == "\\" and token.directive < 0
        if continues and _TO_ITS_LINES_END.match(lexed.text, token.end):
            yield Edit(token.start, token.end, " ")


def _returns_of_main(tokens: Sequence[Token], item: Declaration) -> Iterator[Edit]:
    """`return;` in `main` returns 0. Not in a lambda or a structure there."""
    if item.body is None or "void" in item.specifiers:
        return
    at, last = item.body[0] + 1, item.body[1]
    while at < last:
        if tokens[at].text == "{" and not _is_block(tokens, at):
            at = closing(tokens, at)
        elif tokens[at].text == "return" and tokens[at + 1].text == ";":
            yield Edit(tokens[at].end, tokens[at].end, " 0")
        at += 1


def _braced_news(tokens: Sequence[Token], first: int, last: int) -> Iterator[Edit]:
    """`new T({x})`, where `x` makes what a constructor of T takes, is to g++ one of that and of
    a T; `new T{{x}}` is what nvcc takes it for. Of several elements the two are not the same."""
    for at in range(first, last - 3):
        opens = at + 2
        while opens < last and tokens[opens].text == "::":
            opens += 2
        words = [tokens[at].text, *(t.text for t in tokens[opens : opens + 2])]
        if words != ["new", "(", "{"]:
            continue
        ends = closing(tokens, opens)
        inner = tokens[opens + 2 : ends - 1]
        if closing(tokens, opens + 1) == ends - 1 and len(split_commas(inner)) == 1:
            yield Edit(tokens[opens].start, tokens[opens].end, "{")
            yield Edit(tokens[ends].start, tokens[ends].end, "}")


def _is_block(tokens: Sequence[Token], brace: int) -> bool:
    before = tokens[brace - 1].text
    if before != ")":
        return before in _OPENS_BLOCK
    return tokens[opening(tokens, brace - 1) - 1].text in _CONTROLS
