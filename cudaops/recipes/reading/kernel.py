"""A kernel as the program launched it, its body run once on unknowns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import Workload
from cudaops.program.analysis.polynomials import number
from cudaops.program.front_end import kernel_form
from cudaops.program.launch_expression import LaunchExpression
from cudaops.program.syntax import KernelForm, NotUnderstood, TypedParameter
from cudaops.recipes.reading.expressions import parameter_value
from cudaops.recipes.reading.symbolic import Effects, Execution
from cudaops.recipes.reading.values import SymbolicPointer, SymbolicStructure, Value


@dataclass(frozen=True)
class Reading:
    """What a kernel was understood to do."""

    parameters: tuple[TypedParameter, ...]
    effects: Effects
    together: frozenset[frozenset[str]]
    """Pairs of pointers that led into one allocation at some launch."""

    def share(self, one: str, other: str) -> bool:
        """Whether two pointers lead into one allocation, at some launch at least."""
        return one == other or frozenset((one, other)) in self.together

    @property
    def requirements(self) -> list[LaunchExpression]:
        """What was taken for granted of the launch's numbers."""
        return [x.launch_expression() >= 0 for x in self.effects.nonnegative]

    @property
    def inputs(self) -> frozenset[str]:
        """Parameters that are no pointers, and fields of structures (`A.width`)."""
        values = (p for p in self.parameters if not p.is_pointer)
        fields = (
            f"{p.name}.{f.path}"
            for p in values if p.layout is not None
            for f in p.layout.fields if f.is_public
        )  # fmt: skip
        return frozenset(p.name for p in self.parameters if not p.is_pointer) | set(fields)


def form_of(program: Program, kernel: Kernel, workloads: Sequence[Workload]) -> KernelForm:
    """The one instance of the kernel that all workloads launch, its parameters of known types.
    Raises NotUnderstood."""
    callees = {w.callee for w in workloads}
    if kernel.template_parameters and len(callees) != 1:
        raise NotUnderstood("template arguments that differ between launches")
    form = kernel_form(program, kernel, next(iter(callees), None))
    for parameter in form.kernel.parameters:
        if parameter.unclear or not parameter.name.isidentifier():
            raise NotUnderstood(f"the type of {parameter.name}")
    return form


def read_kernel(program: Program, kernel: Kernel, workloads: Sequence[Workload]) -> Reading:
    """Run the kernel's body on unknowns. Raises NotUnderstood."""
    form = form_of(program, kernel, workloads)
    env: dict[str, Value] = {}
    for parameter in form.kernel.parameters:
        value = _parameter_value(parameter)
        if value is not None:
            env[parameter.name] = value
    functions = {function.name: function for function in form.functions}
    effects = Execution(env, functions).run(form.kernel.body)
    together = frozenset(
        frozenset((one.name, other.name))
        for w in workloads
        for one, other in itertools.combinations(w.pointers(), 2)
        if one.allocation == other.allocation
    )
    return Reading(form.kernel.parameters, effects, together)


def _parameter_value(parameter: TypedParameter) -> Value | None:
    if parameter.is_pointer:
        return SymbolicPointer(parameter.name, number(0), parameter.type)
    if parameter.layout is not None:
        return SymbolicStructure(parameter.name, parameter.type)
    return parameter_value(parameter.name, parameter.type)
