"""Pure text to text: a program whose launches go to our shim, and the parts that kernels need.

Every line stays where it is, so that what a compiler says of the result is true of the original.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from itertools import pairwise
from pathlib import PurePath

from cudaops.domain.program import Kernel, LaunchSite, Program
from cudaops.errors import InputError
from cudaops.program.candidate import Dialect, candidate_text
from cudaops.program.clusters import authors_cluster
from cudaops.program.dialect import (
    SharedGlobal,
    dialect_edits,
    lenient_edits,
    macro_names,
    shared_global_edits,
    shared_globals,
    without_shared_globals,
)
from cudaops.program.front_end import launched_instances
from cudaops.program.instances import deduce_instance, plain_arguments
from cudaops.program.launches import (
    GRAPH_CHANGES,
    PACKED,
    LaunchCall,
    find_launches,
    macro_parameters,
)
from cudaops.program.lexing import (
    Edit,
    Lexed,
    apply_edits,
    byte_text,
    disjoint,
    hollow,
    lex,
    one_line,
    plain_text,
    split_commas,
)
from cudaops.program.outline import Declaration, Outline, members, outline, spaces_of
from cudaops.program.overloads import Probes, left_out

__all__ = ["Dialect", "candidate_text", "deduce_instance", "device_view_files", "rerouted_files"]

_SHIM = "::cudaops"
_USING_NAMESPACE = re.compile(r"\busing\s+namespace\b")


def rerouted_files(
    program: Program, *, dialect: Dialect = "gcc", shim: str = _SHIM
) -> dict[str, str]:
    """Path to text of every file, for running the whole program with its launches seen.

    `k<<<g, b, s, st>>>(a)` becomes `::cudaops::launch(SITE, "k", g, b, s, st).of(k)(a)`; where the
    compiler must choose the instance, `.deduced([&](auto&&... x){ k(x...); })(a)`, in the `cuda`
    dialect `.deduced([&](const auto& g, auto&&... x){ k<<<g.grid, ...>>>(x...); })(a)`. Of several
    kernels of one name it is told by `Probes`, and its address is handed over.
    `shim` is the namespace of `launch`. Where the kernel has clusters, `.clusters(X, Y, Z)` stands
    before that for a processor.
    """
    return _Rewriter(program, dialect, shim).files(host=True)


def device_view_files(
    program: Program, *, dialect: Dialect = "gcc", widened: bool = False
) -> dict[str, str]:
    """The same without the bodies of host-only functions: what the kernels need to compile.
    `widened`: methods of the host have none either, but for constructors and destructors; they may
    hand a `float` on to a library, which takes no `double`."""
    rewriter = _Rewriter(program, dialect, _SHIM)
    rewriter.methods = not widened
    files = rewriter.files(host=False)
    parts = () if program.build is None else program.build.parts
    folder = PurePath(program.main_path).parent
    lines = [f'#include "{os.path.relpath(part, folder)}"\n' for part in parts]
    if lines:
        files[program.main_path] += "\n" + "".join(lines)
    return files


def kernel_registrations(program: Program) -> list[str]:
    """Lines behind the program, by which launches through a pointer are told by their kernel's
    name; empty where every launch names its kernel. Of templates those instances have one that the
    program names by numbers and C++'s own types; those of overloaded kernels are beside them
    (`Probes`)."""
    names = Counter(k.name for k in program.kernels)
    plain = {k.plain_name for k in program.kernels}
    named_by_launches = all(site.kernel in plain for site in program.launches)
    changing = any(name in file.text for file in program.files for name in GRAPH_CHANGES)
    if named_by_launches and not changing:
        return []
    tokens = [t for file in program.files for t in lex(byte_text(file.text)).tokens]
    found = []
    for k in program.kernels:
        if names[k.name] > 1 or k.needs_types:
            continue
        given: list[tuple[str, ...]] = [()]
        if k.template_parameters:
            named = plain_arguments(tokens, k.plain_name)
            given = [each for each in named if len(each) == len(k.template_parameters)]
        for each in given:
            instance = f"<{', '.join(each)}>" if each else ""
            found.append(
                f"CUDAOPS_KERNEL({json.dumps(k.name)}, (&::{k.qualified_name}{instance}));"
            )
    return found


_DEDUCED: dict[Dialect, str] = {
    "gcc": ".deduced([&](auto&&... cudaops_a){ CALLEE(cudaops_a...); })",
    "cuda": ".deduced([&](const auto& cudaops_g, auto&&... cudaops_a){ CALLEE<<<cudaops_g.grid,"
    " cudaops_g.block, cudaops_g.shared_bytes, cudaops_g.stream>>>(cudaops_a...); })",
}


class _Rewriter:
    def __init__(self, program: Program, dialect: Dialect, shim: str) -> None:
        self.program = program
        self.dialect = dialect
        self.shim = shim
        raws = {f.path: byte_text(f.text) for f in program.files}
        spaces = spaces_of(raws.values())
        self.outlines = {path: outline(raw, spaces) for path, raw in raws.items()}
        self.macros = frozenset(m for o in self.outlines.values() for m in macro_names(o.lexed))
        self.shared: list[SharedGlobal] = (
            [s for o in self.outlines.values() for s in shared_globals(o)]
            if dialect == "gcc"
            else []
        )
        self.sites = {(s.file, s.start_byte): s for s in program.launches}
        self.overloads = Counter(k.plain_name for k in program.kernels)
        self.templates = {
            k.name for k in program.kernels if k.template_parameters and not k.needs_types
        }
        self.probes = Probes(program.kernels, self.outlines, self._unclear())
        self.methods = True
        """Whether methods of the host keep their bodies in a device view."""
        self.directed = any(_USING_NAMESPACE.search(raw) for raw in raws.values())

    def files(self, *, host: bool) -> dict[str, str]:
        return {path: plain_text(self._file(path, host)) for path in self.outlines}

    def _file(self, path: str, host: bool) -> str:
        facts = self.outlines[path]
        # A device view has no shim: a launch that is left may only run on the host, as written.
        rerouted = host or self.dialect == "gcc"
        edits = self._launch_edits(path, facts.lexed) if rerouted else []
        probes = self.probes.beside(path, registers=host) if rerouted else []
        edits += [Edit(at, at, text) for at, text in probes]
        if self.dialect == "gcc":
            edits += dialect_edits(facts.lexed, self.macros, author=True)
            edits += lenient_edits(facts)
            edits += shared_global_edits(facts, self.shared)
        holes = without_shared_globals(facts) if self.dialect == "gcc" else []
        if not host:
            holes += [_removed(facts, i) for i in facts.items if _goes(i)]
            holes += [
                _without_body(facts, i) for i in facts.items if i.is_host_only and not _goes(i)
            ]
            if not self.methods:
                holes += [
                    _without_body(facts, m)
                    for i in facts.items
                    for m in members(facts, i)
                    if _is_plain_method(m, facts)
                ]
        kept = [e for e in edits if not any(h.start <= e.start < h.end for h in holes)]
        return apply_edits(facts.lexed.text, disjoint([*kept, *holes]))

    def _launch_edits(self, path: str, lexed: Lexed) -> list[Edit]:
        edits = []
        for launch in find_launches(lexed):
            site = self.sites.get((path, launch.start))
            if launch.packed:
                edits += [] if site is None else self._packed(site, launch, lexed)
                continue
            if site is not None:
                edits += self._rerouted(site, launch, lexed)
            elif self.dialect == "gcc" and self.outlines[path].is_in_device_code(launch.start):
                edits.append(self._by_a_kernel(launch, lexed))
            edits += left_out(self.outlines.values(), launch)
        return edits

    def _by_a_kernel(self, launch: LaunchCall, lexed: Lexed) -> Edit:
        """A launch in device code, which nothing records: it is a part of its kernel's."""
        parts = _geometry(launch, lexed)
        callee = one_line(lexed, *launch.callee)
        kernel = self._kernel(launch.name)
        plain = kernel is not None and not (kernel.template_parameters or kernel.shares_name)
        if plain and self.overloads[launch.name] == 1:
            started = f".of({callee})"
        else:
            started = f".deduced([](auto... cudaops_a) {{ {callee}(cudaops_a...); }})"
        text = f'{self.shim}::launch(-1, "{launch.name}", {parts}){started}'
        return _in_its_place(launch, lexed, text)

    def _packed(self, site: LaunchSite, launch: LaunchCall, lexed: Lexed) -> list[Edit]:
        """The call by another name, and by its site."""
        number = str(site.index)
        if (found := self._template_instance(launch, lexed)) is not None:
            name, instance = found
            number = f'(::cudaops::name_instance<CUDAOPS_LAUNCH>("{name}", &{instance}), {number})'
        text = f"{self.shim}::{PACKED[launch.name]}({number}, "
        if len(launch.arguments) > 1:
            kernel = one_line(lexed, *launch.arguments[1]).partition("<")[0]
            words = re.findall(r"\w+", kernel)
            text += f'"{words[-1] if words and words[-1] in self.overloads else launch.name}", '
        return [Edit(launch.start, launch.open_paren + 1, text)]

    def _template_instance(self, launch: LaunchCall, lexed: Lexed) -> tuple[str, str] | None:
        """Name and text of the instance of a kernel template that a packed launch is given."""
        tokens = [t for t in lexed.tokens if launch.open_paren < t.start < launch.end]
        for at, (token, after) in enumerate(pairwise(tokens)):
            if token.text not in self.templates or after.text != "<":
                continue
            first = at
            while (
                first >= 2 and tokens[first - 1].text == "::" and tokens[first - 2].kind == "name"
            ):
                first -= 2
            deep = 0
            for end in tokens[at + 1 :]:
                deep += {"<": 1, ">": -1, ">>": -2}.get(end.text, 0)
                if deep == 0:
                    return token.text, one_line(lexed, tokens[first].start, end.end)
        return None

    def _rerouted(self, site: LaunchSite, launch: LaunchCall, lexed: Lexed) -> list[Edit]:
        callee = self._named(one_line(lexed, *launch.callee), site)
        known = site.kernel in self.overloads
        name = f'"{site.kernel}"' if known else _name_in_macro(launch, lexed)
        instance = self._instance(site, launch) if self._must_deduce(site, launch) else None
        chosen = None
        if launch.name in self.probes.kernels and instance is None:
            arguments = [one_line(lexed, p.start, p.end) for p in launch.arguments]
            chosen = self.probes.chosen(launch.name, callee, arguments)
        begin = f"{self.shim}::launch({site.index}, {chosen.name if chosen else name}, "
        call = ")" + self._clusters(site)
        if chosen:
            call += f".of({chosen.address})"
        elif instance:
            call += f".of({instance})"
        elif self._must_deduce(site, launch):
            call += _DEDUCED[self.dialect].replace("CALLEE", callee)
        else:
            call += f".of({callee})"
        if chosen and chosen.completed and launch.between is None:
            text = f"{chosen.completed}({begin}{_geometry(launch, lexed)}{call}"
            started = _in_its_place(launch, lexed, text + ", " * bool(launch.arguments))
            return [started._replace(end=launch.open_paren + 1)]
        if launch.between is not None:
            first, last = launch.between
            after = "\n" * lexed.text.count("\n", last, launch.open_paren)
            before = "\n" * lexed.text.count("\n", launch.start, first)
            return [
                Edit(launch.start, first, begin + before),
                Edit(last, launch.open_paren, call + after),
            ]
        text = f"{begin}{_geometry(launch, lexed)}{call}"
        return [_in_its_place(launch, lexed, text)]

    def _clusters(self, site: LaunchSite) -> str:
        """What a processor is told of a kernel that has clusters; a GPU has it compiled in."""
        if self.dialect != "gcc":
            return ""
        written = "".join(site.callee.partition("<")[0].split()).removeprefix("::")
        named = [k for k in self.program.kernels if k.plain_name == site.kernel]
        meant = [k for k in named if f"::{k.qualified_name}".endswith(f"::{written}")] or named
        # A name is looked up outwards: of `twice` and `cudaops_twice::twice` it is the first one's.
        outermost = min((k.qualified_name.count("::") for k in meant), default=0)
        meant = [k for k in meant if k.qualified_name.count("::") == outermost]
        found = {authors_cluster(self.program, kernel) for kernel in meant}
        if len(found) > 1:
            raise InputError(
                f"the launch of `{site.callee}` names kernels with and without clusters, or with "
                "several; call them otherwise"
            )
        cluster = found.pop() if found else None
        return "" if cluster is None else f".clusters({cluster.x}, {cluster.y}, {cluster.z})"

    def _unclear(self) -> set[str]:
        """Templates of which the compiler chooses the instance and clang does not tell it."""
        found = set()
        for path, facts in self.outlines.items():
            for launch in find_launches(facts.lexed):
                site = self.sites.get((path, launch.start))
                if site is None or launch.packed or launch.name not in self.overloads:
                    continue
                if self._must_deduce(site, launch) and self._instance(site, launch) is None:
                    found.add(launch.name)
        return found

    def _instance(self, site: LaunchSite, launch: LaunchCall) -> str | None:
        """The one instance that a launch means, where clang can tell."""
        kernel = self._kernel(site.kernel)
        if launch.directive is not None or self.overloads[site.kernel] > 1:
            return None
        if kernel is not None and kernel.shares_name:
            return None
        found = {
            one.callee
            for one in launched_instances(self.program)
            if (one.file, one.start, one.is_only) == (site.file, site.start_byte, True)
        }
        return f"::{found.pop()}" if len(found) == 1 else None

    def _named(self, callee: str, site: LaunchSite) -> str:
        """The callee so that it names one function: under `using namespace std`, `fill` alone is
        also `std::fill`, which a launch's arguments would tell apart but an address does not."""
        kernel = self._kernel(site.kernel)
        if not self.directed or kernel is None or kernel.qualified_name != kernel.plain_name:
            return callee
        return f"::{callee}" if re.match(rf"{kernel.plain_name}\b(?!::)", callee) else callee

    def _must_deduce(self, site: LaunchSite, launch: LaunchCall) -> bool:
        """Whether the callee alone does not name one function."""
        if launch.name != site.kernel and not launch.macro_parameter:
            return False
        if self.overloads[site.kernel] > 1:
            return True
        kernel = self._kernel(site.kernel)
        if kernel is None or not kernel.template_parameters:
            return False
        written = split_commas(lex(byte_text(site.template_arguments or "")).tokens, angles=True)
        return launch.macro_parameter or len(written) < len(kernel.template_parameters)

    def _kernel(self, name: str) -> Kernel | None:
        return next((k for k in self.program.kernels if k.plain_name == name), None)


def _name_in_macro(launch: LaunchCall, lexed: Lexed) -> str:
    """The last name of a callee, as a macro with parameters writes it: `#NAME "_kernel"`."""
    parameters = () if launch.directive is None else macro_parameters(lexed, launch.directive)
    pieces = launch.name.split("##") if parameters else [launch.name]
    return " ".join(f"#{one}" if one in parameters else f'"{one}"' for one in pieces)


def _geometry(launch: LaunchCall, lexed: Lexed) -> str:
    """What is between `<<<` and `>>>`, as arguments of a function."""
    parts = [one_line(lexed, p.start, p.end) for p in launch.geometry]
    parts[:2] = [f"dim3{p}" if p.startswith("{") else p for p in parts[:2]]
    return ", ".join(parts)


def _in_its_place(launch: LaunchCall, lexed: Lexed, text: str) -> Edit:
    """The text up to the arguments, every line where it was."""
    lines = lexed.text.count("\n", launch.start, launch.open_paren)
    text += ("\n" if launch.directive is None else "\\\n") * lines
    return Edit(launch.start, launch.open_paren, text)


def _goes(item: Declaration) -> bool:
    """Items that have no place in a device view, not even as a declaration."""
    if item.kind == "instantiation":
        return not item.spaces & {"__global__", "__device__"}
    whole = "::" in item.name or item.qualified_name == "main" or "try" in item.specifiers
    return item.is_host_only and whole


_NO_TYPE = frozenset({"inline", "explicit", "static", "__host__"})


def _is_plain_method(item: Declaration, facts: Outline) -> bool:
    """A method of the host, of whose words each is known. One with a deduced type needs its body,
    and so does what variables at file scope call: constructors and destructors, which have no
    type, and virtual ones."""
    if item.parameters is None or item.body is None or not item.is_host_only:
        return False
    first = item.first if item.template is None else item.template[1] + 1
    head = facts.tokens[first : item.parameters[0] - 1]
    typed = any(t.kind == "name" and t.text not in _NO_TYPE for t in head)
    words = item.specifiers - _NO_TYPE
    unknown = any(len(w) > 1 and (w.isupper() or w.startswith("__")) for w in words)
    return typed and not unknown and not words & {"auto", "virtual", "override"}


def _removed(facts: Outline, item: Declaration) -> Edit:
    return Edit(item.start, item.end, hollow(facts.lexed, item.start, item.end))


def _without_body(facts: Outline, item: Declaration) -> Edit:
    assert item.body is not None
    start, end = facts.tokens[item.body[0]].start, facts.tokens[item.body[1]].end
    return Edit(start, end, ";" + hollow(facts.lexed, start, end)[1:])
