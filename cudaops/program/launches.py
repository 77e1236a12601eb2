"""Launch expressions `kernel<<<grid, block, smem, stream>>>(args)` in a file, macros included, and
calls of `cudaLaunchKernel` and its like, whose kernel is told where the program runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cudaops.program.lexing import (
    Directive,
    Edit,
    Lexed,
    Token,
    apply_edits,
    byte_text,
    closing,
    lex,
    opening,
    opening_angle,
    plain_text,
    split_commas,
)

_SPACED = re.compile(r"<<\s+<")
PACKED = {
    "cudaLaunchKernel": "launch_packed",
    "cudaLaunchCooperativeKernel": "launch_packed_together",
    "cudaLaunchKernelEx": "launch_configured",
    "cudaLaunchKernelExC": "launch_configured_packed",
    "cudaGraphAddKernelNode": "add_kernel_node",
    "cudaGraphAddNode": "add_node",
}
"""Functions that take a kernel by its address, most of them its arguments as pointers, and what
stands for each in a program that is recorded."""
CONFIGURED = frozenset({"cudaLaunchKernelEx", "cudaLaunchKernelExC"})
"""Those that are given a `cudaLaunchConfig_t`, which says the geometry and more."""
GRAPH_NODES = frozenset({"cudaGraphAddKernelNode", "cudaGraphAddNode"})
"""Those that make a graph's node, whose kernel runs where the graph is launched."""
GRAPH_CHANGES = frozenset({"cudaGraphKernelNodeSetParams", "cudaGraphExecKernelNodeSetParams"})
"""Those that may put another kernel into such a node, by its address."""
TOGETHER = "cudaLaunchCooperativeKernel"
"""The one whose blocks may wait for each other."""
_KEYWORDS = frozenset({"return", "else", "do", "case", "co_await", "co_return", "throw", "new"})


class ByteRange(NamedTuple):
    """A range of bytes."""

    start: int
    end: int


class LaunchCall(NamedTuple):
    """One launch expression; every range is in bytes."""

    start: int
    end: int
    name: str
    """Last name of the callee: the kernel, or whatever stands for it; `a##b` where that is pasted.
    """
    callee: ByteRange
    template: ByteRange | None
    """Between the callee's last `<` and `>`."""
    geometry: tuple[ByteRange, ...]
    """Grid, block and, where written, shared bytes and stream."""
    arguments: tuple[ByteRange, ...]
    open_paren: int
    """Offset of the `(` of the arguments."""
    directive: Directive | None
    """The `#define` it is in."""
    macro_parameter: bool
    """The callee is a parameter of that macro."""
    plain: bool
    """The callee is a name, perhaps qualified and with template arguments."""
    packed: bool = False
    """A call of one of `PACKED`: what it launches does not show. Only of `cudaLaunchKernelEx` there
    are arguments, the configuration and the kernel first."""
    between: ByteRange | None = None
    """What is between `<<<` and `>>>` where directives choose among geometries there, so that
    `geometry` tells nothing."""


def find_launches(lexed: Lexed) -> Iterator[LaunchCall]:
    """Every launch of a text, in order; those in branches that are never compiled left out."""
    end = 0
    for index, token in enumerate(lexed.tokens):
        if token.text == "<<<" and token.start >= end and not lexed.dead(token.start):
            launch = _launch(lexed, index)
            if launch is not None and launch.start >= end:
                end = launch.end
                yield launch
        elif token.text in PACKED and token.start >= end and not lexed.dead(token.start):
            packed = _packed(lexed, index)
            if packed is not None:
                end = packed.end
                yield packed


def _packed(lexed: Lexed, at: int) -> LaunchCall | None:
    """The call whose name is there; None for a declaration."""
    tokens = lexed.tokens
    if tokens[at].directive >= 0 or at + 1 >= len(tokens) or tokens[at + 1].text != "(":
        return None
    if at and (_is_name(tokens[at - 1]) or tokens[at - 1].text in (".", "->")):
        return None  # `cudaError_t cudaLaunchKernel(..`, or somebody's member
    end = closing(tokens, at + 1)
    parts = _parts(tokens[at + 2 : end])
    hidden = tokens[at].text in CONFIGURED | GRAPH_NODES
    shows = not hidden and len(parts) >= 4
    return LaunchCall(
        start=tokens[at].start,
        end=tokens[end].end,
        name=tokens[at].text,
        callee=ByteRange(tokens[at].start, tokens[at].end),
        template=None,
        geometry=(parts[1], parts[2], *parts[4:6]) if shows else (),
        arguments=parts if tokens[at].text == "cudaLaunchKernelEx" else (),
        open_paren=tokens[at + 1].start,
        directive=None,
        macro_parameter=False,
        plain=False,
        packed=True,
    )


def _launch(lexed: Lexed, opener: int) -> LaunchCall | None:
    # Tokens of a directive end with it, those outside skip directives in between.
    place = lexed.tokens[opener].directive
    near = range(max(0, opener - 200), min(len(lexed.tokens), opener + 1500))
    indices = [i for i in near if lexed.tokens[i].directive == place]
    tokens = [lexed.tokens[i] for i in indices]
    at = indices.index(opener)
    first = _callee_start(tokens, at)
    first = first if first is None else _pasted_start(tokens, first)
    close = _closing_launch(tokens, at)
    if first is None or close is None or close + 1 >= len(tokens) or tokens[close + 1].text != "(":
        return None
    if at > 0 and tokens[at - 1].text == "operator":
        return None
    paren = close + 1
    end = closing(tokens, paren)
    return _made(lexed, tokens, (first, at, close, paren, end), place)


def _made(
    lexed: Lexed, tokens: Sequence[Token], marks: tuple[int, int, int, int, int], place: int
) -> LaunchCall:
    first, at, close, paren, end = marks
    callee = tokens[first:at]
    name_at, template = _name_and_template(tokens, at)
    directive = lexed.directives[place] if place >= 0 else None
    inside = ByteRange(tokens[at].end, tokens[close - 2].start)
    chosen = place < 0 and any(inside.start <= d.start < inside.end for d in lexed.directives)
    return LaunchCall(
        start=tokens[first].start,
        end=tokens[end].end,
        name="".join(t.text for t in tokens[_pasted_start(tokens, name_at) : name_at + 1]),
        callee=ByteRange(callee[0].start, callee[-1].end),
        template=template,
        geometry=_parts(tokens[at + 1 : close - 2]),
        arguments=_parts(tokens[paren + 1 : end]),
        open_paren=tokens[paren].start,
        directive=directive,
        macro_parameter=directive is not None and len(callee) == 1
        and callee[0].text in macro_parameters(lexed, directive),
        plain=all(t.kind == "name" or t.text == "::" for t in tokens[first : name_at + 1]),
        between=inside if chosen else None,
    )  # fmt: skip


def _pasted_start(tokens: Sequence[Token], at: int) -> int:
    """Index of the first of the tokens that `##` pastes to one, the last of which is there."""
    while at >= 3 and [t.text for t in tokens[at - 2 : at]] == ["#", "#"]:
        at -= 3
    return at


def macro_parameters(lexed: Lexed, directive: Directive) -> tuple[str, ...]:
    """Parameter names of a function-like macro; empty for any other directive."""
    tokens = lexed.tokens[directive.first : directive.last]
    if len(tokens) < 4 or tokens[1].text != "define" or tokens[3].text != "(":
        return ()
    if tokens[3].start != tokens[2].end:
        return ()
    return tuple(t.text for t in tokens[4 : closing(tokens, 3)] if t.kind == "name")


def _parts(tokens: Sequence[Token]) -> tuple[ByteRange, ...]:
    return tuple(ByteRange(p[0].start, p[-1].end) for p in split_commas(tokens, angles=True) if p)


def _name_and_template(tokens: Sequence[Token], at: int) -> tuple[int, ByteRange | None]:
    last = at - 1
    if tokens[last].text == ">":
        less = opening_angle(tokens, last)
        if less is not None and less > 0:
            return less - 1, ByteRange(tokens[less].end, tokens[last].start)
    return last, None


def _callee_start(tokens: Sequence[Token], at: int) -> int | None:
    """Index of the first token of the postfix expression that ends before `at`."""
    index = at - 1
    while index >= 0:
        text = tokens[index].text
        if text == ">":
            less = opening_angle(tokens, index)
            if less is None:
                return None
            index = less - 1
            continue
        if text in (")", "]"):
            index = opening(tokens, index)
            before = tokens[index - 1] if index else None
            if before is not None and (before.text in ("]", ")", ">") or _is_name(before)):
                index -= 1
                continue
            return index
        if not _is_name(tokens[index]):
            return None
        if index == 0:
            return 0
        if tokens[index - 1].text == "::":
            qualified = index >= 2 and (
                _is_name(tokens[index - 2]) or tokens[index - 2].text == ">"
            )
            if not qualified:
                return index - 1
            index -= 2
        elif tokens[index - 1].text in (".", "->"):
            index -= 2
        else:
            return index
    return None


def _is_name(token: Token) -> bool:
    return token.kind == "name" and token.text not in _KEYWORDS


def _closing_launch(tokens: Sequence[Token], at: int) -> int | None:
    """Index of the last `>` of the `>>>` that closes the launch opened at `at`."""
    index = at + 1
    while index + 2 < len(tokens):
        text = tokens[index].text
        if text in ("(", "[", "{"):
            index = closing(tokens, index)
        elif text in (";", "<<<", "}"):
            return None
        elif _is_triple(tokens, index, spaced=_is_spaced(tokens[at])):
            while index + 3 < len(tokens) and _is_triple(tokens, index + 1):
                index += 1
            return index + 2
        index += 1
    return None


def _is_spaced(opener: Token) -> bool:
    """Whether it is written `<< <`."""
    return opener.end - opener.start > len(opener.text)


def _is_triple(tokens: Sequence[Token], index: int, *, spaced: bool = False) -> bool:
    """`>>>`; `spaced`: with white space in it, where arguments follow."""
    three = tokens[index : index + 3]
    if len(three) < 3 or any(t.text != ">" for t in three):
        return False
    if spaced and [t.text for t in tokens[index + 3 : index + 4]] == ["("]:
        return True
    return three[0].end == three[1].start and three[1].end == three[2].start


def joined(text: str) -> str:
    """The text with `<<<` and `>>>` of every launch in one piece, and of its length: nvcc takes
    `<< <`, and no other compiler does."""
    if _SPACED.search(text) is None:
        return text
    lexed = lex(byte_text(text))
    edits = []
    for index, token in enumerate(lexed.tokens):
        close = _closing_launch(lexed.tokens, index) if token.text == "<<<" else None
        if close is None or not _is_spaced(token):
            continue
        edits.append(Edit(token.start, token.end, "<<<".ljust(token.end - token.start)))
        first, last = lexed.tokens[close - 2].start, lexed.tokens[close].end
        edits.append(Edit(first, last, ">>>".ljust(last - first)))
    return plain_text(apply_edits(lexed.text, edits)) if edits else text


def launches_in_a_loop(text: str) -> bool:
    """Whether some `<<<` stands in a loop, as far as brackets tell: macros are not looked into."""
    bodies: list[bool] = []
    depth, head, begins = 0, -1, False
    for token in lex(byte_text(text)).tokens:
        word = token.text
        if word in ("for", "while"):
            head = depth
        elif word == "(":
            depth += 1
        elif word == ")":
            depth -= 1
            if depth == head:
                head, begins = -1, True
        elif word == "do":
            begins = True
        elif word == "{":
            bodies.append(begins)
            begins = False
        elif word == "}":
            bodies = bodies[:-1]
        elif word == ";" and head < 0:
            begins = False
        elif re.fullmatch(r"<<\s*<", word) and (begins or any(bodies)):
            return True
    return False
