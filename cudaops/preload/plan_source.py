"""A rewrite's plan as C++ over the bytes of the author's launch: what `source/rewrite.h` calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from cudaops.domain.program import Kernel
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.workload import (
    ELEMENT_BYTES,
    Argument,
    Element,
    NullArgument,
    OpaqueArgument,
    PointerArgument,
    ScalarArgument,
    Workload,
)
from cudaops.errors import InputError
from cudaops.executors.cuda.protocol import Launchable
from cudaops.executors.cuda.symbols import PlacedParameter
from cudaops.program.clusters import kernel_clusters
from cudaops.program.cooperative import step_waits
from cudaops.program.cpp import Speller, cpp
from cudaops.program.directives import LaunchDirective, read_directives
from cudaops.program.expressions import Expression, ExpressionValue, PointerValue
from cudaops.program.instances import SPELLED, plain_name
from cudaops.program.launch_expression import ROOTS, Variable
from cudaops.program.plans import environment, pointee_bytes

POINTER_BYTES = 8
_READ: dict[Element, str] = {
    "f16": "half", "bf16": "bfloat16", "f32": "read<float>", "f64": "read<double>",
}  # fmt: skip
_TYPES = frozenset({
    "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int",
    "unsigned int", "long", "unsigned long", "long long", "unsigned long long", "float", "double",
})  # fmt: skip
"""What c++filt calls types that a number becomes as in a call."""
_HALVES: dict[str, Element] = {"__half": "f16", "__nv_bfloat16": "bf16"}
_BY_SIZE = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
"""What an enumeration is, to a launch."""
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict)\b")


class CubinKernel:
    """One kernel of the rewrite as the cubin has it: its types and the sizes of its parameters."""

    def __init__(self, launchable: Launchable, parameters: Sequence[PlacedParameter]) -> None:
        self.symbol = launchable.symbol
        self.types = [_plain(text) for text in launchable.parameter_types]
        self.sizes = [one.size_bytes for one in parameters]
        if len(self.types) != len(self.sizes):
            raise InputError(
                f"`{launchable.shown}` has {len(self.types)} parameters, its cubin "
                f"{len(self.sizes)}; it cannot be launched by a library"
            )


def plan_source(
    name: str,
    rewrite: Rewrite,
    kernel: Kernel,
    workloads: Sequence[Workload],
    taken: Sequence[CubinKernel],
) -> str:
    """A function `bool NAME(Run&, const void* const* given)`, false where nothing was launched.

    `workloads` are of one instance of `kernel`, whose arguments `given` has; `taken` are the
    rewrite's kernels, one a step. Raises InputError where an argument cannot be made.
    """
    return "\n".join(_Plan(rewrite, kernel, workloads, taken).lines(name)) + "\n"


def authors_arguments(workloads: Sequence[Workload]) -> tuple[Argument, ...]:
    """What each of the author's parameters is: a pointer where it was one in any launch."""
    found = list(workloads[0].arguments)
    for workload in workloads[1:]:
        for place, argument in enumerate(workload.arguments):
            if isinstance(found[place], NullArgument):
                found[place] = argument
    return tuple(found)


def size_of(argument: Argument) -> int:
    """Bytes of an argument of the author's launch."""
    if isinstance(argument, ScalarArgument):
        return ELEMENT_BYTES[argument.element]
    if isinstance(argument, OpaqueArgument):
        return len(argument.raw_hex) // 2
    return POINTER_BYTES


def quoted(text: str) -> str:
    """A text as a C++ literal, on one line and without control characters."""
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def _plain(type_text: str) -> str:
    return re.sub(r"\s*([*&])", r"\1", " ".join(_QUALIFIER.sub(" ", type_text).split()))


def _read_number(name: str, element: Element, at: str) -> str:
    """A declaration without its `const`."""
    if element in _READ:
        return f"double {name} = {_READ[element]}({at})"
    return f"Whole {name} = whole<{SPELLED[element]}>({at})"


def _given_name(name: str) -> str:
    return f"given_{name.replace('.', '_')}"


class _Names(Speller):
    """Spells a plan's names as the function's own."""

    def __init__(
        self, kernel: Kernel, scratch: frozenset[str], env: Mapping[str, ExpressionValue]
    ) -> None:
        super().__init__(kernel, scratch, {})
        self.given = frozenset(p.name for p in kernel.parameters)
        self.env = env

    def __call__(self, name: str) -> str:
        root, _, member = name.partition(".")
        if root in ROOTS:
            return f"run.{'grid' if root == 'gridDim' else 'block'}({'xyz'.index(member)})"
        if member:
            return _given_name(name)
        if name in self.given:
            return f"given_{name}"
        if name == "nullptr":
            return name
        if name == "smem":
            return "run.smem()"
        value = self.env[name]
        if isinstance(value, PointerValue):
            return f"scratch_{name}"
        assert isinstance(value, int), f"{name} is a constant of the text"
        return self.integer(value)

    def integer(self, value: int) -> str:
        return f"Whole({value}LL)"


class _Plan:
    def __init__(
        self,
        rewrite: Rewrite,
        kernel: Kernel,
        workloads: Sequence[Workload],
        taken: Sequence[CubinKernel],
    ) -> None:
        self.rewrite = rewrite
        self.directives = read_directives(rewrite.source)
        self.clusters = kernel_clusters(rewrite.source, rewrite.values())
        self.kernel, self.taken = kernel, taken
        self.arguments = authors_arguments(workloads)
        self.places = {a.name: place for place, a in enumerate(self.arguments)}
        combined = workloads[0].model_copy(update={"arguments": self.arguments})
        self.env = environment(rewrite, kernel, combined)
        scratch = frozenset(s.name.text for s in self.directives.scratch)
        self.spell = _Names(kernel, scratch, self.env)

    def lines(self, name: str) -> Iterator[str]:
        """The function."""
        yield f"static bool {name}(Run& run, const void* const* given) {{"
        for line in self._body():
            yield f"    {line}"
        yield "}"

    def _body(self) -> Iterator[str]:
        yield from self._given()
        if any(step_waits(self.rewrite, step) for step in range(len(self.directives.launches))):
            why = quoted("the rewrite waits for its whole grid, which the program did not ask for")
            yield f"if (!run.holds(false, {why})) return false;"
        for condition in self.directives.requires:
            why = quoted(f"@requires {condition.text} does not hold")
            yield f"if (!run.holds(bool({self._cpp(condition)}), {why})) return false;"
        for index, buffer in enumerate(self.directives.scratch):
            yield f"if (!run.needs({index}, {self._cpp(buffer.size)})) return false;"
        for step, launch in enumerate(self.directives.launches):
            yield f"const Whole grid{step}[3] = {{{self._three(launch.grid)}}};"
            yield f"const Whole block{step}[3] = {{{self._three(launch.block)}}};"
            smem = self._cpp(launch.smem)
            yield f"if (!run.shaped({step}, grid{step}, block{step}, {smem})) return false;"
            if cluster := self.clusters.get(plain_name(launch.callee.text)):
                sizes = f"{cluster.x}, {cluster.y}, {cluster.z}"
                yield f"if (!run.clustered({step}, {sizes})) return false;"
        yield "if (!run.begin()) return false;"
        for index, buffer in enumerate(self.directives.scratch):
            yield f"const Pointer scratch_{buffer.name.text} = run.scratch({index});"
        for step, launch in enumerate(self.directives.launches):
            yield from self._parameters(step, launch)
        yield "if (!run.sound()) return false;"
        for step in range(len(self.directives.launches)):
            yield f"if (!run.start({step}, parameters{step})) return {str(step > 0).lower()};"
        yield "return run.finished();"

    def _cpp(self, expression: Expression) -> str:
        return cpp(expression, self.spell)

    def _three(self, extent: Sequence[Expression]) -> str:
        return ", ".join([*map(self._cpp, extent), "1", "1"][:3])

    def _given(self) -> Iterator[str]:
        """The author's arguments that an expression computes with; a structure is none."""
        used = self._names()
        for place, argument in enumerate(self.arguments):
            if isinstance(argument, OpaqueArgument):
                for name, field in argument.members.items():
                    if name in used:
                        at = f"static_cast<const char*>(given[{place}]) + {field.at_bytes}"
                        yield f"const {_read_number(_given_name(name), field.element, at)};"
            if argument.name not in used:
                continue
            if isinstance(argument, PointerArgument | NullArgument):
                bytes_of_one = self._step(argument)
                read = f"Pointer given_{argument.name} = pointer(given[{place}], {bytes_of_one})"
            elif isinstance(argument, ScalarArgument):
                read = _read_number(_given_name(argument.name), argument.element, f"given[{place}]")
            else:
                continue
            yield f"const {read};"

    def _step(self, argument: Argument) -> int:
        value = self.env[argument.name]
        if isinstance(value, PointerValue):
            return value.element_bytes
        kind = next(p.type_text for p in self.kernel.parameters if p.name == argument.name)
        return pointee_bytes(kind) or 0

    def _names(self) -> frozenset[str]:
        expressions = [*self.directives.requires, *(s.size for s in self.directives.scratch)]
        for step, launch in enumerate(self.directives.launches):
            expressions += [*launch.grid, *launch.block, launch.smem]
            expressions += [
                e for place, e in enumerate(launch.args) if not self._is_handed_on(step, place, e)
            ]
        return frozenset(name for e in expressions for name in e.names())

    def _is_handed_on(self, step: int, place: int, expression: Expression) -> bool:
        """Whether an argument is one of the author's, byte for byte."""
        root = expression.root
        if not isinstance(root, Variable) or root.name not in self.places:
            return False
        argument = self.arguments[self.places[root.name]]
        kind, size = self.taken[step].types[place], self.taken[step].sizes[place]
        if size_of(argument) != size:
            return False
        if isinstance(argument, ScalarArgument):
            element = argument.element
            floating = {"float": "f32", "double": "f64", **_HALVES}.get(kind)
            if element in _READ or floating is not None:
                return floating == element
            return (kind == "bool") == (element == "bool")
        return True

    def _parameters(self, step: int, launch: LaunchDirective) -> Iterator[str]:
        names = []
        for place, expression in enumerate(launch.args):
            root = expression.root
            if isinstance(root, Variable) and self._is_handed_on(step, place, expression):
                names.append(f"const_cast<void*>(given[{self.places[root.name]}])")
                continue
            name = f"parameter{step}_{place}"
            size = self.taken[step].sizes[place]
            yield f"alignas(16) unsigned char {name}[{size}];"
            yield self._put(step, place, expression, name)
            names.append(name)
        yield f"void* parameters{step}[] = {{{', '.join([*names, 'nullptr'])}}};"

    def _put(self, step: int, place: int, expression: Expression, name: str) -> str:
        kind, size = self.taken[step].types[place], self.taken[step].sizes[place]
        value = self._cpp(expression)
        if kind.endswith(("*", "&")) and size == POINTER_BYTES:
            return f"put_pointer({name}, {value});"
        if kind not in _TYPES and (kind in _HALVES or size not in _BY_SIZE):
            raise InputError(
                f"`{expression.text}` becomes a `{kind}`, which the library cannot make; "
                "build best.cu instead"
            )
        return f"put<{kind if kind in _TYPES else _BY_SIZE[size]}>({name}, {value});"
