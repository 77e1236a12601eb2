"""Which kernel a launch really names: through a macro's parameter, a variable or an alias."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from cudaops.domain.program import Kernel, Program
from cudaops.program.execution_spaces import defines_kernel
from cudaops.program.launches import ByteRange, LaunchCall, find_launches, macro_parameters
from cudaops.program.lexing import (
    Directive,
    Edit,
    Lexed,
    Token,
    apply_edits,
    byte_text,
    closing,
    disjoint,
    lex,
    plain_text,
    split_commas,
)
from cudaops.program.outline import Declaration, Outline

_SPLICED = re.compile(r"[ \t]*\\\r?\n")
"""A line of a macro that goes on."""
_REST = "__VA_ARGS__"
_PASTE = "##"


def resolve_launched(
    launch: LaunchCall, holder: Declaration | None, facts: Outline, kernels: set[str]
) -> str:
    """The unqualified kernel name, or the callee's own last name where it cannot be told."""
    if launch.name in kernels:
        return launch.name
    if launch.macro_parameter:
        candidates = _macro_uses(launch, facts.lexed, kernels)
    elif launch.directive is not None and _PASTE in launch.name:
        candidates = _pasted(launch, facts.lexed, kernels)
    else:
        candidates = _assigned(launch, holder, facts, kernels)
    return candidates.pop() if len(candidates) == 1 else launch.name


def _macro_uses(launch: LaunchCall, lexed: Lexed, kernels: set[str]) -> set[str]:
    """Kernels handed to the macro whose parameter is launched."""
    assert launch.directive is not None
    position = macro_parameters(lexed, launch.directive).index(launch.name)
    found: set[str] = set()
    for use in _uses(lexed, lexed.tokens[launch.directive.first + 2].text):
        if position < len(use.arguments):
            found |= kernels & {t.text for t in use.arguments[position]}
    return found


def _pasted(launch: LaunchCall, lexed: Lexed, kernels: set[str]) -> set[str]:
    """Kernels whose name the macro pastes where it is used."""
    assert launch.directive is not None
    parameters = macro_parameters(lexed, launch.directive)
    found: set[str] = set()
    for use in _uses(lexed, lexed.tokens[launch.directive.first + 2].text):
        words = ("".join(t.text for t in argument) for argument in use.arguments)
        given = dict(zip(parameters, words, strict=False))
        found.add("".join(given.get(piece, piece) for piece in launch.name.split(_PASTE)))
    return found & kernels


class _Use(NamedTuple):
    """`NAME(a, b)` in the text."""

    start: int
    end: int
    arguments: list[list[Token]]


def _uses(lexed: Lexed, macro: str) -> Iterator[_Use]:
    """Uses of a function-like macro outside of other directives."""
    for index, token in enumerate(lexed.tokens[:-1]):
        if token.text != macro or lexed.tokens[index + 1].text != "(" or token.directive >= 0:
            continue
        end = closing(lexed.tokens, index + 1)
        arguments = split_commas(lexed.tokens[index + 2 : end])
        yield _Use(token.start, lexed.tokens[end].end, arguments)


class Macro(NamedTuple):
    """A macro that launches one of its parameters, or defines a kernel."""

    lexed: Lexed
    name: str
    parameters: tuple[str, ...]
    takes_more: bool
    """It ends its parameters with `...`."""
    launched: frozenset[int]
    """Positions of the parameters that it launches."""
    pastes: bool
    """It launches what it pastes."""
    body: Sequence[Token]

    def written_out(self, use: _Use, lexed: Lexed) -> str | None:
        """Its text with the arguments of a use, each as it is written; None where they are not as
        many as it takes."""
        many = len(self.parameters)
        own, more = use.arguments[:many], use.arguments[many:]
        if len(own) < many or (more and not self.takes_more):
            return None
        given = {
            name: lexed.text[a[0].start : a[-1].end] if a else ""
            for name, a in zip(self.parameters, own, strict=True)
        }
        rest = [token for argument in more for token in argument]
        given[_REST] = lexed.text[rest[0].start : rest[-1].end] if rest else ""
        first = self.body[0].start
        quoted = {name: mark for mark, name in _pairs_quoted(self.body)}
        edits = [
            Edit(quoted.get(t, t).start - first, t.end - first,
                 _quoted(given[t.text]) if t in quoted else given[t.text])
            for t in self.body
            if t.kind == "name" and t.text in given
        ]  # fmt: skip
        edits += [Edit(a.end - first, b.start - first, "") for (a, b) in _pairs_pasted(self.body)]
        return _SPLICED.sub("\n", apply_edits(self.lexed.text[first : self.body[-1].end], edits))


def launches_written_out(files: Mapping[str, str], kernel: str) -> dict[str, str]:
    """Path to text, of files that change, with the uses of macros written out that launch this
    kernel by a parameter of theirs: `TIME(k, n)` becomes the macro's own text with
    `k<<<n, 256>>>(a)` in it.

    Macros that are defined twice or undone are left as they are.
    (`TIME(k, n, ...)` takes more arguments, which are `__VA_ARGS__`.)
    """
    lexed = {path: lex(byte_text(text)) for path, text in files.items()}
    macros = list(_launching(list(lexed.values())))
    return {
        path: plain_text(apply_edits(one.text, edits))
        for path, one in lexed.items()
        if (edits := disjoint(_written_out(one, macros, kernel)))
    }


def _launching(files: Sequence[Lexed]) -> Iterator[Macro]:
    named = _names_defined(files)
    for lexed in files:
        found: dict[int, set[str]] = {}
        for launch in find_launches(lexed):
            if launch.directive is None:
                continue
            pastes = _PASTE in launch.name  # else `NAME`, also of a namespace or with arguments
            if pastes or launch.name in macro_parameters(lexed, launch.directive):
                names = found.setdefault(launch.directive.first, set())
                names |= {_PASTE} if pastes else {launch.name}
        for directive in lexed.directives:
            if directive.first in found and named[_name(lexed, directive)] == 1:
                macro = _read(lexed, directive, found[directive.first])
                yield from [] if macro is None else [macro]


def kernel_macros(files: Sequence[Lexed]) -> dict[str, Macro]:
    """Macros that define a kernel, by name; those that are defined twice or undone left out."""
    named = _names_defined(files)
    found: dict[str, Macro] = {}
    for lexed in files:
        for directive in lexed.directives:
            words = [t.text for t in lexed.tokens[directive.first + 2 : directive.last]]
            if directive.keyword == "define" and defines_kernel(words) and named[words[0]] == 1:
                macro = _read(lexed, directive, frozenset())
                found |= {} if macro is None else {words[0]: macro}
    return found


def text_made(macros: Mapping[str, Macro], facts: Outline, item: Declaration) -> str | None:
    """What stands for a use of a macro that defines a kernel (`Declaration.is_made`)."""
    macro = macros.get(facts.tokens[item.first].text)
    if macro is None:
        return None
    arguments = split_commas(facts.tokens[item.first + 2 : item.last - 1])
    return macro.written_out(_Use(item.start, item.end, arguments), facts.lexed)


def _name(lexed: Lexed, directive: Directive) -> str:
    return lexed.tokens[directive.first + 2].text


def _names_defined(files: Sequence[Lexed]) -> Counter[str]:
    return Counter(
        _name(one, d)
        for one in files
        for d in one.directives
        if d.keyword in ("define", "undef") and d.first + 2 < d.last
    )


def _read(lexed: Lexed, directive: Directive, names: Set[str]) -> Macro | None:
    """`names`: of the parameters that it launches. None where it has a head of another kind, or a
    `#` that quotes none of its parameters."""
    parameters = macro_parameters(lexed, directive)
    after = closing(lexed.tokens, directive.first + 3) + 1
    header = [t.text for t in lexed.tokens[directive.first + 4 : after - 1]]
    body = lexed.tokens[after : directive.last]
    takes_more = header[-3:] == ["."] * 3 and header[-4:-3] in ([], [","])
    quoted = [name.text in {*parameters, _REST} for _, name in _pairs_quoted(body)]
    marks = sum(t.text == "#" for t in body) - 2 * len(_pairs_pasted(body))
    if "." in header and not takes_more:
        return None
    if not all(quoted) or len(quoted) != marks or any(t.text == "__VA_OPT__" for t in body):
        return None
    launched = frozenset(parameters.index(p) for p in names - {_PASTE})
    name = _name(lexed, directive)
    return Macro(lexed, name, parameters, takes_more, launched, _PASTE in names, body)


def _pairs_pasted(body: Sequence[Token]) -> list[tuple[Token, Token]]:
    """Tokens around each `##`."""
    return [
        (body[at - 1], body[at + 2])
        for at in range(1, len(body) - 2)
        if body[at].text == body[at + 1].text == "#" and body[at].end == body[at + 1].start
    ]


def _pairs_quoted(body: Sequence[Token]) -> list[tuple[Token, Token]]:
    """Each `#` that is alone, and what follows it."""
    around = ["", *(t.text for t in body), ""]
    return [
        (body[at], body[at + 1])
        for at in range(len(body) - 1)
        if around[at + 1] == "#" and "#" not in (around[at], around[at + 2])
    ]


def _quoted(argument: str) -> str:
    """What `#` makes of it ([cpp.stringize]): one space for any between its tokens."""
    tokens = lex(argument).tokens
    text = ""
    for before, token in zip([None, *tokens], tokens, strict=False):
        text += " " * (before is not None and token.start > before.end)
        is_literal = token.text[-1:] in ("'", '"')
        text += re.sub(r'["\\]', r"\\\g<0>", token.text) if is_literal else token.text
    return f'"{text}"'


def _written_out(lexed: Lexed, macros: Sequence[Macro], kernel: str) -> Iterator[Edit]:
    for macro in macros:
        for use in _uses(lexed, macro.name):
            handed = (a for n, a in enumerate(use.arguments) if n in macro.launched)
            named = any(kernel in {t.text for t in argument} for argument in handed)
            text = macro.written_out(use, lexed) if named or macro.pastes else None
            if text is not None and (named or _launches(text, kernel)):
                yield Edit(use.start, use.end, text)


def _launches(text: str, kernel: str) -> bool:
    return any(launch.name == kernel for launch in find_launches(lex(text)))


def _assigned(
    launch: LaunchCall, holder: Declaration | None, facts: Outline, kernels: set[str]
) -> set[str]:
    """Kernels that the enclosing function stores under the launched name."""
    if holder is None or not launch.plain:
        return set()
    tokens = facts.tokens[holder.first : holder.last]
    found: set[str] = set()
    for index, token in enumerate(tokens[:-1]):
        after = tokens[index + 1].text
        if token.text != launch.name or after not in ("=", "{", "(", ")"):
            continue
        stop = next((i for i in range(index, len(tokens)) if tokens[i].text == ";"), len(tokens))
        found |= kernels & {t.text for t in tokens[index + 1 : stop]}
    return found


class InstanceAlias(NamedTuple):
    """A kernel's instance as a variable's initialiser spells it."""

    callee: ByteRange
    """Without a leading `&`."""
    template: ByteRange | None
    """Between `<` and `>`."""


def _declared_at(launch: LaunchCall, tokens: Sequence[Token]) -> int | None:
    """Where the variable that a launch names is first set, in the innermost block around the launch
    that sets it; None where that block sets it again or takes its address."""
    opened: list[int] = []
    for i, token in enumerate(tokens):
        if token.start >= launch.start:
            break
        if token.text == "{":
            opened.append(i)
        elif token.text == "}" and opened:
            opened.pop()
    for begins in reversed(opened):
        inside = tokens[begins : closing(tokens, begins)]
        named = [i for i, t in enumerate(inside) if t.text == launch.name]
        set_at = [i for i in named if i + 1 < len(inside) and inside[i + 1].text in ("=", "{", "(")]
        if set_at:
            taken = any(inside[i - 1].text == "&" for i in named)
            return begins + set_at[0] if len(set_at) == 1 and not taken else None
    return None


def alias_of(
    launch: LaunchCall, holder: Declaration | None, facts: Outline, kernels: set[str]
) -> InstanceAlias | None:
    """What `auto NAME = kernel<64, 128>;` says of a launch `NAME<<<..>>>`; None for all else, and
    where the enclosing function assigns the name again or takes its address."""
    if holder is None or not launch.plain or launch.template or launch.name in kernels:
        return None
    tokens = facts.tokens[holder.first : holder.last]
    at = _declared_at(launch, tokens)
    if at is None:
        return None
    declared = [t.text for t in tokens[max(0, at - 3) : at]]
    while declared and declared[-1] in ("*", "const"):
        declared.pop()
    end = next((i for i in range(at, len(tokens)) if tokens[i].text == ";"), len(tokens))
    first = at + 3 if tokens[at + 2 : end] and tokens[at + 2].text == "&" else at + 2
    if first >= end:
        return None
    last = first
    while last + 2 < end and tokens[last + 1].text == "::":
        last += 2
    begins = tokens[at].start < launch.start and tokens[at + 1].text == "="
    if not begins or declared[-1:] != ["auto"] or tokens[last].text not in kernels:
        return None
    callee = ByteRange(tokens[first].start, tokens[end - 1].end)
    if end == last + 1:
        return InstanceAlias(callee, None)
    inside = {t.text for t in tokens[last + 1 : end]}
    if tokens[last + 1].text != "<" or tokens[end - 1].text != ">" or inside & {"?", "(", "["}:
        return None
    return InstanceAlias(callee, ByteRange(tokens[last + 1].end, tokens[end - 1].start))


def stand_for_several(parts: Sequence[str], files: Iterable[Lexed]) -> bool:
    """Whether one of these arguments is a use of a macro with a comma in its body."""
    names = {part.lstrip().partition("(")[0].strip() for part in parts}
    for lexed in files:
        for directive in lexed.directives:
            words = [t.text for t in lexed.tokens[directive.first + 2 : directive.last]]
            if directive.keyword != "define" or not words or words[0] not in names:
                continue
            body = words.index(")") if words[1:2] == ["("] and ")" in words else 0
            if "," in words[body + 1 :]:
                return True
    return False


# Macros that begin behind the kernel


def later_macros(program: Program, kernel: Kernel) -> tuple[str, ...]:
    """Macros in force behind the program whose names are in the kernel's file as something else,
    before the end of the kernel: parameters `B`, `T` of kernels above `#define B 8`. A rewrite
    is behind the program where it is compiled alone, and means what the author meant."""
    walk = _Walk({f.path: lex(byte_text(f.text)) for f in program.files}, kernel)
    for path in (program.main_path, *walk.files):
        walk.file(path)
    lexed = walk.files[kernel.file]
    used = {t.text for t in lexed.tokens if t.directive < 0 and t.start < kernel.end_byte}
    return tuple(sorted((walk.defined - walk.at_kernel) & used))


class _Walk:
    """Through the directives of a program in the order of its compilation."""

    def __init__(self, files: Mapping[str, Lexed], kernel: Kernel) -> None:
        self.files, self._kernel = files, kernel
        self.defined: set[str] = set()
        self.at_kernel: frozenset[str] = frozenset()
        self._seen: set[str] = set()

    def file(self, path: str) -> None:
        """One file, once."""
        if path in self._seen:
            return
        self._seen.add(path)
        lexed, is_before = self.files[path], path == self._kernel.file
        for directive in lexed.directives:
            if is_before and directive.start >= self._kernel.end_byte:
                self.at_kernel, is_before = frozenset(self.defined), False
            words = [t.text for t in lexed.tokens[directive.first + 2 : directive.last]]
            if lexed.dead(directive.start) or not words:
                continue
            if directive.keyword == "define":
                self.defined.add(words[0])
            elif directive.keyword == "undef":
                self.defined.discard(words[0])
            elif directive.keyword == "include":
                self._included(path, "".join(words).strip('<>"'))
        if is_before:
            self.at_kernel = frozenset(self.defined)

    def _included(self, path: str, name: str) -> None:
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        ends = [f for f in self.files if f == beside or f.endswith(f"/{name}")] or [
            f for f in self.files if posixpath.basename(f) == posixpath.basename(name)
        ]
        self.file(beside if beside in self.files else next(iter(ends), path))
