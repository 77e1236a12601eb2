"""What models answer, read into values: a rewrite, hypotheses, a lesson, or why not.

Pure: text in, value out, never an exception. An answer is taken where it can only mean one thing
(sentences around the code, a JSON object, a missing `//`), and what was mended is said in a notice.
Where it could mean two things, or leaves something out, it is `Unusable`, with the paragraph that
asks for it again. Whether a rewrite is any good is for the gates; that it passes the first of them,
`hygiene`, is seen to here, since asking again costs less than an iteration.
"""

from __future__ import annotations

from cudaops.domain.program import Kernel
from cudaops.errors import PlanError
from cudaops.program.hygiene import check_source
from cudaops.program.lexing import byte_text, lex
from cudaops.prompts.answer_bounds import MAX_SOURCE, unbalanced
from cudaops.prompts.answer_directives import named, plan_of
from cudaops.prompts.answer_elisions import elision
from cudaops.prompts.answer_host import without_host_code
from cudaops.prompts.answer_hypotheses import read_hypotheses, read_lesson
from cudaops.prompts.answer_kinds import CoderAnswer, Unusable, UnusableKind, unusable
from cudaops.prompts.answer_libraries import forbidden_library
from cudaops.prompts.answer_parts import Part, directives_alone, read_parts
from cudaops.prompts.answer_text import clean
from cudaops.prompts.answer_titles import title_and_why

__all__ = [
    "MAX_ANSWER",
    "MAX_SOURCE",
    "CoderAnswer",
    "Unusable",
    "UnusableKind",
    "read_hypotheses",
    "read_lesson",
    "read_rewrite",
]

MAX_ANSWER = 1_000_000
"""Characters of an answer that is looked at."""


def read_rewrite(
    text: str, *, kernel: Kernel, allow_libraries: bool = False
) -> CoderAnswer | Unusable:
    """The rewrite of `kernel` that an answer holds, or why there is none that can be used.

    A `CoderAnswer`'s source has directives that can be read, with names that are known, and passes
    `hygiene.check_source`. `Unusable.program` is the text of a whole program, where that is what
    came: the sandbox's `strip_program` makes a rewrite of it.
    """
    if len(text) > MAX_ANSWER:
        return unusable("too_long", f"it has {len(text):,} characters")
    answer = clean(text)
    found = read_parts(answer)
    if isinstance(found, Unusable):
        return found
    chosen = _chosen(found.parts, found.prose)
    if isinstance(chosen, Unusable):
        return chosen
    title, why = (found.title, found.why) if found.title else title_and_why(answer)
    return _checked(chosen, kernel, allow_libraries, title, why)


def _chosen(parts: tuple[Part, ...], prose: str) -> Part | Unusable:
    """The one part that holds a rewrite or a program."""
    whole = [p for p in parts if p.has_kernel and p.has_launch]
    if len(whole) == 1:
        return whole[0]
    if len(whole) > 1:
        return unusable("several_answers", f"{len(whole)} blocks each hold a whole rewrite")
    some = [p for p in parts if p.has_kernel]
    if len(some) > 1:
        return unusable("several_answers", f"{len(some)} blocks hold kernels")
    if not some:
        return _nothing(parts)
    lines = directives_alone(parts, prose)
    if lines and not (some[0].has_main or some[0].launches or some[0].problem):
        notice = "directives stood apart from the code; put above it"
        part = Part.of(lines + some[0].source, some[0].closed)
        return part._replace(notices=(*part.notices, notice))
    return some[0]


def _nothing(parts: tuple[Part, ...]) -> Unusable:
    """Why an answer without any kernel cannot be used."""
    if any(p.is_diff for p in parts):
        return unusable("elided", "it is a diff, which leaves out what stays")
    for part in (p for p in parts if not p.problem):
        if left_out := elision(part.source):
            return unusable("elided", f"line {left_out.line}: `{left_out.text}`")
    if any(p.has_main or p.launches for p in parts):
        return unusable("host_code", "it holds host code and no kernel")
    return unusable("no_code", "it holds no `__global__` function")


def _checked(
    part: Part, kernel: Kernel, allow_libraries: bool, title: str, why: str
) -> CoderAnswer | Unusable:
    source = part.source
    if part.problem:
        too_long = len(source) > MAX_SOURCE
        return unusable("too_long" if too_long else "malformed", part.problem)
    if left_out := elision(source):
        return unusable("elided", f"line {left_out.line}: `{left_out.text}`")
    if problem := unbalanced(source):
        return unusable("malformed", problem if part.closed else f"{problem}; it seems cut off")
    if library := forbidden_library(lex(byte_text(source)), allow_libraries):
        return unusable("forbidden_library", f"line {library[0]}: {library[1]}")
    if not part.has_launch and part.has_main:
        return unusable("whole_program", "it is a whole program", source)
    if not part.has_launch and part.launches:
        return unusable("host_code", "a host function launches its kernels")
    if not part.has_launch:
        return unusable("bad_plan", "there is no `// @launch` line")
    device = without_host_code(source, allow_libraries)
    try:
        plan_of(device.source, kernel)
    except PlanError as error:
        return unusable("bad_plan", named(device.source, error))
    if problems := check_source(device.source, allow_libraries=allow_libraries):
        return unusable("host_code", problems[0])
    return CoderAnswer(device.source, title, why, (*part.notices, *device.notices))
