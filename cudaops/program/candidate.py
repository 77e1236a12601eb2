"""A rewrite's text as it is compiled: its own namespace, its own macros, its own line numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cudaops.domain.execution import Unit
from cudaops.domain.program import SourceFile
from cudaops.domain.rewrite import Rewrite
from cudaops.program.dialect import (
    dialect_edits,
    macro_names,
    shared_global_edits,
    shared_globals,
    without_shared_globals,
)
from cudaops.program.lexing import Edit, Lexed, apply_edits, byte_text, disjoint, lex, plain_text
from cudaops.program.macros import later_macros
from cudaops.program.outline import outline

NAMESPACE = "cudaops_candidate"
"""Namespace of a candidate's kernels."""
FILE = "candidate.cu"
"""Name under which compilers report a candidate's lines."""

Dialect = Literal["gcc", "cuda"]
"""Who compiles the result. `gcc`: a C++ compiler, to whom dynamic shared memory and unrolling are
spelled its way. `cuda`: nvcc or NVRTC, who read them as the author wrote them."""


def unit_candidate(unit: Unit, *, dialect: Dialect = "gcc") -> str:
    """The rewrite of a unit that has one, as it is behind the author's program."""
    assert unit.rewrite is not None
    later = later_macros(unit.program, unit.program.kernel(unit.kernel))
    return candidate_text(unit.rewrite, dialect=dialect, beside=unit.program.files, later=later)


def candidate_text(
    rewrite: Rewrite,
    *,
    dialect: Dialect = "gcc",
    beside: Sequence[SourceFile] = (),
    later: Sequence[str] = (),
) -> str:
    """A rewrite as an executor compiles it, in `namespace cudaops_candidate`.

    Includes are above it. Tune names and every macro that the text defines are in force inside
    only; names that meant something outside mean the same after it. `#line` makes compiler
    messages name `candidate.cu` and the rewrite's own lines. `beside`: the author's files, whose
    dynamic shared memory outside of functions the rewrite may name, and g++ has inside of them.
    `later`: macros that are none where the author's kernel stands (`macros.later_macros`).
    """
    lexed = lex(byte_text(rewrite.source))
    edits = _gcc_edits(rewrite, beside) if dialect == "gcc" else []
    edits += body_edits(lexed, frozenset(rewrite.values()))
    body = plain_text(apply_edits(lexed.text, disjoint(edits)))
    return (
        "".join(f"{i}\n" for i in hoisted_includes(lexed))
        + "".join(f"{line}\n" for line in macro_prologue(rewrite, later))
        + f'namespace {NAMESPACE} {{\n#line 1 "{FILE}"\n{body}\n}}  // namespace {NAMESPACE}\n'
        + "".join(f"{line}\n" for line in macro_epilogue(rewrite, later))
    )


def _gcc_edits(rewrite: Rewrite, beside: Sequence[SourceFile]) -> list[Edit]:
    facts = outline(byte_text(rewrite.source))
    holes = without_shared_globals(facts)
    edits = dialect_edits(facts.lexed, macro_names(facts.lexed))
    theirs = (outline(byte_text(file.text)) for file in beside)
    known = [shared for one in (*theirs, facts) for shared in shared_globals(one)]
    edits += shared_global_edits(facts, known)  # of two with one name the rewrite's own is meant
    return [*holes, *(e for e in edits if not any(h.start <= e.start < h.end for h in holes))]


def hoisted_includes(lexed: Lexed) -> tuple[str, ...]:
    """The text's `#include` lines, each once."""
    return tuple(
        dict.fromkeys(
            "#include " + plain_text(lexed.text[lexed.tokens[d.first + 1].end : d.end]).strip()
            for d in lexed.directives
            if d.keyword == "include" and not lexed.dead(d.start)
        )
    )


def body_edits(lexed: Lexed, tuned: frozenset[str]) -> list[Edit]:
    """Edits that make a text fit into a namespace: no includes, no default for a tune name,
    no C linkage (which would make it the same function as the baseline)."""
    edits = []
    for directive in lexed.directives:
        words = lexed.tokens[directive.first : directive.last]
        names = [t.text for t in words[1:3]]
        once = names == ["pragma", "once"]
        if (
            directive.keyword == "include"
            or once
            or (names[:1] == ["define"] and names[-1] in tuned)
        ):
            lines = lexed.text.count("\n", directive.start, directive.end)
            edits.append(Edit(directive.start, directive.end, "\n" * lines))
    for index, token in enumerate(lexed.tokens[:-2]):
        linkage = token.text == "extern" and lexed.tokens[index + 1].kind == "string"
        if linkage and lexed.tokens[index + 2].text != "{":
            edits.append(Edit(token.start, lexed.tokens[index + 1].end, ""))
    return edits


def own_macros(rewrite: Rewrite) -> tuple[str, ...]:
    """Tune names and the names of macros that the text defines, sorted."""
    return tuple(sorted({*rewrite.values(), *macro_names(lex(byte_text(rewrite.source)))}))


def macro_prologue(rewrite: Rewrite, later: Sequence[str] = ()) -> list[str]:
    """Save every macro the text sets and those of `later`, and give the tune names their values."""
    lines = []
    for name in sorted({*own_macros(rewrite), *later}):
        lines += [f'#pragma push_macro("{name}")', f"#undef {name}"]
    return lines + [f"#define {name} {value}" for name, value in sorted(rewrite.values().items())]


def macro_epilogue(rewrite: Rewrite, later: Sequence[str] = ()) -> list[str]:
    """Bring back what `macro_prologue` saved."""
    names = sorted({*own_macros(rewrite), *later})
    return [f'#pragma pop_macro("{name}")' for name in names]
