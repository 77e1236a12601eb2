"""What coders answer, read into a rewrite, or into the paragraph that asks for it again.

Pure: text in, value out, never an exception. An answer is one fenced block with kernels and their
directives, `TITLE:` and `WHY:` before it, or that code alone. Nothing is mended or guessed:
whatever is unclear or left out is `Unusable`, and says what to send. Whether a rewrite is any good
is for the gates; that it passes the first of them, `hygiene`, is seen to here, since asking again
costs less than an iteration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from cudaops.cuda.devices import Device
from cudaops.domain.program import Kernel
from cudaops.errors import PlanError
from cudaops.program.constants import integer_constants
from cudaops.program.directives import WORDS, read_directives, unknown_name
from cudaops.program.hygiene import check_source
from cudaops.program.hygiene_directives import is_library_header
from cudaops.program.hygiene_ptx import NO_PTX, AuthorsPtx
from cudaops.program.launch_expression import ROOTS
from cudaops.program.lexing import Lexed, byte_text, lex, line_of, plain_text
from cudaops.program.outline import outline
from cudaops.program.plans import parse_plan
from cudaops.program.serving import template_names
from cudaops.prompts.elisions import elision
from cudaops.prompts.text import FencedBlock, answer_text, fenced_blocks, one_line

MAX_ANSWER = 1_000_000
"""Characters of an answer that is looked at."""
MAX_SOURCE = 100_000
"""Characters of a rewrite: twelve times the longest of those below. Judgement."""
MAX_TITLE = 80
MAX_WHY = 400
"""Characters; more is no title and no line."""
_MAX_NESTING = 64
_MAX_LINES = 400
_MAX_TEMPLATES = 400
_MAX_RAW_STRINGS = 32
"""More of these than any kernel has: brackets within one another, preprocessor lines, template
headers, raw strings. Judgement; a recipe's output, the prompts' exemplars and the correct rewrites
of tests/exploits (39 texts) have at most 7, 17, 1 and 0. The readers of `program` follow a text's
nesting: these bound their time."""

UnusableKind = Literal[
    "no_code", "elided", "several_answers", "malformed", "forbidden_library", "host_code",
    "bad_plan", "too_long", "whole_program", "repeated",
]  # fmt: skip

_WHOLE = (
    "Send the whole device text in one fenced ```cuda block: its `// @launch` lines and every line "
    "of every kernel and device function, and nothing of the host."
)
_REASKS: dict[UnusableKind, str] = {
    "no_code": f"There was no rewrite in it: {{detail}}. {_WHOLE}",
    "elided": (
        "It leaves code out: {detail}. What is left out is compiled as nothing; no text is at hand "
        f"that could fill it in. {_WHOLE}"
    ),
    "several_answers": (
        "It could not be told which code was meant: {detail}. Choose the best and send that one "
        f"alone. {_WHOLE}"
    ),
    "malformed": f"It could not be read: {{detail}}. {_WHOLE}",
    "forbidden_library": (
        "It uses what it may not: {detail}. Write that part by hand, as device code of your own; a "
        f"step that all blocks must have finished is a second `// @launch`. {_WHOLE}"
    ),
    "host_code": (
        "It is not device code alone: {detail}. Launches are written as `// @launch` lines, "
        f"temporary memory as `// @scratch`; there is no other host code. {_WHOLE}"
    ),
    "bad_plan": (
        "A directive is wrong: {detail}. The form is `// @launch KERNEL grid=(x, y, z) "
        "block=(x, y, z) smem=BYTES args=(a, b)` in one line of the block with the kernels, with "
        "the author's parameters, your `@scratch` and `@tune` names and integers in its "
        f"expressions. {_WHOLE}"
    ),
    "too_long": f"It is too long: {{detail}}. {_WHOLE} A rewrite has a few hundred lines at most.",
    "whole_program": (
        f"It is a whole program with host code, and its launches could not be taken over. {_WHOLE}"
    ),
    "repeated": ("{detail}. It was judged already. Write something that differs in what it does."),
}

_TAG = re.compile(
    r"^[\W\d_]{0,16}(title|why)(?:[ *_`]{0,8}[:：–—-]{1,2}|[ *_`]{0,8}$)[\s*_`]{0,16}(\S.*)",
    re.IGNORECASE | re.MULTILINE,
)
_CODE = re.compile(r"\s*(?://|/\*|#|__|template\b|extern\b)")
"""How an answer begins that is code alone."""
_LAUNCH = re.compile(r"//[/!]?\s*@launch\b")
_MISPLACED = re.compile(
    rf"^(?![ \t]*//[/!]?[ \t]*@)[ \t/*#]*@(?:{'|'.join(WORDS)})\b"
    r"|^[ \t]*//[/!]?[ \t]*@launch\b(?!.*\bsmem[ \t]*=).*\n[ \t]*//[/!]?[ \t]*smem[ \t]*=(?!=)",
    re.MULTILINE,
)
"""A directive that nobody would read: as code or in `/* */`; or one whose `smem=` would be lost, as
it is in a line below. Other parts are missed where they are lost."""
_PAIRS = {")": "(", "]": "[", "}": "{"}

_FAMILIES = r"cublas|cudnn|cufft|cusolver|cusparse|cutensor|curand|nvrtc|nvjpeg|nccl|magma"
_FROM_THE_HOST = re.compile(rf"(?:{_FAMILIES})(?:[A-Z_]\w*)")
"""Libraries that are called by host code, which a rewrite has none of."""
_HEADERS_FROM_THE_HOST = re.compile(rf"(?:{_FAMILIES}|npp|thrust/|torch/|ATen/|c10/)")
_GRID_WIDE = frozenset({
    "this_grid", "grid_group", "this_multi_grid", "multi_grid_group", "cudaLaunchCooperativeKernel",
})  # fmt: skip
"""Synchronisation of a whole grid, which needs host code that launches it so."""
_NAMESPACES = {"cub": "CUB", "cutlass": "CUTLASS", "cute": "CuTe"}


class CoderAnswer(NamedTuple):
    """A rewrite that can be compiled."""

    source: str
    """Device text with directives; ASCII but for string literals and comments."""
    title: str
    """A few words; empty where the answer has none."""
    why: str
    """One line; empty where the answer has none."""


class Unusable(NamedTuple):
    """An answer that cannot be used."""

    kind: UnusableKind
    reask: str
    """One paragraph for the model: what was wrong, and what to send."""
    detail: str
    """One line for people and for the record."""
    program: str = ""
    """`whole_program`: its text."""


def unusable(kind: UnusableKind, detail: str, program: str = "") -> Unusable:
    """The value with the paragraph that belongs to its kind."""
    flat = " ".join(detail.split()).rstrip(".")[:600]
    return Unusable(kind, _REASKS[kind].format(detail=flat), flat, program)


def read_rewrite(
    text: str,
    *,
    kernel: Kernel,
    allow_libraries: bool = False,
    allow_ptx: bool = False,
    authors_ptx: AuthorsPtx = NO_PTX,
    device: Device | None = None,
) -> CoderAnswer | Unusable:
    """The rewrite of `kernel` that an answer holds, or why there is none that can be used.

    A `CoderAnswer`'s source has directives that can be read, with names that are known, and passes
    `hygiene.check_source`. `Unusable.program` is the text of a whole program, where that is what
    came: the sandbox's `strip_program` makes a rewrite of it.
    """
    if len(text) > MAX_ANSWER:
        return unusable("too_long", f"it has {len(text):,} characters")
    answer = answer_text(text)
    block = _chosen_block(answer)
    if isinstance(block, Unusable):
        return block
    problem = _unreadable(block) or _unplanned(block.text, kernel, allow_libraries)
    if problem is None and (refused := check_source(
        block.text, allow_libraries=allow_libraries, allow_ptx=allow_ptx, authors=authors_ptx,
        device=device,
    )):  # fmt: skip
        problem = unusable("host_code", refused[0])
    return problem or CoderAnswer(block.text, *title_and_why(answer))


def _chosen_block(answer: str) -> FencedBlock | Unusable:
    """The one block that holds a rewrite or a program."""
    found = fenced_blocks(answer)
    if not found and _CODE.match(answer):
        found = (FencedBlock("", answer, False),)
    texts = [b for b in found if not _is_diff(b) and b.text.lstrip()[:1] not in ("{", "[")]
    kernels = [b for b in texts if "__global__" in b.text]
    whole = [b for b in kernels if "@launch" in b.text] or kernels
    if len(whole) > 1:
        return unusable("several_answers", f"{len(whole)} blocks each hold a rewrite")
    if whole:
        return whole[0]
    if len(texts) < len(found) and any(map(_is_diff, found)):
        return unusable("elided", "it is a diff, which leaves out what stays")
    if any(re.search(r"<<<|\bint\s+main\b", b.text) for b in texts):
        return unusable("host_code", "it holds host code and no kernel")
    return unusable("no_code", "no fenced block in it holds a `__global__` function")


def _is_diff(block: FencedBlock) -> bool:
    """Whether a block holds changes to a text and not a text."""
    return block.info in ("diff", "patch") or any(
        line.startswith(("@@ -", "--- a/", "+++ b/")) for line in block.text.split("\n")
    )


def _unreadable(block: FencedBlock) -> Unusable | None:
    """What keeps a block from being read as a text that is all there."""
    source = block.text
    if len(source) > MAX_SOURCE:
        return unusable("too_long", f"it has {len(source):,} characters")
    if problem := _out_of_bounds(source):
        return unusable("malformed", problem)
    if left_out := elision(source):
        return unusable("elided", f"line {left_out.line}: `{left_out.text}`")
    lexed = lex(byte_text(source))
    if problem := _unbalanced(lexed):
        return unusable("malformed", f"{problem}; it seems cut off" if block.is_open else problem)
    for token in lexed.tokens:
        if token.kind not in ("string", "char") and not token.text.isascii():
            place = _line_at(lexed, token.start)
            return unusable("malformed", f"code outside of ASCII in {place}")
    return None


def _unplanned(source: str, kernel: Kernel, allow_libraries: bool) -> Unusable | None:
    """What prevents its plan from being read, a library's header, or a whole program."""
    facts = outline(byte_text(source))
    if library := min([*_libraries(facts.lexed, allow_libraries)], default=None):
        at, reason = library
        return unusable("forbidden_library", f"line {line_of(facts.lexed.text, at)}: {reason}")
    launched = any(_LAUNCH.match(c.text) for c in facts.lexed.comments)
    if not launched:
        if any(i.kind == "function" and i.name == "main" for i in facts.items):
            return unusable("whole_program", "it is a whole program", source)
        if any(t.text == "<<<" for t in facts.tokens):
            return unusable("host_code", "a host function launches its kernels")
    if misplaced := _MISPLACED.search(facts.lexed.text):
        place = _line_at(facts.lexed, misplaced.start())
        return unusable("bad_plan", f"it is not one `//` comment in one line, in {place}")
    if not launched:
        return unusable("bad_plan", "there is no `// @launch` line beside the kernels")
    try:
        _check_plan(source, kernel)
    except PlanError as error:
        lines = ["", *source.split("\n"), ""]
        written = lines[error.line].strip()[:300] if error.line < len(lines) else ""
        return unusable("bad_plan", f"{error.message}, in the line `{written}`")
    return None


def _check_plan(source: str, kernel: Kernel) -> None:
    """Raises PlanError with line and column where a directive cannot be read, and for a name that
    neither the kernel's author nor the rewrite has given."""
    plan = parse_plan(source)
    found = read_directives(source)
    tuned = {t.name: t.values[0] for t in plan.tune}
    known = {"smem", "nullptr", *tuned, *integer_constants(source, tuned)}
    known |= {p.name for p in kernel.parameters} | {s.name for s in plan.scratch}
    structures = {p.name for p in kernel.parameters if not p.is_pointer}
    known |= {*template_names(kernel)}
    known |= {f"{root}.{axis}" for root in ROOTS for axis in "xyz"}
    expressions = [*found.requires, *(s.size for s in found.scratch)]
    for launch in found.launches:
        expressions += [*launch.grid, *launch.block, launch.smem, *launch.args]
    for expression in expressions:
        for name, column in expression.name_columns().items():
            if name not in known and name.partition(".")[0] not in structures:
                raise PlanError(unknown_name(name, known), expression.line, column)


def _out_of_bounds(source: str) -> str:
    """What keeps a text from being read in bounded time; empty where nothing does."""
    if source.count('R"') > _MAX_RAW_STRINGS:
        return f"it has more than {_MAX_RAW_STRINGS} raw strings"
    lexed = lex(byte_text(source))
    if len(lexed.directives) > _MAX_LINES:
        return f"it has more than {_MAX_LINES} preprocessor lines"
    if sum(t.text in ("template", "<<<") for t in lexed.tokens) > _MAX_TEMPLATES:
        return f"it has more than {_MAX_TEMPLATES} template headers"
    depth = 0
    for token in lexed.tokens:
        depth = max(0, depth + (token.text in _PAIRS.values()) - (token.text in _PAIRS))
        if depth > _MAX_NESTING:
            return f"it is nested more than {_MAX_NESTING} deep"
    return ""


def _unbalanced(lexed: Lexed) -> str:
    """The first bracket without its other half; empty where each has one."""
    opened: list[str] = []
    for token in lexed.code():
        if token.text in _PAIRS.values():
            opened.append(token.text)
        elif token.text in _PAIRS and (not opened or opened.pop() != _PAIRS[token.text]):
            return f"a `{token.text}` closes nothing in {_line_at(lexed, token.start)}"
    return f"a `{opened[-1]}` is never closed" if opened else ""


def _libraries(lexed: Lexed, allowed: bool) -> Iterator[tuple[int, str]]:
    """Uses of libraries that the answer may not use, each with its offset and the reason.

    Libraries of host code and Thrust are never possible: see `is_library_header` for those that
    a user may allow.
    """
    for directive in lexed.directives:
        if directive.keyword != "include" or directive.last <= directive.first + 2:
            continue
        written = plain_text(lexed.text[lexed.tokens[directive.first + 2].start : directive.end])
        name = written.strip().strip('<>"')
        reason = ""
        if _HEADERS_FROM_THE_HOST.match(name):
            reason = "a library that host code calls"
        elif is_library_header(name):
            reason = "" if allowed else "a library, and the user allows none"
        elif name.partition("/")[0] in _NAMESPACES:
            reason = "not one of its device-side headers"
        if reason:
            yield directive.start, f"`#include <{name}>`: {reason}"
    ends = (*(token.text for token in lexed.tokens[1:]), "")
    for token, after in zip(lexed.tokens, ends, strict=False):
        name, reason = token.text, ""
        if _FROM_THE_HOST.fullmatch(name):
            reason = "a library that host code calls"
        elif name in _GRID_WIDE:
            reason = "it needs a cooperative launch, which is host code"
        elif after == "::" and name == "thrust":
            reason = "its algorithms are launched by host code"
        elif after == "::" and name in _NAMESPACES and not allowed:
            reason = f"{_NAMESPACES[name]} is not allowed"
        if reason:
            yield token.start, f"`{name}`: {reason}"


def title_and_why(answer: str) -> tuple[str, str]:
    """`TITLE:` and `WHY:`, in whatever markdown they come; empty where there is none."""
    found: dict[str, str] = {}
    for match in _TAG.finditer(answer):
        found.setdefault(match[1].lower(), match[2][:2000])
    return one_line(found.get("title", ""), MAX_TITLE), one_line(found.get("why", ""), MAX_WHY)


def _line_at(lexed: Lexed, at: int) -> str:
    """Number and text of the line."""
    text = lexed.text[lexed.text.rfind("\n", 0, at) + 1 :].split("\n", 1)[0]
    return f"line {line_of(lexed.text, at)}: `{plain_text(text).strip()[:200]}`"
