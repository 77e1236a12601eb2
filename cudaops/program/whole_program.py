"""Someone else's whole program as a Rewrite: its kernels, launched as it launches them.

A model or a user who answers with a program is met half way (design D1): the host code is dropped.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from cudaops.domain.program import Kernel, Parameter, Program
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import ScalarArgument, Workload
from cudaops.errors import InputError
from cudaops.program.hygiene_directives import ALLOWED_INCLUDES, is_library_header
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
from cudaops.program.outline import Item, Outline, outline, space_aliases
from cudaops.program.plans import make_rewrite

_CONDITIONALS = frozenset({"if", "ifdef", "ifndef", "else", "elif", "endif"})


def rewrite_from_workload(
    candidate_program: Program,
    kernel: Kernel,
    workload: Workload,
    *,
    baseline_program: Program | None = None,
    allow_libraries: bool = False,
) -> Rewrite:
    """The candidate program's target as a rewrite of the baseline `kernel`.

    `workload` is a capture of the candidate program: it says which kernel, instance and geometry.
    The geometry is that of one size, so `@requires` holds it to the integers it was seen with.
    Arguments are matched by name where all names agree, by position otherwise. `allow_libraries`
    keeps the headers of device-side libraries. Raises InputError where the two kernels' parameters
    cannot be matched.
    """
    launched = candidate_program.kernel(workload.kernel)
    arguments = _matched(launched, kernel)
    _, bracket, template = workload.callee.partition("<")
    directive = (
        f"// @launch {launched.qualified_name}{bracket}{template} grid={workload.grid} "
        f"block={workload.block} smem={workload.dynamic_smem_bytes} args=({', '.join(arguments)})\n"
    )
    code = device_source(
        candidate_program, allow_libraries=allow_libraries, beside=baseline_program
    )
    return make_rewrite(
        directive + _sizes(workload, launched, arguments) + code,
        "user",
        f"kernels of {candidate_program.root_name}",
        "given as a whole program; its host code is dropped",
    )


def _sizes(workload: Workload, launched: Kernel, arguments: Sequence[str]) -> str:
    """A `@requires` for each integer argument, in the baseline's names."""
    names = {p.name: name for p, name in zip(launched.parameters, arguments, strict=True)}
    seen = [
        (names[a.name], a.value)
        for a in workload.arguments
        if isinstance(a, ScalarArgument) and isinstance(a.value, int) and a.name in names
    ]
    return "".join(f"// @requires {name} == {value}\n" for name, value in seen)


def _matched(candidate: Kernel, baseline: Kernel) -> list[str]:
    names = {p.name for p in baseline.parameters}
    if all(p.name in names for p in candidate.parameters):
        return [p.name for p in candidate.parameters]
    if len(candidate.parameters) != len(baseline.parameters):
        raise InputError(
            f"`{candidate.name}` takes ({_listed(candidate.parameters)}) and `{baseline.name}` "
            f"({_listed(baseline.parameters)}); give parameters that mean the same the same name"
        )
    return [p.name for p in baseline.parameters]


def _listed(parameters: Sequence[Parameter]) -> str:
    return ", ".join(p.name for p in parameters)


def device_source(
    program: Program, *, allow_libraries: bool = False, beside: Program | None = None
) -> str:
    """The program's device code as one text: local headers in place, host code gone. Types that
    `beside` defines with the same words are gone too: the code is compiled beside those, and what
    its kernels take must be of those types."""
    joined = byte_text(_inlined(program, program.main_path, set()))
    facts = outline(joined, space_aliases(lex(joined)))
    known = set() if beside is None else _types(beside)
    kept = [i for i in facts.items if _stays(i) and _words_of(facts, i) not in known]
    needed = _needed_names(facts, kept)
    kept = [i for i in kept if i.kind != "type" or _type_names(facts, i) & needed]
    gone = [i for i in facts.items if i not in kept]
    edits = [Edit(i.start, i.end, hollow(facts.lexed, i.start, i.end)) for i in gone]
    text = apply_edits(joined, [*edits, *_linkage_edits(facts)])
    return plain_text(_without_unused_directives(text, allow_libraries))


def _types(program: Program) -> set[tuple[str, ...]]:
    """Words of every type, alias and enumeration at namespace scope."""
    outlines = [outline(byte_text(file.text)) for file in program.files]
    return {
        _words_of(facts, item)
        for facts in outlines
        for item in facts.items
        if item.kind in ("type", "other") and not item.spaces
    }


def _words_of(facts: Outline, item: Item) -> tuple[str, ...]:
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
    return plain_text(apply_edits(lexed.text, edits))


def _words(lexed: Lexed, directive: Directive) -> list[str]:
    return [t.text for t in lexed.tokens[directive.first : directive.last]]


def _included(lexed: Lexed, directive: Directive) -> str | None:
    tokens = lexed.tokens[directive.first + 2 : directive.last]
    if directive.keyword != "include" or not tokens:
        return None
    return plain_text(lexed.text[tokens[0].start : tokens[-1].end]).strip('<>"')


def _stays(item: Item) -> bool:
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


def _needed_names(facts: Outline, kept: Sequence[Item]) -> set[str]:
    """Names that functions, variables and macros use, and the types these use in turn."""
    needed = {t.text for i in kept if i.kind != "type" for t in _tokens(facts, i)}
    needed |= {t.text for t in facts.lexed.tokens if t.directive >= 0}
    types = [i for i in kept if i.kind == "type"]
    size = -1
    while size != len(needed):
        size = len(needed)
        for item in types:
            if _type_names(facts, item) & needed:
                needed |= {t.text for t in _tokens(facts, item)}
    return needed


def _tokens(facts: Outline, item: Item) -> tuple[Token, ...]:
    return facts.tokens[item.first : item.last]


def _type_names(facts: Outline, item: Item) -> set[str]:
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
            if not kept:
                yield directive
        elif directive.keyword == "define" and len(words) > 2:
            if used.get(words[2], 0) <= words.count(words[2]):
                yield directive
        elif directive.keyword not in (*_CONDITIONALS, "define", "pragma", "undef", ""):
            yield directive
