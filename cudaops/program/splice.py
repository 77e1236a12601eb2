"""Put a rewrite into the author's file: device code, a host wrapper, and nothing else changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, zip_longest
from types import MappingProxyType
from typing import NamedTuple

from cudaops.domain.program import Kernel, LaunchSite, Program, SourceFile
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.program.candidate import (
    body_edits,
    hoisted_includes,
    macro_epilogue,
    macro_prologue,
)
from cudaops.program.cooperative import author_waits
from cudaops.program.front_end import launched_instances
from cudaops.program.hygiene_directives import ALLOWED_INCLUDES
from cudaops.program.instances import plain_name, template_arguments
from cudaops.program.launches import (
    CONFIGURED,
    GRAPH_NODES,
    PACKED,
    TOGETHER,
    ByteRange,
    LaunchCall,
    find_launches,
)
from cudaops.program.lexing import Edit, apply_edits, byte_text, lex, plain_text
from cudaops.program.macros import later_macros, launches_written_out, stand_for_several
from cudaops.program.outline import Declaration, Outline, kernel_declarations, outline, spaces_of
from cudaops.program.overloads import defaults_of, left_out, parameters_of, signature_of
from cudaops.program.parse import parse_files
from cudaops.program.plans import make_rewrite
from cudaops.program.syntax import LaunchedInstance
from cudaops.program.wrapper import (
    HELPERS_BEGIN,
    NAMESPACE_PREFIX,
    Fence,
    InstanceGuard,
    declaration_text,
    dispatch_name,
    dispatch_text,
    forwardable,
    helpers_text,
    namespace_name,
    packed_name,
    packed_text,
    passed_on_text,
    require_names,
    wrapper_name,
    wrapper_text,
)

_BEGIN, _END = "// ---- cudaops:", "// ---- cudaops: end"
_BYTE_ORDER_MARK = "\xef\xbb\xbf"


def splice(program: Program, kernel: str, rewrite: Rewrite, *callees: str) -> Program:
    """The program with `rewrite` in place of a kernel's launches.

    Only launch expressions of `kernel` change, and uses of macros that it is handed to and launched
    by, which are written out; the rewrite's device code and a wrapper that checks `@requires` and
    falls back to the baseline are inserted. `callees` are the captured instances of
    a template kernel that it serves (`reg_matmul<64, 64>`, `scale<float>`): others keep the
    baseline. Raises InputError where no launch can be replaced or the instance is ambiguous.
    """
    target = program.kernel(kernel)
    if program.application is not None:
        return _beside(program, target, rewrite)
    program, target = _written_out(program, target)
    wanted = _instances(program, target, callees)
    place = _Place.of(program, target, wanted)
    includes = _missing_includes(program, rewrite)
    guard = _guard(program, target, wanted)
    waits = author_waits(program, target)
    block = _block(place, target, rewrite, guard, includes, waits)
    texts = {}
    for path in dict.fromkeys((place.file, *place.declared, *(s.file for s, _ in place.replaced))):
        facts = _facts(program, path)
        edits = [
            edit
            for site, launch in place.replaced
            if site.file == path
            for edit in _calls(program, facts, site, launch, target, place)
        ]
        edits += [_declaration(facts, item, target) for item in place.declared.get(path, ())]
        if path == place.file:
            edits.append(_insertion(facts, place, block))
            if not place.is_global:
                top = 3 if facts.lexed.text.startswith(_BYTE_ORDER_MARK) else 0
                edits.append(Edit(top, top, includes))
        texts[path] = plain_text(apply_edits(facts.lexed.text, edits))
    return with_texts(program, texts)


def with_texts(program: Program, texts: Mapping[str, str]) -> Program:
    """The program with these files' texts, by path."""
    files = tuple(SourceFile(path=f.path, text=texts.get(f.path, f.text)) for f in program.files)
    parsed = parse_files(
        program.root_name,
        files,
        program.system_includes,
        program.build,
        program.problem,
        program.application,
    )
    kept = ("compilation", "options", "exit_code")
    return parsed.model_copy(update={name: getattr(program, name) for name in kept})


def require_replaceable(program: Program, kernel: str) -> None:
    """That a launch names this kernel, so that a rewrite can stand in its place; of another
    program's launches (`Program.application`) every one is. Raises InputError."""
    if program.application is None:
        _Place.of(*_written_out(program, program.kernel(kernel)), ())


def can_be_replaced(program: Program, kernel: str) -> bool:
    """The same as an answer."""
    try:
        require_replaceable(program, kernel)
    except InputError:
        return False
    return True


def _written_out(program: Program, kernel: Kernel) -> tuple[Program, Kernel]:
    """The program with the macros written out that launch this kernel by a parameter of theirs."""
    texts = launches_written_out({f.path: f.text for f in program.files}, kernel.plain_name)
    if not texts:
        return program, kernel
    found = with_texts(program, texts)
    return found, found.kernel(kernel.name)


def _beside(program: Program, kernel: Kernel, rewrite: Rewrite) -> Program:
    """The rewrite's device code behind the kernel, in a file that launches nothing: its launches
    are another program's."""
    facts = _facts(program, kernel.file)
    holder = facts.item_at(kernel.start_byte)
    place = _Place(
        file=kernel.file,
        offset=kernel.end_byte,
        after_kernel=True,
        is_global=holder is None or holder.is_global,
        in_linkage_block=holder is not None and holder.in_linkage_block,
        namespaces=() if holder is None else holder.namespaces,
        replaced=(),
    )
    includes = _missing_includes(program, rewrite)
    edits = [_insertion(facts, place, _framed(place, kernel, rewrite, includes, ()))]
    if not place.is_global:
        edits.append(Edit(0, 0, includes))
    return with_texts(program, {kernel.file: plain_text(apply_edits(facts.lexed.text, edits))})


def spliced_rewrite(program: Program, again: Callable[[Rewrite], Program]) -> Rewrite | None:
    """The rewrite that `splice` put into the author's program, its tuned values with it; None where
    none is there.

    Raises InputError where the program is not what `again` makes of the author's with this rewrite:
    what is judged would not be what is there.
    """
    for file in program.files:
        _, begin, rest = file.text.partition(_BEGIN)
        block, end, _ = rest.partition(f"\n{_END}")
        if not (begin and end):
            continue
        rewrite = _rewrite_of(block, program)
        written = "".join(f.text for f in again(rewrite).files if _BEGIN in f.text)
        for number, (here, there) in enumerate(
            zip_longest(file.text.splitlines(), written.splitlines()), start=1
        ):
            if here != there and not (here or "").startswith(_BEGIN):
                raise InputError(
                    f"line {number} is not as cudaops wrote it; give device code with @launch, or "
                    "a program without the block that cudaops put in"
                )
        return rewrite
    return None


def _rewrite_of(block: str, program: Program) -> Rewrite:
    title, _, code = block.partition("\n")
    head, _, body = code.partition(f"namespace {NAMESPACE_PREFIX}")
    source, helpers, _ = body.partition("\n")[2].partition(f"\n{HELPERS_BEGIN}")
    if not helpers:
        raise InputError(f"the block of{title} is not as cudaops wrote it; run cudaops again")
    values = {
        words[1]: int(words[2])
        for line in head.splitlines()
        if len(words := line.split()) == 3 and words[0] == "#define" and words[2].isdigit()
    }
    known = [i for i in program.system_includes if i in ALLOWED_INCLUDES]
    includes = "".join(f"#include <{name}>\n" for name in known)
    rewrite = make_rewrite(f"{includes}{source}\n", "user", title.strip(), "spliced by cudaops")
    missing = [t.name for t in rewrite.plan.tune if t.name not in values]
    if missing:
        raise InputError(f"{title.strip()} lacks `#define {missing[0]} ...`; run cudaops again")
    return rewrite.tuned_with({t.name: values[t.name] for t in rewrite.plan.tune})


def _facts(program: Program, path: str) -> Outline:
    spaces = spaces_of(byte_text(f.text) for f in program.files)
    return outline(byte_text(program.file(path).text), spaces)


def _normal(arguments: str) -> str:
    return "".join(t.text + " " for t in lex(byte_text(arguments)).tokens)


def _instances(program: Program, kernel: Kernel, callees: Sequence[str]) -> tuple[str, ...]:
    """Template arguments of the instances that the rewrite replaces; empty for any."""
    if not kernel.template_parameters:
        return ()
    if callees:
        named = (c.partition("<")[2].rpartition(">")[0] for c in callees if "<" in c)
        return tuple(dict.fromkeys(named))
    written = {
        _normal(s.template_arguments): s.template_arguments
        for s in program.launches
        if _may_mean(program, s, kernel) and s.template_arguments is not None
    }
    if len(written) > 1:
        listed = ", ".join(f"{kernel.name}<{a}>" for a in written.values())
        raise InputError(f"`{kernel.name}` is launched as {listed}; say which one is replaced")
    return tuple(written.values())


class _Place(NamedTuple):
    """Where the new code goes and which launches it replaces."""

    file: str
    offset: int
    after_kernel: bool
    is_global: bool
    in_linkage_block: bool
    namespaces: tuple[str, ...]
    replaced: tuple[tuple[LaunchSite, LaunchCall], ...]
    through_pointers: bool = False
    """None of them names the kernel: which one it is shows when the program runs."""
    declared: Mapping[str, Sequence[Declaration]] = MappingProxyType({})
    """Declarations of the kernel by file, where others than its own launch it: what is generated
    is declared behind each of them."""
    others: tuple[Kernel, ...] = ()
    """Of the same name, which they may mean as well."""
    later: Sequence[str] = ()
    """Macros that are none where the kernel stands, and may be there."""

    @staticmethod
    def of(program: Program, kernel: Kernel, wanted: Sequence[str]) -> _Place:
        """Right after the kernel where its launches follow in the same file, or are in files that
        see it declared; else before the declaration that holds the first launch."""
        require_names(kernel)
        sites = [s for s in program.launches if _is_replaced(program, s, kernel, wanted)]
        declared = _declarations(program, kernel)
        apart = bool(declared) and any(s.file != kernel.file for s in sites)
        if not apart:
            sites = _without_callers(program, kernel, sites)
        through = [] if sites else _through_pointers(program, kernel)
        sites = sites or through
        if not sites:
            names = {k.plain_name for k in program.kernels} - {kernel.plain_name}
            known = [s for s in program.launches if s.kernel not in names][:1]
            where = "".join(f" ({s.file}:{s.line}: `{s.callee}<<<..>>>`)" for s in known)
            named = kernel.qualified_name + "<..>" * bool(kernel.template_parameters)
            said = f"no launch of `{kernel.name}` names it directly{where}, so none can be replaced"
            raise InputError(f"{said}; write `{named}<<<grid, block>>>(..)` at the launch")
        path = kernel.file if apart else sites[0].file
        facts = _facts(program, path)
        here = sites if apart else [s for s in sites if s.file == path]
        first = min(s.enclosing_start_byte for s in here)
        others = [] if through else _others(program, here, kernel)
        family = (kernel, *others)
        last = max(family, key=lambda k: k.end_byte)
        after = apart or all(k.file == path and k.end_byte <= first for k in family)
        if late := [k for k in others if k.file == path and k.end_byte > first]:
            raise InputError(
                f"`{late[0].name}` is defined below a launch of `{kernel.plain_name}` that may be "
                "of either; move it above"
            )
        holder = facts.item_at(last.start_byte if after else here[0].start_byte)
        launches = {
            (one, launch.start): launch
            for one in {s.file for s in here}
            for launch in find_launches(_facts(program, one).lexed)
        }
        return _Place(
            file=path,
            offset=last.end_byte if after else first,
            after_kernel=after,
            is_global=holder is None or holder.is_global,
            in_linkage_block=holder is not None and holder.in_linkage_block,
            namespaces=() if holder is None else holder.namespaces,
            replaced=tuple((s, launches[s.file, s.start_byte]) for s in here),
            through_pointers=bool(through),
            declared=declared if apart else {},
            others=tuple(others),
            later=() if after else later_macros(program, kernel),
        )


def _declarations(program: Program, kernel: Kernel) -> dict[str, list[Declaration]]:
    """Where a kernel of a build is declared that other files may launch: by path, none where only
    its own does."""
    facts = _facts(program, kernel.file)
    holder = facts.item_at(kernel.start_byte)
    inside = holder is None or holder.specifiers & {"static", "inline", "__forceinline__"}
    alike = sum(k.qualified_name == kernel.qualified_name for k in program.kernels)
    if program.build is None or kernel.template_parameters or inside or alike > 1:
        return {}
    found: dict[str, list[Declaration]] = {}
    for file in program.files:
        facts = _facts(program, file.path)
        for item in kernel_declarations(facts):
            _, names = forwardable(parameters_of(facts, item))
            if (item.qualified_name, len(names)) == (kernel.qualified_name, len(kernel.parameters)):
                found.setdefault(file.path, []).append(item)
    return found


def _without_callers(
    program: Program, kernel: Kernel, sites: Sequence[LaunchSite]
) -> list[LaunchSite]:
    """Launches that see the kernel itself. Raises InputError where there are only others."""
    callers = () if program.build is None else program.build.callers
    kept = [s for s in sites if s.file not in callers]
    if sites and not kept:
        why = "shows no declaration of its own"
        if kernel.template_parameters:
            why = "is a template"
        elif kernel.is_overloaded:
            why = "is overloaded"
        raise InputError(
            f"{sites[0].file}:{sites[0].line} launches `{kernel.plain_name}`, which {why} and is "
            f"defined in {kernel.file}: put a function that launches it beside it, and call that"
        )
    return kept


def _others(program: Program, sites: Sequence[LaunchSite], kernel: Kernel) -> list[Kernel]:
    """The other kernels of its name that these launches of it may mean."""
    if not kernel.is_overloaded:
        return []
    meant = {name for site in sites for name in _meant(program, site, kernel)} - {kernel.name}
    named = (k for k in program.kernels if k.qualified_name == kernel.qualified_name)
    return [k for k in named if k.name in meant]


def _through_pointers(program: Program, kernel: Kernel) -> list[LaunchSite]:
    """Launches of what is no kernel's name, each of which may be this one; not those of macros."""
    names = {k.plain_name for k in program.kernels}
    return [
        site
        for site in program.launches
        if plain_name(site.callee) not in names
        and (site.kernel == kernel.plain_name or site.kernel not in names)
        and site.template_arguments is None
        and not site.in_macro
        and site.kernel not in GRAPH_NODES
        and (site.kernel in PACKED or not kernel.template_parameters)
    ]


def _is_replaced(program: Program, site: LaunchSite, kernel: Kernel, wanted: Sequence[str]) -> bool:
    if plain_name(site.callee) != kernel.plain_name or not _may_mean(program, site, kernel):
        return False
    if not wanted or site.template_arguments is None:
        return True
    completed = (_normal(", ".join(template_arguments(x.callee))) for x in _meant_at(program, site))
    written = {_normal(site.template_arguments), *completed}  # defaults are left out
    return bool(written & set(map(_normal, wanted))) or is_dependent(program, site)


def _meant_at(program: Program, site: LaunchSite) -> list[LaunchedInstance]:
    """What clang says of a launch."""
    here = site.file, site.start_byte
    return [x for x in launched_instances(program) if (x.file, x.start) == here]


def _may_mean(program: Program, site: LaunchSite, kernel: Kernel) -> bool:
    """Whether a launch is of this kernel's name, and not known to be of others that have it."""
    if site.kernel != kernel.plain_name:
        return False
    return not kernel.is_overloaded or kernel.name in _meant(program, site, kernel)


def _meant(program: Program, site: LaunchSite, kernel: Kernel) -> set[str]:
    """Those of the kernels with this one's qualified name that a launch may mean: by clang, or all
    of them."""
    named = [k for k in program.kernels if k.qualified_name == kernel.qualified_name]
    places = [one.defined for one in _meant_at(program, site)]
    found = {
        k.name
        for k in named
        for place in places
        if place is not None and place.file == k.file and k.start_byte <= place.start < k.end_byte
    }
    return found or {k.name for k in named}


def is_dependent(program: Program, site: LaunchSite) -> bool:
    """Whether the launch names its instance by parameters of the template that it is in, or by
    what that template's body calls a type or a constant of its own."""
    return bool(_names(site.template_arguments or "") & _template_names(program, site))


def _names(text: str) -> set[str]:
    return {t.text for t in lex(byte_text(text)).tokens if t.kind == "name"}


def _template_names(program: Program, site: LaunchSite) -> set[str]:
    """Template parameters in scope of a launch, and what the body gives a name before it: `using
    X = ..;`, `typedef .. X;`, `constexpr int X = ..;`, `constexpr int X{..};`."""
    facts = _facts(program, site.file)
    holder = facts.item_at(site.start_byte)
    if holder is None or holder.template is None:
        return set()
    first, last = holder.template
    found = {t.text for t in facts.tokens[first:last] if t.kind == "name"}
    if holder.body is not None:
        body = facts.tokens[holder.body[0] : holder.body[1]]
        found |= {
            t.text
            for t, after in pairwise(t for t in body if t.start < site.start_byte)
            if t.kind == "name" and after.text in ("=", ";", "{")
        }
    return found


def _guard(program: Program, kernel: Kernel, wanted: Sequence[str]) -> InstanceGuard:
    """Empty where every replaced launch spells its instance itself."""
    if not wanted:
        return InstanceGuard(())
    sites = [s for s in program.launches if _is_replaced(program, s, kernel, wanted)]
    known = {_normal(w) for w in wanted}
    if sites and all(_normal(s.template_arguments or "") in known for s in sites):
        return InstanceGuard(())
    return InstanceGuard(tuple(template_arguments(f"<{w}>") for w in wanted))


def _declaration(facts: Outline, item: Declaration, kernel: Kernel) -> Edit:
    """What is generated, declared behind a declaration of the kernel."""
    text = declaration_text(kernel, parameters_of(facts, item))
    if item.in_linkage_block:
        text = f'extern "C++" {{ {text} }}'
    return Edit(item.end, item.end, byte_text(f"\n{text}"))


def _insertion(facts: Outline, place: _Place, block: str) -> Edit:
    """The block on lines of its own."""
    if not place.after_kernel:
        return Edit(place.offset, place.offset, block + "\n")
    line_end = facts.lexed.text.find("\n", place.offset)
    rest = facts.lexed.text[place.offset : None if line_end < 0 else line_end]
    return Edit(place.offset, place.offset, "\n" + block + ("\n" if rest.strip() else ""))


def _block(
    place: _Place, kernel: Kernel, rewrite: Rewrite, guard: InstanceGuard, includes: str,
    waits: bool,
) -> str:  # fmt: skip
    """The inserted bytes: the rewrite's device code in its namespace, then the wrapper. `waits`:
    the author's kernel does, for its grid."""
    names = {launch.name for _, launch in place.replaced}
    together = TOGETHER in names or (waits and bool(CONFIGURED & names))
    exported = bool(place.declared)
    wrapper = wrapper_text(
        kernel, *signature_of(kernel), rewrite, guard, together=together, is_exported=exported
    )
    for other in place.others:
        wrapper += passed_on_text(kernel, other, *signature_of(other))
    if place.through_pointers and not all(launch.packed for _, launch in place.replaced):
        wrapper += dispatch_text(kernel)
    if packed := sorted({launch.name for _, launch in place.replaced if launch.packed}):
        wrapper += packed_text(kernel, packed, guard)
    host = (helpers_text(wrapper, guard), wrapper.rstrip("\n"))
    return _framed(place, kernel, rewrite, includes, host)


def _framed(
    place: _Place, kernel: Kernel, rewrite: Rewrite, includes: str, host: Sequence[str]
) -> str:
    """`host`: what the rewrite's namespace needs beside it and what is behind that; empty where
    no text launches it."""
    helpers, wrapper = ([one] for one in host) if host else ([], [])
    lexed = lex(byte_text(rewrite.source))
    body = plain_text(apply_edits(lexed.text, body_edits(lexed, frozenset(rewrite.values()))))
    fence = Fence.of(rewrite)
    lines = [
        f"{_BEGIN} {_one_line(f'{rewrite.title} ({rewrite.proposer}, {rewrite.id})')}",
        *(includes.splitlines() if place.is_global else []),
        *fence.define,
        *fence.begin,
        *macro_prologue(rewrite, place.later),
        f"namespace {namespace_name(kernel)} {{",
        body.strip("\n"),
        *helpers,
        f"}}  // namespace {namespace_name(kernel)}",
        *macro_epilogue(rewrite, place.later),
        *fence.end,
        *wrapper,
        *fence.undefine,
        _END,
    ]
    if place.in_linkage_block:
        lines = ['extern "C++" {', *lines, "}"]
    return byte_text("\n".join(lines))


def _one_line(text: str) -> str:
    return " ".join(text.replace("\\", "/").split())


def _missing_includes(program: Program, rewrite: Rewrite) -> str:
    lines = hoisted_includes(lex(byte_text(rewrite.source)))
    known = set(program.system_includes)
    return "".join(
        f"{line}\n" for line in lines if line.removeprefix("#include").strip()[1:-1] not in known
    )


def _calls(
    program: Program, facts: Outline, site: LaunchSite, launch: LaunchCall, kernel: Kernel,
    place: _Place,
) -> list[Edit]:  # fmt: skip
    """What stands for `kernel<<<...>>>(`: where directives or macros choose the geometry, around
    them; and for arguments that are left out, if only a declaration of the kernel says their
    defaults."""
    behind = []
    if not all(defaults_of(signature_of(kernel).parameters)[len(launch.arguments) :]):
        behind = left_out([_facts(program, f.path) for f in program.files], launch)
    between = launch.between
    if between is None and not launch.packed:
        parts = [facts.lexed.text[p.start : p.end] for p in launch.geometry]
        lexed = (_facts(program, f.path).lexed for f in program.files)
        if len(parts) == 1 or stand_for_several(parts, lexed):
            between = ByteRange(launch.geometry[0].start, launch.geometry[-1].end)
    if between is None:
        text = _call(facts, site, launch, kernel, place)
        return [Edit(site.start_byte, launch.open_paren + 1, text), *behind]
    if place.through_pointers:
        raise InputError(
            f"{site.file}:{site.line}: directives, or a macro for several values, stand between "
            f"<<< and >>> of a launch through a pointer; write "
            f"`{kernel.plain_name}<<<grid, block>>>(..)` on a line of its own"
        )
    name = _wrapper_at(facts, site, kernel, place)
    begin = (
        "[](dim3 grid_, dim3 block_, size_t smem_ = 0, cudaStream_t stream_ = 0) { "
        f"return [=](auto... given_) {{ {name}(grid_, block_, smem_, stream_, given_...); }}; }}("
    )
    return [
        Edit(site.start_byte, between.start, begin),
        Edit(between.end, launch.open_paren, ")"),
        *behind,
    ]


def _call(
    facts: Outline, site: LaunchSite, launch: LaunchCall, kernel: Kernel, place: _Place
) -> str:
    """What stands for `kernel<<<...>>>(` in one piece."""
    text = facts.lexed.text
    parts = [text[p.start : p.end] for p in launch.geometry]
    parts += ["0"] * (4 - len(parts))
    callee = text[launch.callee.start : launch.callee.end]
    if launch.packed:
        packed = _spelled(kernel.plain_name, kernel, place, packed_name(kernel, launch.name))
        return f"{packed}("
    if place.through_pointers:
        dispatch = _spelled(kernel.plain_name, kernel, place, dispatch_name(kernel))
        return f"{dispatch}({', '.join([callee, *parts])}" + (", " if site.args else "")
    name = _wrapper_at(facts, site, kernel, place)
    return f"{name}({', '.join(parts)}" + (", " if site.args else "")


def _wrapper_at(facts: Outline, site: LaunchSite, kernel: Kernel, place: _Place) -> str:
    """The wrapper, with the template arguments that the launch spells."""
    name = _spelled(byte_text(site.callee), kernel, place, wrapper_name(kernel))
    holder = facts.item_at(site.start_byte)
    outside = holder is None or holder.namespaces[: len(place.namespaces)] != place.namespaces
    if outside and "::" not in name and place.namespaces:  # by a `using` of the kernel's name
        name = "::".join(["", *place.namespaces, name])
    if site.template_arguments is None:
        return name
    return f"{name}<{byte_text(site.template_arguments)}>"


def _spelled(callee: str, kernel: Kernel, place: _Place, function: str) -> str:
    prefix = callee.partition("<")[0].rstrip().removesuffix(byte_text(kernel.plain_name))
    if place.after_kernel:
        return prefix + function
    qualified = "::".join((*place.namespaces, function))
    return f"::{qualified}" if place.namespaces else qualified
