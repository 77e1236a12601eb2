"""Someone else's whole program as a Rewrite: its kernels, launched as it launches them.

A model or a user who answers with a program is met half way: a rewrite is device code and its
launches, so the host code is dropped.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count, pairwise
from typing import NamedTuple

from cudaops.domain.program import Kernel, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import Workload
from cudaops.errors import InputError
from cudaops.program.clusters import WORD as CLUSTERS
from cudaops.program.derived_plan import RecordedProgram, derived_plan
from cudaops.program.hygiene_directives import ALLOWED_INCLUDES, is_library_header
from cudaops.program.launches import find_launches
from cudaops.program.lexing import (
    Directive,
    Edit,
    Lexed,
    Token,
    apply_edits,
    byte_text,
    closing,
    hollow,
    lex,
    plain_text,
)
from cudaops.program.outline import Declaration, Outline, outline
from cudaops.program.plan_text import Packed, StructurePointer, entry_source
from cudaops.program.plans import make_rewrite

_CONDITIONALS = frozenset({"if", "ifdef", "ifndef", "else", "elif", "endif"})
_PRAGMA = re.compile(r"^[ \t]*#[ \t]*pragma\b[^\n]*", re.MULTILINE)
_HOST_PRAGMAS = frozenset({
    "omp", "GCC", "clang", "warning", "region", "endregion", "message", "diag_suppress",
    "diag_default", "nv_diag_suppress", "nv_diag_default", "nv_diagnostic", "hd_warning_disable",
    "nv_exec_check_disable", "mark",
})  # fmt: skip
"""Pragmas that say nothing of what device code does."""


def rewrite_from_program(
    baseline: RecordedProgram,
    kernel: Kernel,
    workloads: Sequence[Workload],
    candidate: RecordedProgram,
    *,
    allow_libraries: bool = False,
    same_inputs: bool = True,
    general: bool = False,
) -> Rewrite:
    """The candidate's kernels, launched as it launches them, as a rewrite of the `kernel`.

    `workloads`: of the baseline, most expensive first. `allow_libraries` keeps the headers of
    device-side libraries. Raises InputError, one line, where it cannot be one: see `derived_plan`,
    and there for `same_inputs` and `general`.
    """
    plan = derived_plan(
        baseline, kernel, workloads, candidate, same_inputs=same_inputs, general=general
    )
    code = device_source(
        candidate.program,
        allow_libraries=allow_libraries,
        beside=baseline.program,
        kernels=plan.kernels,
        named=[word for callee in plan.callees.values() for word in _token_texts(callee)],
    )
    if not allow_libraries:
        _refuse_libraries(code, candidate.program, baseline.program)
    for name, made in plan.entries.items():
        code = _with_entry(code, candidate.program.kernel(name), made, kernel, plan.callees[name])
    return make_rewrite(
        plan.directives + code + plan.helpers,
        "user",
        f"kernels of {candidate.program.root_name}",
        "given as a whole program; its host code is dropped",
    )


def replaced_kernels(baseline: Program, candidate: Program) -> frozenset[str]:
    """Kernels that the baseline launches and the candidate does not, or not with the same words:
    of the kernel, of all that it uses, or of its launches."""
    known = {k.name for k in candidate.kernels}
    return frozenset(
        name
        for name in {
            k.name for site in baseline.launches for k in baseline.kernels_named(site.kernel)
        }
        if name not in known or _as_launched(baseline, name) != _as_launched(candidate, name)
    )


def host_code_differs(baseline: Program, candidate: Program) -> bool:
    """Whether anything but kernels, their launches and what only device code needs has other
    words."""
    return _host_words(baseline) != _host_words(candidate)


_DECIDING = frozenset({"if", "else", "switch", "case", "?", "for", "while", "do", "&&", "||"})


def host_code_decides(baseline: Program, candidate: Program) -> bool:
    """Whether the candidate's host code may choose its launch by more than the author's does: it
    has more branches or loops, beside its kernels."""
    more = Counter(_host_words(candidate)) - Counter(_host_words(baseline))
    return not _DECIDING.isdisjoint(more)


def _host_words(program: Program) -> list[str]:
    joined = byte_text(_inlined(program, program.main_path, set()))
    facts = outline(joined)
    launches = [(one.start, one.end) for one in find_launches(facts.lexed)]
    return [
        token.text
        for item in facts.items
        if not is_device_side(item)
        for token in _tokens(facts, item)
        if not any(start <= token.start < end for start, end in launches)
    ]


def _as_launched(program: Program, kernel: str) -> tuple[list[str], list[list[str]]]:
    named = program.kernel(kernel).plain_name
    sites = sorted(
        " ".join([site.callee, site.grid, site.block, site.smem or "0", *site.args])
        for site in program.launches
        if site.kernel == named
    )
    code = device_source(program, kernels=[kernel])
    return _token_texts(code), [_token_texts(site) for site in sites]


def _token_texts(text: str) -> list[str]:
    return [t.text for t in lex(byte_text(text)).tokens]


def _refuse_libraries(code: str, program: Program, beside: Program) -> None:
    used = {t.text for t in lex(byte_text(code)).tokens if t.kind == "name"}
    for header in program.system_includes:
        library = header.partition("/")[0]
        known = header in beside.system_includes
        if is_library_header(header) and library in used and not known:
            raise InputError(
                f"its kernels use `{library}` of <{header}>: --allow-libraries lets a rewrite "
                "include device-side libraries"
            )


def _with_entry(
    code: str,
    kernel: Kernel,
    made: Mapping[int, Packed | StructurePointer],
    author: Kernel,
    callee: str,
) -> str:
    """The kernel as a function, and an entry that puts its arguments together."""
    facts = outline(byte_text(code))
    item = next((i for i in facts.items if i.is_kernel and i.name == kernel.plain_name), None)
    tokens = () if item is None else _tokens(facts, item)
    mark = next((t for t in tokens if t.text == "__global__"), None)
    packs = any("..." in one for one in kernel.template_parameters)
    if item is None or mark is None or packs or item.namespaces:
        what = kernel.parameters[min(made)].name
        raise InputError(
            f"parameter `{what}` of `{kernel.name}` is a structure that the author's kernel is not "
            "given, or a member of one that it is given: only for a kernel outside of namespaces, "
            "and no template of a pack, can it be put together"
        )
    edits = [Edit(mark.start, mark.end, "__device__")]
    attributes = ""
    for at, token in enumerate(tokens):
        if token.text in ("__launch_bounds__", CLUSTERS):
            end = tokens[closing(tokens, at + 1)].end
            attributes += plain_text(facts.slice(token.start, end)) + " "
            edits.append(Edit(token.start, end, " "))
    text = plain_text(apply_edits(facts.lexed.text, edits))
    return f"{text}\n{entry_source(kernel, made, author, attributes, callee)}"


def device_source(
    program: Program,
    *,
    allow_libraries: bool = False,
    beside: Program | None = None,
    kernels: Collection[str] | None = None,
    named: Collection[str] = (),
) -> str:
    """The program's device code as one text: local headers in place, host code gone.

    `kernels`: the only ones that are kept, with all that they use and all that is `named`; None
    keeps every function.

    The text is compiled beside the code of `beside`, and what its kernels take must be of the types
    there: what both programs say with the same words is left out, and a function that both have a
    name for gets another one, since a call with such types would find both."""
    joined = byte_text(_inlined(program, program.main_path, set()))
    facts = outline(joined)
    known = _Known() if beside is None else _Known.of(beside, facts)
    kept = [i for i in facts.items if is_device_side(i) and not known.has(facts, i)]
    plain = None if kernels is None else {name.partition("(")[0] for name in kernels}
    kept = _reached(facts, kept, plain, named)
    gone = [i for i in facts.items if i not in kept]
    edits = [Edit(i.start, i.end, _emptied(facts, i)) for i in gone]
    renamed = _renamed(facts, kept, known.functions, edits)
    text = apply_edits(joined, [*edits, *_linkage_edits(facts), *renamed])
    return plain_text(_without_unused_directives(text, allow_libraries))


def standing_beside(program: Program, source: str) -> str:
    """A rewrite's text as it is beside the author's program, line by line: what it says again
    with his words (types, variables that host code fills) is his, and its functions have other
    names than his for the same types, between which a call could not choose."""
    text = byte_text(source)
    facts = outline(text)
    known = _Known.of(program, facts)
    again = [i for i in facts.items if known.has(facts, i)]
    edits = [Edit(i.start, i.end, _emptied(facts, i)) for i in again]
    kept = [i for i in facts.items if i not in again]
    edits += _renamed(facts, kept, known.functions & _taking_types(program), edits)
    return plain_text(apply_edits(text, edits)) if edits else source


@lru_cache(maxsize=4)
def _outlines(program: Program) -> tuple[Outline, ...]:
    """Of the author's files, which every rewrite is held beside."""
    return tuple(outline(byte_text(file.text)) for file in program.files)


def _taking_types(program: Program) -> frozenset[str]:
    """Functions that speak of a type of the program: calls find them wherever they are."""
    outlines = _outlines(program)
    types: set[str] = set()
    for facts in outlines:
        for item in facts.items:
            types |= _type_names(facts, item) if item.kind == "type" else set()
    return frozenset(
        item.name
        for facts in outlines
        for item in facts.items
        if item.kind in ("function", "declaration")
        and {t.text for t in _tokens(facts, item)} & types
    )


def _emptied(facts: Outline, item: Declaration) -> str:
    """What stays of an item that goes: conditions and macros, but no pragma of its code."""
    return _PRAGMA.sub("", hollow(facts.lexed, item.start, item.end))


class _Known(NamedTuple):
    """What another program defines at namespace scope."""

    words: frozenset[tuple[str, ...]] = frozenset()
    """Of types, aliases, operators, and variables of the device that host code may fill."""
    functions: frozenset[str] = frozenset()
    other: frozenset[str] = frozenset()
    """Macros, constants and types that mean something else here than there."""

    @staticmethod
    def of(beside: Program, here: Outline) -> _Known:
        outlines = _outlines(beside)
        words = frozenset(
            _words_of(facts, item)
            for facts in outlines
            for item in facts.items
            if _is_shared(facts, item)
        )
        functions = frozenset(
            item.name
            for facts in outlines
            for item in facts.items
            if item.kind in ("function", "declaration") and item.name.isidentifier()
        )
        theirs = {d for facts in outlines for d in _constants(facts)}
        other = {name for name, *rest in _constants(here) if (name, *rest) not in theirs}
        size = -1
        while size != len(other):
            size = len(other)
            for item in here.items:
                tokens = {t.text for t in _tokens(here, item)}
                if item.kind == "type" and (_words_of(here, item) not in words or tokens & other):
                    other |= _type_names(here, item)
        return _Known(words, functions, frozenset(other))

    def has(self, facts: Outline, item: Declaration) -> bool:
        """Whether the other program says the very same."""
        if not _is_shared(facts, item) or _words_of(facts, item) not in self.words:
            return False
        return not {t.text for t in _tokens(facts, item)} & self.other


def _is_shared(facts: Outline, item: Declaration) -> bool:
    if item.kind in ("type", "other"):
        return not item.spaces
    if item.kind == "variable":
        filled = item.spaces & {"__constant__", "__device__", "__managed__"}
        return bool(filled) and not any(t.text == "=" for t in _tokens(facts, item))
    return item.kind == "function" and "operator" in item.specifiers


def _constants(facts: Outline) -> Iterator[tuple[str, ...]]:
    """Macros and constants, each as its name and its words."""
    for directive in facts.lexed.directives:
        words = _words(facts.lexed, directive)
        if directive.keyword == "define" and len(words) > 3:
            yield (words[2], *words[3:])
    for item in facts.items:
        if item.kind == "variable" and item.specifiers & {"const", "constexpr"}:
            yield (item.name, *(t.text for t in _tokens(facts, item)))


def _renamed(
    facts: Outline, kept: Sequence[Declaration], taken: frozenset[str], gone: Sequence[Edit]
) -> list[Edit]:
    """Edits that give device functions names of their own."""
    own = {
        i.name
        for i in kept
        if i.kind in ("function", "declaration") and not i.is_kernel and i.name.isidentifier()
    }
    tokens = [
        t
        for t in facts.lexed.tokens
        if not any(e.start <= t.start < e.end for e in gone) or t.directive >= 0
    ]
    texts = {t.text for t in tokens}
    members = {b.text for a, b in pairwise(tokens) if a.text in (".", "->", "::")}
    names = {n: _unused_name(n, texts) for n in (own & taken) - members}
    return [Edit(t.start, t.end, names[t.text]) for t in tokens if t.text in names]


def _unused_name(name: str, texts: set[str]) -> str:
    return next(n for i in count(2) if (n := f"{name}_{i}") not in texts)


def _words_of(facts: Outline, item: Declaration) -> tuple[str, ...]:
    return (*item.namespaces, "{", *(t.text for t in _tokens(facts, item)))


def _linkage_edits(facts: Outline) -> list[Edit]:
    """`extern "C" {` and its `}`: a candidate's functions must not be the baseline's."""
    edits = []
    for index, token in enumerate(facts.tokens[:-2]):
        opener = facts.tokens[index + 2]
        if token.text == "extern" and opener.text == "{":
            close = facts.tokens[closing(facts.tokens, index + 2)]
            edits += [
                Edit(token.start, opener.end, hollow(facts.lexed, token.start, opener.end)),
                Edit(close.start, close.end, " "),
            ]
    return edits


def _inlined(program: Program, path: str, done: set[str]) -> str:
    """A file with its local includes in their places, each once."""
    done.add(path)
    lexed = lex(byte_text(program.file(path).text))
    files = {f.path for f in program.files}
    edits = []
    for directive in lexed.directives:
        name = _included(lexed, directive)
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name or ""))
        if name is not None and target in files:
            text = "" if target in done else _inlined(program, target, done)
            edits.append(Edit(directive.start, directive.end, byte_text(text)))
        elif directive.keyword == "pragma" and _words(lexed, directive)[1:3] == ["pragma", "once"]:
            edits.append(Edit(directive.start, directive.end, ""))
    edits += [Edit(d.start, d.end, "") for d in _guard(lexed)]
    return plain_text(apply_edits(lexed.text, edits))


def _guard(lexed: Lexed) -> tuple[Directive, ...]:
    """The three lines by which a header is read once: it is, and the author's program, beside which
    the text is compiled, may have defined the same name."""
    if len(lexed.directives) < 3:
        return ()
    opener, define, *_, closer = lexed.directives
    asked, defined = _words(lexed, opener), _words(lexed, define)
    name = defined[-1] if len(defined) == 3 and defined[1] == "define" else ""
    asks = asked[1:] in (["ifndef", name], ["if", "!", "defined", "(", name, ")"])
    between = [d.keyword for d in lexed.directives[2:-1]]
    opened = sum(k.startswith("if") for k in between) - between.count("endif")
    return (opener, define, closer) if asks and closer.keyword == "endif" and not opened else ()


def _words(lexed: Lexed, directive: Directive) -> list[str]:
    return [t.text for t in lexed.tokens[directive.first : directive.last]]


def _included(lexed: Lexed, directive: Directive) -> str | None:
    tokens = lexed.tokens[directive.first + 2 : directive.last]
    if directive.keyword != "include" or not tokens:
        return None
    return plain_text(lexed.text[tokens[0].start : tokens[-1].end]).strip('<>"')


def is_device_side(item: Declaration) -> bool:
    device = bool(item.spaces & {"__global__", "__device__", "__constant__", "__managed__"})
    match item.kind:
        case "function":
            return not item.is_host_only
        case "variable":
            return device or bool(item.specifiers & {"const", "constexpr", "__shared__"})
        case "declaration" | "instantiation":
            return device
        case "other":
            return not {"std", "asm"} & item.specifiers
    return True


def _reached(
    facts: Outline,
    items: Sequence[Declaration],
    kernels: Collection[str] | None,
    named: Collection[str],
) -> list[Declaration]:
    """The kernels and all that they use; functions, variables and what they use where any kernel
    will do."""
    macros: dict[str, set[str]] = {}
    needed = set(named)
    for directive in facts.lexed.directives:
        words = _words(facts.lexed, directive)
        if directive.keyword == "define" and len(words) > 2 and kernels is not None:
            macros.setdefault(words[2], set()).update(words[3:])
        else:
            needed |= set(words)
    found: set[int] = set()
    size = -1
    while size != len(needed) + len(found):
        size = len(needed) + len(found)
        for index, item in enumerate(items):
            if index not in found and _is_reached(facts, item, kernels, needed):
                found.add(index)
                needed |= {t.text for t in _tokens(facts, item)}
        for name in macros.keys() & needed:
            needed |= macros[name]
    return [item for index, item in enumerate(items) if index in found]


def _is_reached(
    facts: Outline, item: Declaration, kernels: Collection[str] | None, needed: set[str]
) -> bool:
    match item.kind:
        case "type":
            return bool(_type_names(facts, item) & needed)
        case "other":
            return True
    if kernels is None:
        return True
    if "__global__" in item.spaces:
        return item.name in kernels
    return "operator" in item.specifiers or item.name.partition("::")[0] in needed


def _tokens(facts: Outline, item: Declaration) -> tuple[Token, ...]:
    return facts.tokens[item.first : item.last]


def _type_names(facts: Outline, item: Declaration) -> set[str]:
    """The type's own name, and for an enumeration those of its values."""
    tokens = _tokens(facts, item)
    head = next((i for i, t in enumerate(tokens) if t.text in ("{", ";")), len(tokens))
    named = tokens if any(t.text == "enum" for t in tokens[:head]) else tokens[:head]
    return {t.text for t in named if t.kind == "name"} - {"struct", "class", "union", "enum"}


def _without_unused_directives(text: str, allow_libraries: bool) -> str:
    """Drop includes that are no device headers and macros that nothing left uses."""
    while True:
        lexed = lex(text)
        unused = list(_unused(lexed, allow_libraries))
        if not unused:
            return text
        text = apply_edits(
            text, [Edit(d.start, d.end, "\n" * text.count("\n", d.start, d.end)) for d in unused]
        )


def _unused(lexed: Lexed, allow_libraries: bool) -> Iterator[Directive]:
    used: dict[str, int] = {}
    for token in lexed.tokens:
        used[token.text] = used.get(token.text, 0) + (token.kind == "name")
    for directive in lexed.directives:
        words = _words(lexed, directive)
        if directive.keyword == "include":
            header = _included(lexed, directive) or ""
            kept = header in ALLOWED_INCLUDES or (allow_libraries and is_library_header(header))
            groups = header.partition("/")[0].removesuffix(".h") == "cooperative_groups"
            if not kept or (groups and "cooperative_groups" not in used):
                yield directive
        elif directive.keyword == "define" and len(words) > 2:
            if used.get(words[2], 0) <= words.count(words[2]):
                yield directive
        elif directive.keyword == "pragma":
            if words[2:3] and words[2] in _HOST_PRAGMAS:
                yield directive
        elif directive.keyword not in (*_CONDITIONALS, "undef", ""):
            yield directive
