"""Whether a text is device code and nothing else, as written and as preprocessed.

A candidate on the `cpu` executor shares a process with code that reports about it, so whatever
could run on its own, reach our shim or escape its namespace is refused. The executors isolate as
well; these gates make the reason readable. Both read by the same rules: `check_source` before any
compiler, `check_preprocessed` what the compiler's own preprocessor makes of it, where no macro and
no condition is left to hide behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cudaops.cuda.devices import Device
from cudaops.domain.base import Dim3
from cudaops.program.clusters import (
    WORD,
    cluster_problems,
    device_problem,
    kernel_clusters,
    tune_values,
)
from cudaops.program.hygiene_directives import (
    ALLOWED_INCLUDES,
    directives,
    pragmas,
)
from cudaops.program.hygiene_items import Problem, items, live_tokens, structure
from cudaops.program.hygiene_preprocessed import CandidateText
from cudaops.program.hygiene_ptx import NO_PTX, NONE, AuthorsPtx, assembly
from cudaops.program.hygiene_words import (
    questions,
    refused_words,
    spelling,
    suspicious_words,
    tuned_names,
)
from cudaops.program.lexing import byte_text, line_of, plain_text
from cudaops.program.outline import Outline, outline

__all__ = ["ALLOWED_INCLUDES", "Hygiene", "check_preprocessed", "check_source"]


class Hygiene(NamedTuple):
    """What is wrong with a preprocessed text, one line each with its line in the rewrite."""

    refused: tuple[str, ...]
    """What no rewrite may hold."""
    suspicious: tuple[str, ...]
    """What a rewrite hardly needs, and what a person should look at."""


def check_source(
    rewrite_source: str,
    *,
    allow_libraries: bool = False,
    allow_ptx: bool = False,
    authors: AuthorsPtx = NO_PTX,
    device: Device | None = None,
) -> tuple[str, ...]:
    """Problems of a device-only text, one line each with its line number. Empty: clean.

    `allow_libraries`: whether it may include headers of device-side libraries
    (`hygiene_directives.is_library_header`); what they define is not looked at here, and what they
    put into the candidate's own lines is as strictly as anything else in `check_preprocessed`.
    `allow_ptx`: whether it may hold inline PTX, of the instructions in `ptx_instructions`, and the
    statements of `authors` as they are spelled there.
    `device`: what it is for; None asks nothing of it.
    """
    facts = outline(byte_text(rewrite_source))
    asm = assembly(facts, authors) if allow_ptx else NONE
    found = [
        *refused_words(facts.lexed, tuned_names(rewrite_source), asm.read),
        *asm.problems,
        *questions(facts.lexed),
        *spelling(facts.lexed),
        *directives(facts.lexed, allow_libraries),
        *structure(facts.lexed),
        *items(facts),
        *cluster_problems(facts, _cluster_words(facts), tune_values(rewrite_source)),
    ]
    if device is not None and (unfit := device_problem(facts.lexed, device)):
        found.append(unfit)
    lines = {(line_of(facts.lexed.text, at), message) for at, message in found}
    return tuple(f"line {line}: {message}" for line, message in sorted(lines))


def check_preprocessed(
    candidate: CandidateText,
    author_words: frozenset[str] = frozenset(),
    *,
    allow_ptx: bool = False,
    authors: AuthorsPtx = NO_PTX,
    clusters: Mapping[str, Dim3] | None = None,
) -> Hygiene:
    """The same rules for a text without macros; inline PTX is there as written or, for a C++
    compiler, as what it means.

    `author_words` are the names in the author's own device code: what the baseline asks too (a
    clock, say) is nothing to be suspicious of. `clusters`: what the text as written says of its
    kernels, which every compiler must read of it too; None asks for none.
    """
    facts = outline(byte_text(candidate.text))
    asm = assembly(facts, authors) if allow_ptx else NONE
    refused = [
        *refused_words(facts.lexed, authors.words, asm.read, translated=allow_ptx),
        *asm.problems,
        *spelling(facts.lexed),
        *pragmas(facts.lexed),
        *structure(facts.lexed),
        *items(facts),
        *cluster_problems(facts, _cluster_words(facts), {}),
    ]
    if not refused:
        refused += _other_clusters(facts, clusters or {})
    suspicious = suspicious_words(facts.lexed, author_words)
    return Hygiene(_placed(candidate, refused), _placed(candidate, list(suspicious)))


def _cluster_words(facts: Outline) -> list[int]:
    return [t.start for t in live_tokens(facts.lexed) if t.text == WORD]


def _other_clusters(facts: Outline, written: Mapping[str, Dim3]) -> Iterator[Problem]:
    """Kernels whose cluster is another once the text is preprocessed."""
    found = kernel_clusters(plain_text(facts.lexed.text), {})
    for name in sorted({*found, *written}):
        if found.get(name) != written.get(name):
            says, has = (str(one.get(name, "none")) for one in (written, found))
            at = next((i.start for i in facts.items if i.is_kernel and i.name == name), 0)
            yield at, f"the cluster of `{name}` is {has} to this compiler and {says} as written"


def _placed(candidate: CandidateText, found: list[Problem]) -> tuple[str, ...]:
    raw = byte_text(candidate.text)
    lines = {(candidate.lines[line_of(raw, at) - 1], message) for at, message in found}
    return tuple(f"line {line}: {message}" for line, message in sorted(lines))
