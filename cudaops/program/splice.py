"""Put a rewrite into the author's file: device code, a host wrapper, and nothing else changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, zip_longest
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
from cudaops.program.instances import template_arguments
from cudaops.program.launches import CONFIGURED, PACKED, TOGETHER, Launch, find_launches
from cudaops.program.lexing import (
    Edit,
    apply_edits,
    byte_text,
    lex,
    plain_text,
)
from cudaops.program.macros import launches_written_out
from cudaops.program.outline import Outline, outline, space_aliases
from cudaops.program.overloads import signature_of
from cudaops.program.parse import parse_files
from cudaops.program.plans import make_rewrite
from cudaops.program.wrapper import (
    HELPERS_BEGIN,
    NAMESPACE_PREFIX,
    Fence,
    Guard,
    dispatch_name,
    dispatch_text,
    helpers_text,
    namespace_name,
    packed_name,
    packed_text,
    passed_on_text,
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
    facts = _facts(program, place.file)
    includes = _missing_includes(program, rewrite)
    guard = _guard(program, target, wanted)
    waits = author_waits(program, target)
    edits = [_insertion(facts, place, _block(place, target, rewrite, guard, includes, waits))]
    edits += [
        Edit(site.start_byte, launch.open_paren + 1, _call(facts, site, launch, target, place))
        for site, launch in place.replaced
    ]
    if not place.is_global:
        top = 3 if facts.lexed.text.startswith(_BYTE_ORDER_MARK) else 0
        edits.append(Edit(top, top, includes))
    return _with_texts(program, {place.file: plain_text(apply_edits(facts.lexed.text, edits))})


def _with_texts(program: Program, texts: Mapping[str, str]) -> Program:
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


def can_be_replaced(program: Program, kernel: str) -> bool:
    """Whether a launch names this kernel, so that a rewrite can stand in its place; of another
    program's launches (`Program.application`) every one is."""
    if program.application is not None:
        return True
    written, target = _written_out(program, program.kernel(kernel))
    return any(_is_replaced(written, site, target, ()) for site in written.launches) or bool(
        _through_pointers(written, target)
    )


def _written_out(program: Program, kernel: Kernel) -> tuple[Program, Kernel]:
    """The program with the macros written out that launch this kernel by a parameter of theirs."""
    texts = launches_written_out({f.path: f.text for f in program.files}, kernel.plain_name)
    if not texts:
        return program, kernel
    found = _with_texts(program, texts)
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
    return _with_texts(program, {kernel.file: plain_text(apply_edits(facts.lexed.text, edits))})


def spliced_rewrite(program: Program, again: Callable[[Rewrite], Program]) -> Rewrite | None:
    """The rewrite that `splice` put into the author's program, its tuned values with it; None where
    none is there.

    Raises InputError where the program is not what `again` makes of the author's with this rewrite:
    what is judged would not be what stands there.
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
    aliases = frozenset(a for f in program.files for a in space_aliases(lex(byte_text(f.text))))
    return outline(byte_text(program.file(path).text), aliases)


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
    replaced: tuple[tuple[LaunchSite, Launch], ...]
    through_pointers: bool = False
    """None of them names the kernel: which one it is shows when the program runs."""
    others: tuple[Kernel, ...] = ()
    """Of the same name, which they may mean as well."""

    @staticmethod
    def of(program: Program, kernel: Kernel, wanted: Sequence[str]) -> _Place:
        """Right after the kernel where its launches follow in the same file, else before the
        declaration that holds the first launch."""
        sites = [s for s in program.launches if _is_replaced(program, s, kernel, wanted)]
        through = [] if sites else _through_pointers(program, kernel)
        sites = sites or through
        if not sites:
            raise InputError(
                f"no launch of `{kernel.name}` names it directly, so none can be replaced; "
                "write `kernel<<<grid, block>>>(..)` at the launch"
            )
        path = sites[0].file
        facts = _facts(program, path)
        here = [s for s in sites if s.file == path]
        first = min(s.enclosing_start_byte for s in here)
        others = [] if through else _others(program, here, kernel)
        family = (kernel, *others)
        last = max(family, key=lambda k: k.end_byte)
        after = all(k.file == path and k.end_byte <= first for k in family)
        if late := [k for k in others if k.file == path and k.end_byte > first]:
            raise InputError(
                f"`{late[0].name}` is defined below a launch of `{kernel.plain_name}` that may be "
                "of either; move it above"
            )
        holder = facts.item_at(last.start_byte if after else here[0].start_byte)
        launches = {launch.start: launch for launch in find_launches(facts.lexed)}
        return _Place(
            file=path,
            offset=last.end_byte if after else first,
            after_kernel=after,
            is_global=holder is None or holder.is_global,
            in_linkage_block=holder is not None and holder.in_linkage_block,
            namespaces=() if holder is None else holder.namespaces,
            replaced=tuple((s, launches[s.start_byte]) for s in here),
            through_pointers=bool(through),
            others=tuple(others),
        )


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
        if site.kernel not in names
        and site.template_arguments is None
        and not site.in_macro
        and site.kernel != "cudaGraphAddKernelNode"
        and (site.kernel in PACKED or not kernel.template_parameters)
    ]


def _is_replaced(program: Program, site: LaunchSite, kernel: Kernel, wanted: Sequence[str]) -> bool:
    name = site.callee.partition("<")[0].strip().split("::")[-1].strip()
    if name != kernel.plain_name or not _may_mean(program, site, kernel):
        return False
    if not wanted or site.template_arguments is None:
        return True
    if _normal(site.template_arguments) in map(_normal, wanted):
        return True
    return is_dependent(program, site)


def _may_mean(program: Program, site: LaunchSite, kernel: Kernel) -> bool:
    """Whether a launch is of this kernel's name, and not known to be of others that have it."""
    if site.kernel != kernel.plain_name:
        return False
    return not kernel.is_overloaded or kernel.name in _meant(program, site, kernel)


def _meant(program: Program, site: LaunchSite, kernel: Kernel) -> set[str]:
    """Those of the kernels with this one's qualified name that a launch may mean: by clang, or all
    of them."""
    named = [k for k in program.kernels if k.qualified_name == kernel.qualified_name]
    places = [
        one.defined
        for one in launched_instances(program)
        if (one.file, one.start) == (site.file, site.start_byte)
    ]
    found = {
        k.name
        for k in named
        for place in places
        if place is not None and place.file == k.file and k.start_byte <= place.start < k.end_byte
    }
    return found or {k.name for k in named}


def is_dependent(program: Program, site: LaunchSite) -> bool:
    """Whether the launch names its instance by parameters of the template that it stands in, or by
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


def _guard(program: Program, kernel: Kernel, wanted: Sequence[str]) -> Guard:
    """Empty where every replaced launch spells its instance itself."""
    if not wanted:
        return Guard(())
    sites = [s for s in program.launches if _is_replaced(program, s, kernel, wanted)]
    known = {_normal(w) for w in wanted}
    if sites and all(_normal(s.template_arguments or "") in known for s in sites):
        return Guard(())
    return Guard(tuple(template_arguments(f"<{w}>") for w in wanted))


def _insertion(facts: Outline, place: _Place, block: str) -> Edit:
    """The block on lines of its own."""
    if not place.after_kernel:
        return Edit(place.offset, place.offset, block + "\n")
    line_end = facts.lexed.text.find("\n", place.offset)
    rest = facts.lexed.text[place.offset : None if line_end < 0 else line_end]
    return Edit(place.offset, place.offset, "\n" + block + ("\n" if rest.strip() else ""))


def _block(
    place: _Place, kernel: Kernel, rewrite: Rewrite, guard: Guard, includes: str, waits: bool
) -> str:
    """The inserted bytes: the rewrite's device code in its namespace, then the wrapper. `waits`:
    the author's kernel does, for its grid."""
    names = {launch.name for _, launch in place.replaced}
    together = TOGETHER in names or (waits and bool(CONFIGURED & names))
    wrapper = wrapper_text(kernel, *signature_of(kernel), rewrite, guard, together=together)
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
    """`host`: what the rewrite's namespace needs beside it and what stands behind that; empty where
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
        *macro_prologue(rewrite),
        f"namespace {namespace_name(kernel)} {{",
        body.strip("\n"),
        *helpers,
        f"}}  // namespace {namespace_name(kernel)}",
        *macro_epilogue(rewrite),
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


def _call(facts: Outline, site: LaunchSite, launch: Launch, kernel: Kernel, place: _Place) -> str:
    """What stands for `kernel<<<...>>>(`."""
    text = facts.lexed.text
    parts = [text[p.start : p.end] for p in launch.geometry]
    parts += ["0"] * (4 - len(parts))
    arguments = text[launch.template.start : launch.template.end] if launch.template else None
    callee = text[launch.callee.start : launch.callee.end]
    if launch.packed:
        packed = _spelled(kernel.plain_name, kernel, place, packed_name(kernel, launch.name))
        return f"{packed}("
    if place.through_pointers:
        dispatch = _spelled(kernel.plain_name, kernel, place, dispatch_name(kernel))
        return f"{dispatch}({', '.join([callee, *parts])}" + (", " if site.args else "")
    name = _spelled(callee, kernel, place, wrapper_name(kernel))
    holder = facts.item_at(site.start_byte)
    outside = holder is None or holder.namespaces[: len(place.namespaces)] != place.namespaces
    if outside and "::" not in name and place.namespaces:  # by a `using` of the kernel's name
        name = "::".join(["", *place.namespaces, name])
    name += "" if arguments is None else f"<{arguments}>"
    return f"{name}({', '.join(parts)}" + (", " if site.args else "")


def _spelled(callee: str, kernel: Kernel, place: _Place, function: str) -> str:
    prefix = callee.partition("<")[0].rstrip().removesuffix(byte_text(kernel.plain_name))
    if place.after_kernel:
        return prefix + function
    qualified = "::".join((*place.namespaces, function))
    return f"::{qualified}" if place.namespaces else qualified
