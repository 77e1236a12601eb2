"""What is at namespace scope of a CUDA text: functions, variables, types, each with its extent.

A parser loses whole kernels where a body holds a macro loop; matching brackets does not, since a
body need not be understood to know where it ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from cudaops.program.execution_spaces import SPACES, Aliases, merged, space_aliases
from cudaops.program.lexing import Lexed, Token, closing, closing_angle, lex, opening_angle

ItemKind = Literal["function", "declaration", "variable", "type", "instantiation", "other"]

_NOT_A_NAME = frozenset({
    "__launch_bounds__", "__attribute__", "__align__", "alignas", "__declspec", "decltype",
    "noexcept", "__cluster_dims__", "__maxnreg__", "__local_maxnreg__", "__block_size__",
    "requires", "throw", "explicit", "if", "while", "for", "switch", "return", "sizeof", "defined",
    "static_assert", "asm",
})  # fmt: skip
_AFTER_PARAMETERS = frozenset({
    "{", ":", ";", "const", "noexcept", "override", "final", "volatile", "try", "->", "&",
    "__launch_bounds__", "__attribute__", "requires", "=", "",
})  # fmt: skip
_ACCESS = frozenset({"public", "private", "protected"})
_TYPE_WORDS = frozenset({"struct", "class", "union", "enum"})


class Declaration(NamedTuple):
    """One declaration at namespace scope. Indices are into `Outline.tokens`, offsets are bytes."""

    kind: ItemKind
    name: str
    """Declared name; qualified where a member is defined outside of its class."""
    namespaces: tuple[str, ...]
    """Enclosing named namespaces, outermost first."""
    spaces: frozenset[str]
    """`__global__`, `__device__`, ... of the declaration, macros that stand for them resolved."""
    specifiers: frozenset[str]
    """Every name before the parameters or the initialiser: `static`, `constexpr`, `inline`."""
    start: int
    end: int
    first: int
    last: int
    """Index after its last token."""
    template: tuple[int, int] | None
    """Token indices of the `<` and `>` of the innermost template header."""
    parameters: tuple[int, int] | None
    """Token indices of the parentheses of a function's parameters."""
    body: tuple[int, int] | None
    """Token indices of a function's braces."""
    in_linkage_block: bool = False
    """Inside of `extern "C" { }`."""
    is_global: bool = True
    """Inside of no braces at all."""

    @property
    def qualified_name(self) -> str:
        """Name with its namespaces."""
        return "::".join((*self.namespaces, self.name))

    @property
    def is_kernel(self) -> bool:
        """A `__global__` function definition."""
        return self.kind == "function" and "__global__" in self.spaces

    @property
    def is_made(self) -> bool:
        """A use of a macro that defines a kernel."""
        return self.kind == "other" and "__global__" in self.spaces

    @property
    def is_host_only(self) -> bool:
        """A function definition that no kernel can call."""
        device = self.spaces & {"__global__", "__device__"} or "constexpr" in self.specifiers
        return self.kind == "function" and not device


@dataclass(frozen=True, eq=False)
class Outline:
    """A file's items in order, those inside namespaces included."""

    lexed: Lexed
    tokens: tuple[Token, ...]
    """Code outside of directives and dead branches."""
    items: tuple[Declaration, ...]
    aliases: Mapping[str, frozenset[str]]
    """Macros that stand for execution spaces, with which."""

    def slice(self, start: int, end: int) -> str:
        """The bytes of a range."""
        return self.lexed.text[start:end]

    def item_at(self, offset: int) -> Declaration | None:
        """The item that holds a byte."""
        at = bisect_right(self._starts, offset) - 1
        item = self.items[at] if at >= 0 else None
        return item if item is not None and offset < item.end else None

    def is_in_device_code(self, offset: int) -> bool:
        """Whether a byte is in what a GPU runs."""
        item = self.item_at(offset)
        return item is not None and bool(item.spaces & {"__global__", "__device__"})

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(i.start for i in self.items)


Signature = tuple[str, int]
"""Last two names of a function, `Camera::height`, and how many parameters it has."""


Functions = frozenset[tuple[Signature, frozenset[str]]]
"""Functions with the execution spaces that they are declared for."""


class Spaces(NamedTuple):
    """What a program's files say of execution spaces, for all of them."""

    aliases: Aliases = frozenset()
    functions: Functions = frozenset()
    """Functions declared for the device: a definition that names no space has those of its
    declaration, wherever that is."""


def spaces_of(texts: Iterable[str]) -> Spaces:
    """Of the `byte_text`s of a program's files."""
    texts = list(texts)
    aliases: Aliases = frozenset()
    while True:  # a macro may stand for one of another file
        found = frozenset(a for text in texts for a in space_aliases(lex(text), aliases))
        if found == aliases:
            break
        aliases = found
    functions = (f for text in texts for f in _declared_for_device(text, aliases))
    return Spaces(aliases, frozenset(functions))


def outline(raw: str, spaces: Spaces = Spaces()) -> Outline:  # noqa: B008
    """The outline of a `byte_text`; `spaces` as of `spaces_of`, from other files."""
    read = _read(raw, spaces.aliases)
    declared = spaces.functions | _declared_for_device(raw, spaces.aliases)
    return _with_declared(read, declared) if declared else read


@lru_cache(maxsize=128)
def _read(raw: str, aliases: Aliases) -> Outline:
    lexed = lex(raw)
    tokens = tuple(lexed.code())
    words = merged(aliases | space_aliases(lexed, aliases))
    return Outline(lexed, tokens, tuple(_Reader(tokens, words).items(0, len(tokens), ())), words)


@lru_cache(maxsize=128)
def _with_declared(read: Outline, functions: Functions) -> Outline:
    declared = merged(functions)

    def declared_of(item: Declaration) -> Declaration:
        if item.kind != "function" or item.spaces:
            return item
        return item._replace(spaces=declared.get(_signature(read.tokens, item), item.spaces))

    return replace(read, items=tuple(map(declared_of, read.items)))


@lru_cache(maxsize=64)
def _declared_for_device(raw: str, aliases: Aliases) -> Functions:
    """What a text declares and defines elsewhere; without what it declares for the host too by
    another declaration with as many parameters."""
    facts = _read(raw, aliases)
    found: dict[Signature, frozenset[str]] = {}
    for owner, item in _with_members(facts, facts.items):
        if item.kind == "declaration":
            signature = _signature(facts.tokens, item, owner)
            found[signature] = found.get(signature, item.spaces) & item.spaces
    return frozenset((s, spaces) for s, spaces in found.items() if "__device__" in spaces)


def _with_members(
    facts: Outline, items: Iterable[Declaration], owner: str = ""
) -> Iterator[tuple[str, Declaration]]:
    """Items, and of types the contents of their braces with the type's name."""
    for item in items:
        yield owner, item
        if item.kind == "type":
            name = _type_name(facts.tokens, item)
            yield from _with_members(facts, _in_braces(facts, item), name)


def _type_name(tokens: Sequence[Token], item: Declaration) -> str:
    """`Camera` of `struct alignas(16) Camera final : Base {`; empty where it has none."""
    index = next(
        (i for i in range(item.first, item.last) if tokens[i].text in _TYPE_WORDS), item.last
    )
    while (index := index + 1) < item.last:
        if tokens[index].text in ("(", "["):
            index = closing(tokens, index)
        elif tokens[index].text in _NOT_A_NAME | {"class"}:
            continue
        else:
            return tokens[index].text if tokens[index].kind == "name" else ""
    return ""


def _signature(tokens: Sequence[Token], item: Declaration, owner: str = "") -> Signature:
    names = f"{owner}::{item.name}" if owner else item.qualified_name
    return "::".join(names.split("::")[-2:]), _parameter_count(tokens, item)


def _parameter_count(tokens: Sequence[Token], item: Declaration) -> int:
    if item.parameters is None:
        return 0
    index, end = item.parameters
    inside = [t.text for t in tokens[index + 1 : end]]
    if inside in ([], ["void"]):
        return 0
    count, index = 1, index + 1
    while index < end:
        match tokens[index].text:
            case "(" | "[" | "{":
                index = closing(tokens, index)
            case "<":
                index = closing_angle(tokens, index) or index
            case ",":
                count += 1
        index += 1
    return count


def members(facts: Outline, item: Declaration) -> Iterator[Declaration]:
    """What a type's braces declare, those of types in it included."""
    for one in _in_braces(facts, item):
        yield one
        yield from members(facts, one)


def _in_braces(facts: Outline, item: Declaration) -> Iterator[Declaration]:
    brace = next((i for i in range(item.first, item.last) if facts.tokens[i].text == "{"), None)
    if item.kind == "type" and brace is not None:
        end = closing(facts.tokens, brace)
        yield from _Reader(facts.tokens, facts.aliases).items(brace + 1, end, ())


def kernel_declarations(facts: Outline) -> tuple[Declaration, ...]:
    """Kernels that are declared there and defined elsewhere, or further below."""
    return tuple(i for i in facts.items if i.kind == "declaration" and "__global__" in i.spaces)


def declarators(tokens: Sequence[Token], item: Declaration) -> list[int]:
    """Indices of the names of all that a variable's item declares, `a` and `b` of `int a[2], *b;`;
    of a type's item those behind its braces."""
    first = _declared(tokens, item.first, item.last)
    if item.kind == "type":
        brace = next((i for i in range(item.first, item.last) if tokens[i].text == "{"), None)
        first = None if brace is None else _next_name(tokens, closing(tokens, brace) + 1, item.last)
    found = []
    while first is not None:
        found.append(first)
        index = first + 1
        while index < item.last and tokens[index].text not in (",", ";"):
            if tokens[index].text in ("(", "[", "{"):
                index = closing(tokens, index)
            index += 1
        is_more = index < item.last and tokens[index].text == ","
        first = _next_name(tokens, index + 1, item.last) if is_more else None
    return found


def constraint_end(tokens: Sequence[Token], at: int) -> int:
    """Index after the `requires` clause that begins at `at`; `at` itself where none does."""

    def text(index: int) -> str:
        return tokens[index].text if index < len(tokens) else ""

    joins: tuple[str, ...] = ("requires",)
    while text(at) in joins:
        joins = ("&&", "||")
        at += 1
        if text(at) == "requires":  # an expression: its parameters, what must be possible with them
            at += 1
            at = closing(tokens, at) + 1 if text(at) == "(" else at
            at = closing(tokens, at) + 1
        elif text(at) == "(":
            at = closing(tokens, at) + 1
        else:
            at = _after_name(tokens, at + (text(at) == "::"))
    return at


def _after_name(tokens: Sequence[Token], at: int) -> int:
    """Index after `std::is_same<T, U>::value`."""
    while at + 1 < len(tokens):
        at += 1
        if tokens[at].text == "<":
            at = (closing_angle(tokens, at) or at) + 1
        if at >= len(tokens) or tokens[at].text != "::":
            break
        at += 1
    return at


def _next_name(tokens: Sequence[Token], at: int, end: int) -> int | None:
    """Past `*`, `&` and qualifiers."""
    while at < end and tokens[at].text in ("*", "&", "const", "volatile", "__restrict__"):
        at += 1
    return at if at < end and tokens[at].kind == "name" else None


def _declared(tokens: Sequence[Token], at: int, end: int) -> int | None:
    """Index of the first name that a variable's declaration gives."""
    found = None
    while at < end and tokens[at].text not in ("=", "[", ",", "{", ":", ";"):
        if tokens[at].text == "<":
            at = closing_angle(tokens, at) or at
        elif tokens[at].kind == "name":
            found = at
        elif tokens[at].text == "(":
            at = closing(tokens, at)
        at += 1
    return found


class _Reader:
    def __init__(self, tokens: Sequence[Token], aliases: Mapping[str, frozenset[str]]) -> None:
        self.tokens, self.aliases = tokens, aliases

    def text(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def items(
        self, at: int, end: int, namespaces: tuple[str, ...], linkage: bool = False, deep: int = 0
    ) -> Iterator[Declaration]:
        while at < end:
            if self.text(at) in (";", "}"):
                at += 1
                continue
            if self.text(at) in _ACCESS and self.text(at + 1) == ":":
                at += 2
                continue
            block = self._block(at, end)
            if block is not None:
                names, opener = block
                close = closing(self.tokens, opener)
                inside = linkage or self.text(at) == "extern"
                yield from self.items(
                    opener + 1, min(close, end), namespaces + names, inside, deep + 1
                )
                at = close + 1
                continue
            item = self._made(at, namespaces) or self._item(at, end, namespaces)
            yield item._replace(in_linkage_block=linkage, is_global=deep == 0)
            at = max(item.last, at + 1)

    def _made(self, at: int, namespaces: tuple[str, ...]) -> Declaration | None:
        """A use of a macro that defines a kernel; no semicolon need follow."""
        name = self.text(at)
        spaces = self.aliases.get(f"{name}(") if self.text(at + 1) == "(" else None
        if spaces is None:
            return None
        last = closing(self.tokens, at + 1) + 1
        return Declaration(
            "other", "", namespaces, spaces, frozenset({name}), self.tokens[at].start,
            self.tokens[min(last, len(self.tokens)) - 1].end, at, last, None, None, None,
        )  # fmt: skip

    def _block(self, at: int, end: int) -> tuple[tuple[str, ...], int] | None:
        """Names and `{` of a namespace or of `extern "C" {`."""
        if self.text(at) == "extern" and self.text(at + 2) == "{":
            return (), at + 2
        if self.text(at) == "inline" and self.text(at + 1) == "namespace":
            at += 1
        if self.text(at) != "namespace":
            return None
        names: list[str] = []
        for index in range(at + 1, end):
            token = self.tokens[index]
            if token.text == "{":
                return tuple(names), index
            if token.text in ("=", ";"):
                return None
            if token.kind == "name" and token.text not in ("inline", "__attribute__"):
                names.append(token.text)
        return None

    def _item(self, first: int, end: int, namespaces: tuple[str, ...]) -> Declaration:
        at, template = self._template(first)
        instantiation = (
            template is None
            and self.text(first) in ("template", "extern")
            and ("template" in (self.text(first), self.text(first + 1)))
        )
        last, body, head_end = self._extent(at, end)
        parameters = self._parameters(at, head_end)
        kind, name = self._kind(at, head_end, parameters, body)
        words = [t.text for t in self.tokens[first : parameters[0] if parameters else head_end]]
        if parameters is not None:
            words += [t.text for t in self.tokens[parameters[1] + 1 : head_end]]
        spaces = frozenset(s for w in words for s in self.aliases.get(w, {w} & SPACES))
        return Declaration(
            "instantiation" if instantiation else kind, name, namespaces, spaces,
            frozenset(words), self.tokens[first].start, self.tokens[last - 1].end, first, last,
            template, parameters, body if kind == "function" else None,
        )  # fmt: skip

    def _template(self, at: int) -> tuple[int, tuple[int, int] | None]:
        """Index after the template headers with their conditions, and the innermost header."""
        header = None
        while self.text(at) == "template" and self.text(at + 1) == "<":
            close = closing_angle(self.tokens, at + 1)
            if close is None:
                break
            header, at = (at + 1, close), constraint_end(self.tokens, close + 1)
        return at, header

    def _extent(self, at: int, end: int) -> tuple[int, tuple[int, int] | None, int]:
        """Index after the item, the braces of a function's body, index after its head."""
        head_end: int | None = None
        seen_call = seen_equal = seen_colon = False
        index = at
        while index < end:
            if head_end is None:  # a condition may hold braces
                index = constraint_end(self.tokens, index)
            text = self.text(index)
            if text == ";":
                return index + 1, None, index if head_end is None else head_end
            if text == "}":
                return max(index, at + 1), None, index if head_end is None else head_end
            if text in ("(", "["):
                seen_call |= text == "(" and self.text(index - 1) not in _NOT_A_NAME
                index = closing(self.tokens, index)
            elif text == "{":
                close = closing(self.tokens, index)
                member = seen_colon and (self.text(index - 1) not in (")", "}"))
                if not member and head_end is None:
                    head_end = index
                    if seen_call and not seen_equal:
                        close = self._after_handlers(close)
                        return close + 1, (index, close), head_end
                index = close
            else:
                seen_equal |= (
                    text == "=" and head_end is None and self.text(index - 1) != "operator"
                )
                seen_colon |= text == ":" and seen_call
            index += 1
        return index, None, index if head_end is None else head_end

    def _after_handlers(self, close: int) -> int:
        """The last brace of a body that is a `try` block, with its handlers; the same else."""
        while self.text(close + 1) == "catch":
            brace = closing(self.tokens, close + 2) + 1
            close = closing(self.tokens, brace)
        return close

    def _parameters(self, at: int, head_end: int) -> tuple[int, int] | None:
        groups: list[tuple[int, int]] = []
        index = at
        while index < head_end:
            text = self.text(index)
            if text == "=" and self.text(index - 1) != "operator":
                break
            if text == "<":
                index = closing_angle(self.tokens, index) or index
            elif text == "[":
                index = closing(self.tokens, index)
            elif text == "(":
                close = closing(self.tokens, index)
                before = self.tokens[index - 1]
                named = before.kind == "name" and before.text not in _NOT_A_NAME
                operator = "operator" in (
                    self.text(index - 2),
                    self.text(index - 1),
                    self.text(index - 3),
                )
                if index > at and (named or operator or before.text == ">"):
                    groups.append((index, close))
                index = close
            index += 1
        for group in groups:
            after = self.text(group[1] + 1) if group[1] + 1 < head_end else ""
            if after in _AFTER_PARAMETERS:
                return group
        return groups[-1] if groups else None

    def _kind(
        self,
        at: int,
        head_end: int,
        parameters: tuple[int, int] | None,
        body: tuple[int, int] | None,
    ) -> tuple[ItemKind, str]:
        words = [t.text for t in self.tokens[at:head_end]]
        if words and words[0] in ("using", "typedef", "static_assert", "friend", "asm"):
            return "other", ""
        if parameters is not None and not (
            _TYPE_WORDS & set(words) and self._is_type(at, parameters[0])
        ):
            name = self._name_before(parameters[0])
            # `dim3 grid(4, 4);` looks like a declaration; telling them apart needs types.
            return ("function" if body is not None else "declaration"), name
        if _TYPE_WORDS & set(words) and not self._is_of_named_type(at, head_end):
            return "type", ""
        named = _declared(self.tokens, at, head_end)
        return "variable", "" if named is None else self.text(named)

    def _is_of_named_type(self, at: int, head_end: int) -> bool:
        """`struct options opt`, a variable; not `struct options`, with or without what is in it."""
        index = next(i for i in range(at, head_end) if self.text(i) in _TYPE_WORDS) + 1
        while self.text(index) in _NOT_A_NAME or self.text(index) in ("class", "struct", "["):
            opened = self.text(index) == "[" or self.text(index + 1) == "("
            if opened:
                index = closing(self.tokens, index + (self.text(index) != "["))
            index += 1
        while index < head_end and self.tokens[index].kind == "name":
            index += 1
            if self.text(index) == "<":
                index = (closing_angle(self.tokens, index) or index) + 1
            if self.text(index) != "::":
                break
            index += 1
        if index >= head_end or self.text(index) in ("final", ":", "{"):
            return False
        starts = self.text(index) in ("*", "&") or self.tokens[index].kind == "name"
        is_braced = self.text(head_end) == "{" and "=" not in map(self.text, range(at, head_end))
        in_memory = {"__constant__", "__device__", "__managed__"}
        return starts and (not is_braced or bool(in_memory & set(map(self.text, range(at, index)))))

    def _is_type(self, at: int, stop: int) -> bool:
        """`struct __align__(16) X {`: the parentheses belong to an attribute."""
        return self.text(at) in _TYPE_WORDS and self.text(stop - 1) in _NOT_A_NAME

    def _name_before(self, paren: int) -> str:
        """`reduce`, `Buffer::~Buffer`, `Stream::copy` of `Stream<T>::copy`, `Sum::operator()`."""
        index = paren - 1
        found = next(
            (i for i in range(index, max(index - 4, 0), -1) if self.text(i) == "operator"), None
        )
        if found is not None:
            parts = ["".join(t.text for t in self.tokens[found:paren])]
            index = found
        else:
            index = self._before_angles(index)
            parts = [self.text(index)]
            if self.text(index - 1) == "~":
                index -= 1
                parts = [f"~{parts[0]}"]
        while self.text(index - 1) == "::":
            owner = self._before_angles(index - 2)
            if owner < 0 or self.tokens[owner].kind != "name":
                break
            parts.insert(0, self.text(owner))
            index = owner
        return "::".join(parts)

    def _before_angles(self, index: int) -> int:
        """The name that template arguments which end here belong to; the index itself else."""
        if self.text(index) != ">":
            return index
        less = opening_angle(self.tokens, index)
        return index if less is None else less - 1
