"""What a kernel is when names, comments and layout are set aside.

For two questions: is this the kernel of an earlier run (`structure_key`), and was this rewrite
tried already under other names (`near_duplicate`)? Both read the tokens of `program.structure`. A
changed literal, operator or index makes another kernel, and so does another set of tune values, but
not another order of them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from cudaops.domain.program import Kernel, Program
from cudaops.errors import PlanError
from cudaops.program.directives import Directives, Text, read_directives
from cudaops.program.expressions import Expression
from cudaops.program.instances import plain_name
from cudaops.program.lexing import byte_text, lex
from cudaops.program.outline import outline, spaces_of
from cudaops.program.structure import Naming, conditions, definitions

SHINGLE = 5
"""Tokens in a row that are compared as one: long enough to tell `a[i][k]` from `a[k][i]`."""
DUPLICATE = 1.0
"""Least similarity at which a rewrite counts as tried already. Measured on 2026-11-20 over the
correct rewrites of tests/exploits and a recipe's (33 texts of 95 to 1,798 tokens,
tests/program/test_fingerprint.py): copies with other names, comments, layout and order of tune
values have 1 exactly. One changed literal, operator or index (1,228 of them) leaves at most 0.90 in
the shortest and 0.994 in the longest; two correct rewrites of one kernel are at most 0.84 alike. So
no smaller value would do for texts of every length."""


class Duplicate(NamedTuple):
    """An earlier rewrite that a new one repeats."""

    label: str
    """The earlier one's, as it was given."""
    similarity: float


def structure_key(program: Program, kernel: Kernel) -> str:
    """16 hex digits over a kernel's tokens and those of all that it uses, names and layout aside.

    It uses device functions, macros, constants and types of the program, directly or through one
    another. Neither file names nor host code count, nor which file a definition is in.
    """
    texts = [byte_text(f.text) for f in program.files]
    spaces = spaces_of(texts)
    known = definitions([outline(text, spaces) for text in texts])
    naming = Naming(known)
    naming.reach(kernel.plain_name)
    return hashlib.sha256("\n".join(naming.tokens()).encode()).hexdigest()[:16]


@lru_cache(maxsize=256)
def shape(source: str) -> tuple[str, ...]:
    """Tokens of a rewrite's plan and kernels, names and layout aside.

    Kernels in the order of their launches, each followed by what it uses. A text without a plan
    that can be read has the shape of all the kernels that it defines. Never fails.
    """
    facts = outline(byte_text(source))
    naming = Naming(definitions([facts]))
    try:
        plan: Directives | None = read_directives(source)
    except PlanError:
        plan = None
    launches = [] if plan is None else _launches(plan, naming)
    if not launches:
        for item in facts.items:
            if item.is_kernel:
                naming.reach(item.name)
    code = naming.tokens()
    rest = [] if plan is None else _rest(plan, naming)
    return (*launches, *code, *rest, *conditions(facts))


def similarity(a: Sequence[str], b: Sequence[str]) -> float:
    """How much of two shapes is the same: 0 nothing, 1 everything.

    Shared runs of SHINGLE tokens over all runs, each counted as often as it occurs.
    """
    ours, theirs = _shingles(a), _shingles(b)
    union = (ours | theirs).total()
    return (ours & theirs).total() / union if union else 1.0


def near_duplicate(source: str, earlier: Sequence[tuple[str, str]]) -> Duplicate | None:
    """The earlier rewrite that is most similar to this one, from DUPLICATE on.

    Args:
        earlier: Label and source of each.
    """
    mine = shape(source)
    best: Duplicate | None = None
    for label, text in earlier:
        alike = similarity(mine, shape(text))
        if alike >= DUPLICATE and (best is None or alike > best.similarity):
            best = Duplicate(label, alike)
    return best


def _shingles(tokens: Sequence[str]) -> Counter[tuple[str, ...]]:
    # Padded, so that every token begins one run: no single change goes unseen.
    padded = [*tokens, *[""] * (SHINGLE - 1)]
    return Counter(tuple(padded[i : i + SHINGLE]) for i in range(len(tokens)))


def _launches(plan: Directives, naming: Naming) -> list[str]:
    """Tokens of the launches. Tune, scratch and kernel names are the rewrite's own and numbered;
    the author's parameters keep their names, which say what is handed over."""
    for text in (*(t.name for t in plan.tune), *(s.name for s in plan.scratch)):
        naming.declare(text.text)
    tokens: list[str] = []
    for launch in plan.launches:
        naming.reach(plain_name(launch.callee.text))
        tokens += ["@launch", *_words(launch.callee, naming)]
        for key, extent in (("grid", launch.grid), ("block", launch.block), ("args", launch.args)):
            tokens += [key, *(word for e in extent for word in [*_words(e, naming), ","])]
        tokens += ["smem", *_words(launch.smem, naming)]
    return tokens


def _rest(plan: Directives, naming: Naming) -> list[str]:
    """Tokens of what the plan says beside its launches, in an order that is nobody's choice."""
    lines = [["@requires", *_words(condition, naming)] for condition in plan.requires]
    for scratch in plan.scratch:
        lines.append(["@scratch", naming.known(scratch.name.text), *_words(scratch.size, naming)])
    for tune in plan.tune:
        values = (str(value) for value in sorted(tune.values))
        lines.append(["@tune", naming.known(tune.name.text), *values])
    return [word for line in sorted(lines) for word in line]


def _words(piece: Text | Expression, naming: Naming) -> list[str]:
    tokens = lex(byte_text(piece.text)).tokens
    return [naming.known(t.text) if t.kind == "name" else t.text for t in tokens]
