"""A version of a kernel: device source, launch, and the steps that led to it.

A draft begins as a copy of the author's kernel, or as somebody's rewrite. A transformation gives
another draft; what it reads of one is what clang and the analysis say of the draft's own text, so
that each builds on what the others left.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from cudaops.domain.program import Kernel, Program, SourceFile
from cudaops.domain.rewrite import NumberValue, ResolvedLaunch, Rewrite
from cudaops.domain.workload import (
    Argument,
    NullArgument,
    OpaqueArgument,
    PointerArgument,
    ScalarArgument,
    Workload,
)
from cudaops.errors import PlanError
from cudaops.program import syntax as s
from cudaops.program.analysis.facts import KernelFacts
from cudaops.program.analysis.kernel import analyse
from cudaops.program.analysis.values import Launched
from cudaops.program.candidate import NAMESPACE
from cudaops.program.dialect import declaring_shared_globals
from cudaops.program.expressions import Environment, evaluate, folded, parse
from cudaops.program.front_end import kernel_form
from cudaops.program.grammar import is_small
from cudaops.program.launch_expression import (
    ONE,
    ZERO,
    LaunchExpression,
    Variable,
    build,
)
from cudaops.program.lexing import byte_text, plain_text
from cudaops.program.macros import later_macros
from cudaops.program.outline import outline
from cudaops.program.parse import parse_files
from cudaops.program.plans import captured_value, environment, make_rewrite, resolve
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.conditions import decided, resolved
from cudaops.transformations.namespaces import copied, meaning
from cudaops.transformations.spaces import with_spaces
from cudaops.transformations.text import FunctionText

FILE = "cudaops-draft.cu"
"""Name of the draft's text among the program's files."""
PROPOSER = "engine"
_LINKAGE = re.compile(r'\bextern\s*"C"\s*(?!\{)')
_DIRECTIVE = re.compile(r"^[ \t]*//[ \t]*@(launch|tune|requires|scratch)\b.*\n?", re.MULTILINE)
_USING = re.compile(r"^using ::[\w:]+;\n+", re.MULTILINE)
_NO_CODE = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
"""Comments and strings, as a regular expression."""


@dataclass(frozen=True)
class Subject:
    """What is to be made faster."""

    program: Program
    """The author's."""
    kernel: Kernel
    workloads: tuple[Workload, ...]
    """Of one instance of the kernel, the most expensive first."""


@dataclass(frozen=True)
class Step:
    """One transformation, as it was applied."""

    name: str
    setting: Mapping[str, int | str]
    """What `Transformation.apply` was given."""
    says: str
    """What it did, for the reader of the rewrite: a sentence."""
    kernel: str = ""
    """Where a draft has several launches: the one that it was made at, by its kernel; empty for the
    one that descends from the launch that the draft began with."""


Extents = tuple[LaunchExpression, LaunchExpression, LaunchExpression]


@dataclass(frozen=True)
class DraftLaunch:
    """One launch of a draft. Expressions are those of launch plans, over the author's kernel."""

    kernel: str
    """Name of the function in the draft's text."""
    grid: Extents
    block: Extents
    args: tuple[LaunchExpression, ...]
    smem: LaunchExpression = ZERO
    template: str = ""
    """`<float, 4>`; empty for a plain function."""

    @property
    def has_flat_block(self) -> bool:
        """Whether all threads of a block stand in a row along x."""
        return self.block[1:] == (ONE, ONE)

    @property
    def directive(self) -> str:
        """As a rewrite says it."""
        smem = "" if self.smem == ZERO else f" smem={self.smem}"
        return (
            f"// @launch {self.kernel}{self.template} grid=({_extents(self.grid)}) "
            f"block=({_extents(self.block)}){smem} args=({', '.join(map(str, self.args))})"
        )


def _extents(extents: Extents) -> str:
    kept = list(extents)
    while len(kept) > 1 and kept[-1] == ONE:
        kept.pop()
    return ", ".join(map(str, kept))


@dataclass(frozen=True)
class Draft:
    """Everything a rewrite is made of, and what is known of it.

    The kernel that transformations work on is that of the launch at `focus`.
    """

    subject: Subject
    text: str
    """Device code without directives."""
    launches: tuple[DraftLaunch, ...]
    scratch: tuple[tuple[str, LaunchExpression], ...] = ()
    """(name, bytes)."""
    requires: tuple[LaunchExpression, ...] = ()
    steps: tuple[Step, ...] = ()
    focus: int = 0
    taken: frozenset[str] = field(default=frozenset(), compare=False)
    """Names that the author's program uses."""

    # Beginnings

    @classmethod
    def of(cls, subject: Subject) -> Draft:
        """The author's kernel under another name, launched as it was. Raises NotUnderstood."""
        kernel, workloads = subject.kernel, subject.workloads
        template = ""
        if kernel.template_parameters:
            found = {w.callee.partition("<")[2].rpartition(">")[0] for w in workloads}
            if len(found) != 1 or not (arguments := found.pop()):
                raise NotUnderstood("template arguments that differ or are not written")
            template = f"<{arguments}>"
        taken = _names(f.text for f in subject.program.files)
        name = _free(f"{kernel.plain_name}_fast", taken)
        written = kernel.text
        if "#" in written:
            form = kernel_form(subject.program, kernel, workloads[0].callee if template else None)
            written = resolved(written, form.kernel, kernel.start_byte)
        written = with_spaces(subject.program, written, "__global__")
        namespaces = kernel.qualified_name.split("::")[:-1]
        texts = (f.text for f in subject.program.files)
        written = declaring_shared_globals(written, texts, tuple(namespaces))
        own = rf"\b{re.escape(kernel.plain_name)}\b(?=\s*\()"  # a variable may have the name too
        text = re.sub(own, name, _LINKAGE.sub("", written), count=1)
        using, text = copied(subject.program, text.strip(), namespaces, template)
        launch = DraftLaunch(
            name,
            _trimmed("gridDim", workloads),
            _trimmed("blockDim", workloads),
            tuple(Variable(p.name) for p in kernel.parameters),
            Variable("smem") if any(w.dynamic_smem_bytes for w in workloads) else ZERO,
            template,
        )
        whole = "\n".join([*using, *([""] if using else []), text]) + "\n"
        draft = cls(subject, whole, (launch,), taken=taken)
        if namespaces:
            author = kernel_form(subject.program, kernel, workloads[0].callee)
            if meaning(author, FILE) != meaning(draft.form, FILE):
                raise NotUnderstood(
                    f"the meaning outside of it of names of {kernel.qualified_name}"
                )
        with contextlib.suppress(NotUnderstood):  # it stays as its author wrote it
            body = decided(draft.form.kernel)
            return draft if body is draft.form.kernel.body else draft.with_body(body)
        return draft

    @classmethod
    def from_rewrite(cls, subject: Subject, rewrite: Rewrite) -> Draft:
        """A rewrite of somebody's, its tune values in place. Raises NotUnderstood."""
        plan = rewrite.plan
        text = _DIRECTIVE.sub("", rewrite.source)
        values = rewrite.values()
        defines = "".join(f"#define {n} {v}\n" for n, v in values.items() if n in _names([text]))

        known = {name: build(value) for name, value in values.items()}

        def put(text: str) -> LaunchExpression:
            return parse(text).root.substitute(known)

        def dim(extents: Sequence[str]) -> Extents:
            x, y, z = [*map(put, extents), ONE, ONE][:3]
            return x, y, z

        launches = []
        for step in plan.launches:
            name, bracket, arguments = step.kernel.partition("<")
            template = re.sub(
                r"[A-Za-z_]\w*", lambda m: str(values.get(m.group(), m.group())), arguments
            )
            launches.append(
                DraftLaunch(
                    name.strip(), dim(step.grid), dim(step.block), tuple(map(put, step.args)),
                    put(step.smem), bracket + template,
                )
            )  # fmt: skip
        taken = _names(f.text for f in subject.program.files)
        return cls(
            subject, defines + text.strip() + "\n", tuple(launches),
            tuple((x.name, put(x.size_bytes)) for x in plan.scratch),
            tuple(map(put, plan.requires)), taken=taken,
        )  # fmt: skip

    # What comes of it

    def rewrite(self) -> Rewrite:
        """With directives. Raises NotUnderstood where the plan cannot be written."""
        return self._rewrite

    @cached_property
    def _rewrite(self) -> Rewrite:
        lines = [f"// {step.says}" for step in self.steps]
        lines += [f"// @scratch {name} bytes={size}" for name, size in self.scratch]
        lines += [f"// @requires {one}" for one in self.requires]
        lines += [launch.directive for launch in self.launches]
        source = "\n".join(lines) + "\n" + self.text
        title = ", ".join(dict.fromkeys(step.name for step in self.steps)) or "as its author wrote"
        why = " ".join(step.says for step in self.steps)
        try:
            return make_rewrite(source, PROPOSER, title, why)
        except PlanError as error:
            raise NotUnderstood(str(error)) from error

    # What it says

    @property
    def launch(self) -> DraftLaunch:
        """The one that transformations work on."""
        return self.launches[self.focus]

    @cached_property
    def program(self) -> Program:
        """The author's program with the draft's text as another file, which comes first."""
        author = self.subject.program
        undone = "".join(f"#undef {x}\n" for x in later_macros(author, self.subject.kernel))
        head = f'#include "{author.main_path}"\n{undone}namespace {NAMESPACE} {{\n'
        file = SourceFile(path=FILE, text=f"{head}{self.text}}}\n")
        parsed = parse_files(author.root_name, (file,))
        return author.model_copy(
            update={
                "main_path": FILE,
                "files": (file, *author.files),
                "kernels": (*parsed.kernels, *author.kernels),
            }
        )

    @cached_property
    def kernel(self) -> Kernel:
        """The launched kernel as intake reads it. Raises NotUnderstood, also where another launch
        is of the same one: what holds for one need not hold for the other."""
        if [launch.kernel for launch in self.launches].count(self.launch.kernel) > 1:
            raise NotUnderstood(f"several launches of {self.launch.kernel}")
        try:
            return self.program.kernel(f"{NAMESPACE}::{self.launch.kernel}")
        except KeyError:
            raise NotUnderstood(f"no kernel {self.launch.kernel} in the draft") from None

    @cached_property
    def resolved(self) -> tuple[ResolvedLaunch | None, ...]:
        """Of each of the subject's workloads, the launch of the kernel; None where a `@requires`
        keeps the author's kernel. Raises NotUnderstood."""
        try:
            plans = [
                resolve(self.rewrite(), self.subject.kernel, w) for w in self.subject.workloads
            ]
        except PlanError as error:
            raise NotUnderstood(str(error)) from error
        return tuple(p.launches[self.focus] if p.applicable else None for p in plans)

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """The subject's, as launches of the draft's kernel, where it runs at all."""
        names = [p.name for p in self.kernel.parameters]
        callee = f"{NAMESPACE}::{self.launch.kernel}{self.launch.template}"
        found = []
        for workload, launch in zip(self.subject.workloads, self.resolved, strict=True):
            if launch is None:
                continue
            arguments = [
                _argument(name, value, workload)
                for name, value in zip(names, launch.values, strict=True)
            ]
            update = {
                "kernel": self.launch.kernel,
                "callee": callee,
                "grid": launch.grid,
                "block": launch.block,
                "dynamic_smem_bytes": launch.dynamic_smem_bytes,
                "arguments": tuple(a for a in arguments if a is not None),
            }
            found.append(workload.model_copy(update=update))
        if not found:
            raise NotUnderstood("no captured launch executes it")
        return tuple(found)

    @cached_property
    def form(self) -> s.KernelForm:
        """The kernel's tree. Raises NotUnderstood."""
        callee = self.workloads[0].callee if self.launch.template else None
        return kernel_form(self.program, self.kernel, callee)

    @property
    def facts(self) -> KernelFacts:
        """What it does with memory, for all workloads. Raises NotUnderstood."""
        if isinstance(self._facts, NotUnderstood):
            raise NotUnderstood(str(self._facts))
        return self._facts

    @cached_property
    def _facts(self) -> KernelFacts | NotUnderstood:
        """Kept either way: to find out that a kernel is too large takes long."""
        try:
            return analyse(self.form, Launched.by(self.workloads))
        except NotUnderstood as problem:
            return problem

    @cached_property
    def timed_facts(self) -> KernelFacts:
        """The same for the most expensive workload alone."""
        alone = len(self.workloads) == 1
        return self.facts if alone else analyse(self.form, Launched.by(self.workloads[:1]))

    def printer(self, function: s.Function | None = None) -> FunctionText:
        """Of the kernel, or of a function that stands in the draft. Raises NotUnderstood."""
        function = function or self.form.kernel
        if function.where is None or function.where.file != FILE:
            raise NotUnderstood(f"{function.name} is not in the draft")
        return FunctionText(self.program.main.text, function)

    def value(self, name: str) -> int | float | None:
        """Of a parameter, `gridDim.x` or `blockDim.x`; None where workloads differ in it, or where
        it is no number."""
        seen: set[int | float] = set()
        for workload in self.workloads:
            root, _, axis = name.partition(".")
            if axis:
                extent = workload.grid if root == "gridDim" else workload.block
                seen.add(getattr(extent, axis))
                continue
            found = next((a for a in workload.arguments if a.name == name), None)
            if not isinstance(found, ScalarArgument):
                return None
            seen.add(found.value)
        return seen.pop() if len(seen) == 1 else None

    def launch_expression(self, name: str) -> LaunchExpression:
        """What the host computes for a parameter or extent of the draft's kernel."""
        root, _, axis = name.partition(".")
        if axis:
            extents = self.launch.grid if root == "gridDim" else self.launch.block
            return extents["xyz".index(axis)]
        names = [p.name for p in self.kernel.parameters]
        return self.launch.args[names.index(name)]

    def author_argument(self, name: str) -> LaunchExpression | None:
        """What a parameter of the draft's kernel is given, where that is one of the author's; None
        for any other name."""
        given = dict(zip((p.name for p in self.kernel.parameters), self.launch.args, strict=True))
        author = {Variable(p.name) for p in self.subject.kernel.parameters}
        return found if (found := given.get(name)) in author else None

    def holds(self, *conditions: LaunchExpression) -> bool:
        """Whether they hold on every launch that the draft runs on."""
        try:
            return bool(self._environments) and all(
                is_small(one) and evaluate(one, env)
                for env in self._environments for one in conditions
            )  # fmt: skip
        except (NotUnderstood, PlanError):
            return False

    @cached_property
    def _environments(self) -> tuple[Environment, ...]:
        """Names of the author's launch with their values, for each that the draft runs on."""
        kernel, rewrite = self.subject.kernel, self.rewrite()
        pairs = zip(self.subject.workloads, self.resolved, strict=True)
        return tuple(environment(rewrite, kernel, w) for w, launch in pairs if launch is not None)

    def fresh_name(self, wanted: str) -> str:
        """A name that neither the author nor the draft uses."""
        return _free(wanted, self.taken | _names([self.text]) | {name for name, _ in self.scratch})

    def fresh_name_beside(self, wanted: str, taken: set[str]) -> str:
        """Such a name that is none of `taken` either, and one of them from then on: for edits that
        are not in the draft yet."""
        name, at = self.fresh_name(wanted), 2
        while name in taken:
            name, at = self.fresh_name(f"{wanted}{at}"), at + 1
        taken.add(name)
        return name

    # Other drafts

    def with_own_copy_of(self, name: str) -> Draft:
        """With a copy of one of the author's device functions, under another name, in the draft,
        where it can be edited; itself where the draft has its own. Raises NotUnderstood."""
        function = self.form.function(name)
        if function is None or function.where is None:
            raise NotUnderstood(f"no function {name} of the program")
        if function.where.file == FILE:
            return self
        if not name.isidentifier():
            raise NotUnderstood(f"{name} has no other name, and two are ambiguous")
        *namespaces, spelled = function.qualified_name.split("::")
        text = self.program.file(function.where.file).text
        facts = outline(byte_text(text))
        at = function.where.start
        item = next((i for i in facts.items if i.start <= at < i.end), None)
        others = [i for f in self.subject.program.files for i in outline(byte_text(f.text)).items
                  if i.name == name and i.body is not None]  # fmt: skip
        if item is None or item.kind != "function" or len(others) != 1 or spelled != name:
            raise NotUnderstood(f"{name} in a class, one of several, or where it is defined")
        own = self.fresh_name(f"{name}_fast")
        copy = plain_text(facts.lexed.text[item.start : item.end])
        if "#" in copy:
            copy = resolved(copy, function, item.start)
        copy = with_spaces(self.subject.program, copy, "__device__")
        using, copy = copied(self.subject.program, copy.strip(), namespaces)
        here = dict.fromkeys([*using, *self._using])
        here.pop(f"using ::{function.qualified_name};", None)
        whole = "\n".join([*here, *([""] if here else []), copy, "", _USING.sub("", self.text)])
        path = r"(?<![\w.>:])(?:(?:::)?(?:\w+::)+)?" if namespaces else r"(?<![\w.>:])"
        said = re.compile(rf"{_NO_CODE}|({path}{re.escape(name)}\b)", re.DOTALL)
        draft = self._with(text=said.sub(lambda m: own if m[1] else m[0], whole))
        if namespaces and meaning(draft.form, FILE, {own: function}) != meaning(self.form, FILE):
            raise NotUnderstood(f"the meaning outside of it of names of {function.qualified_name}")
        return draft

    @property
    def _using(self) -> tuple[str, ...]:
        """Its using-declarations, which stand first."""
        return tuple(x.strip() for x in _USING.findall(self.text))

    def edited(self, function: s.Function, text: str) -> Draft:
        """With this text in place of a function's definition. Raises NotUnderstood, also for a
        device function that the kernel of another launch calls."""
        where = function.where
        if function.name != self.form.kernel.name and any(
            replace(self, focus=at).form.function(function.name) is not None
            for at in range(len(self.launches))
            if at != self.focus
        ):
            raise NotUnderstood(f"{function.name} is called by another kernel too")
        if where is None or where.file != FILE:
            raise NotUnderstood(f"{function.name} is not in the draft")
        whole = self.program.main.text.encode()
        head = whole.index(b"{\n") + 2
        changed = whole[head : where.start] + text.encode() + whole[where.end : -2]
        return self._with(text=changed.decode())

    def with_body(self, body: Sequence[Any], header: str | None = None) -> Draft:
        """With another body of the kernel: see `FunctionText`."""
        return self.edited(self.form.kernel, self.printer().printed(body, header))

    def launched(self, **changes: Any) -> Draft:
        """With another `grid`, `block`, `args`, `smem`, `kernel` or `template` of its launch."""
        launches = list(self.launches)
        launches[self.focus] = replace(self.launch, **changes)
        return self._with(launches=tuple(launches))

    def requiring(self, *conditions: LaunchExpression) -> Draft:
        """With further conditions, over the author's kernel: those that a launch may not meet."""
        needed = (c for c in conditions if folded(c) != ONE)
        return self._with(requires=tuple(dict.fromkeys([*self.requires, *needed])))

    def adding(self, text: str) -> Draft:
        """With further device code above its own."""
        return self._with(text=text.rstrip() + "\n\n" + self.text)

    def stepped(self, step: Step) -> Draft:
        """With one more step told."""
        return self._with(steps=(*self.steps, step))

    def _with(self, **changes: Any) -> Draft:
        return replace(self, **changes)


def _argument(name: str, value: Any, workload: Workload) -> Argument | None:
    """One argument as if captured."""
    if isinstance(value, NumberValue):
        element = "f64" if isinstance(value.value, float) else "i64"
        return ScalarArgument(name=name, element=element, value=value.value)
    if value.kind == "null":
        return NullArgument(name=name)
    if value.kind == "buffer" and value.allocation is not None:
        pointers = (a for a in workload.arguments if isinstance(a, PointerArgument))
        sizes = (a.structure_bytes for a in pointers if a.allocation == value.allocation)
        return PointerArgument(
            name=name, element=workload.allocations[value.allocation].element,
            allocation=value.allocation, offset_bytes=value.offset_bytes,
            structure_bytes=next(sizes, None),
        )  # fmt: skip
    if value.kind == "raw":
        given = (a for a in workload.arguments if isinstance(a, OpaqueArgument))
        found = next((a for a in given if captured_value(a) == value), None)
        if found is None:
            return None
        fields = tuple(
            f.model_copy(update={"path": name + f.path.removeprefix(found.name)})
            for f in found.pointers
        )
        return found.model_copy(update={"name": name, "pointers": fields})
    return None


def _trimmed(root: str, workloads: Sequence[Workload]) -> Extents:
    """`gridDim.x` and so on; 1 where it is 1 in every workload and the axis is not x."""
    extents = [w.grid if root == "gridDim" else w.block for w in workloads]
    flat = {axis: all(getattr(e, axis) == 1 for e in extents) for axis in "yz"}
    return (
        Variable(f"{root}.x"),
        ONE if flat["y"] and flat["z"] else Variable(f"{root}.y"),
        ONE if flat["z"] else Variable(f"{root}.z"),
    )


def _names(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(name for text in texts for name in re.findall(r"[A-Za-z_]\w*", text))


def _free(wanted: str, taken: frozenset[str]) -> str:
    candidate, at = wanted, 2
    while candidate in taken:
        candidate, at = f"{wanted}{at}", at + 1
    return candidate
