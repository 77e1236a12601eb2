"""Instances of a template kernel: what a launch plan may say of them, and which one rewrite serves.

A plan that names none of the author's template parameters is for the instance that takes the most
time. One that names some is for every captured instance that differs from it in these alone: each
is compiled, judged and timed with what the parameters are there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from cudaops.domain.program import Kernel
from cudaops.domain.rewrite import Rewrite
from cudaops.program.dialect import macro_names
from cudaops.program.directives import read_directives
from cudaops.program.grammar import SIZE_OF, SIZES
from cudaops.program.instances import (
    bound_arguments,
    is_type_parameter,
    template_parameter_names,
)
from cudaops.program.lexing import byte_text
from cudaops.program.outline import outline

_INTEGER = re.compile(r"(?:\([\w\s]+\)\s*)?(-?(?:0[xX][0-9a-fA-F]+|\d+))[uUlL]{0,3}")
"""`64`, `64u`, `(char)10`: as clang and linkers write values of template arguments."""
_TRUTH = {"true": 1, "false": 0}


def template_names(kernel: Kernel) -> tuple[str, ...]:
    """The names by which a plan's expressions may know this kernel's instance: `BLOCK`,
    `sizeof(T)`."""
    pairs = zip(kernel.template_parameters, template_parameter_names(kernel), strict=True)
    return tuple(f"{SIZE_OF}{n})" if is_type_parameter(w) else n for w, n in pairs)


def template_values(rewrite: Rewrite, kernel: Kernel, callee: str) -> dict[str, int]:
    """Their values in this instance; a type of the program's own has no size here."""
    if not kernel.template_parameters:
        return {}  # nothing needs to be read for each launch of a search
    hidden = own_names(rewrite)
    bound = {n: a for n, a in bound_arguments(kernel, callee).items() if n not in hidden}
    names = zip(template_parameter_names(kernel), template_names(kernel), strict=True)
    values = {spelled: _value(spelled, bound.get(name, "")) for name, spelled in names}
    return {name: value for name, value in values.items() if value is not None}


def own_names(rewrite: Rewrite) -> frozenset[str]:
    """What a rewrite calls so itself: tune names, macros, and what it declares outside of bodies.
    None of it means the author's template parameter of that name."""
    facts = outline(byte_text(rewrite.source))
    names = {item.name for item in facts.items} | {*rewrite.values()} | macro_names(facts.lexed)
    for item in facts.items:
        words = [t.text for t in facts.tokens[item.first : item.last]]
        if words[0] == "using":
            names.add(words[1])
        elif words[0] == "typedef":
            names.add(words[-2])
        elif item.kind == "type":
            names |= {b for a, b in pairwise(words) if a in ("struct", "class", "union", "enum")}
    return frozenset(names)


def named_parameters(rewrite: Rewrite, kernel: Kernel) -> frozenset[str]:
    """The author's template parameters that a plan names."""
    found = read_directives(rewrite.source)
    expressions = [*found.requires, *(s.size for s in found.scratch)]
    words: set[str] = set()
    for launch in found.launches:
        expressions += [*launch.grid, *launch.block, launch.smem, *launch.args]
        words |= {*re.findall(r"[A-Za-z_]\w*", launch.callee.text.partition("<")[2])}
    words |= {n.removeprefix(SIZE_OF).rstrip(")") for e in expressions for n in e.names()}
    return frozenset(words & {*template_parameter_names(kernel)} - own_names(rewrite))


def serves(rewrite: Rewrite, kernel: Kernel, hottest: str, callee: str) -> bool:
    """Whether a rewrite for the instance `hottest` is one for the instance `callee` too."""
    if callee == hottest:
        return True
    named = named_parameters(rewrite, kernel)
    if not named:
        return False
    return _others(kernel, hottest, named) == _others(kernel, callee, named)


def _others(kernel: Kernel, callee: str, named: frozenset[str]) -> Mapping[str, str]:
    return {n: a for n, a in bound_arguments(kernel, callee).items() if n not in named}


def _value(name: str, argument: str) -> int | None:
    if name.startswith(SIZE_OF):
        return 8 if argument.endswith("*") else SIZES.get(argument)
    found = _INTEGER.fullmatch(argument)
    return int(found[1], 0) if found else _TRUTH.get(argument)
