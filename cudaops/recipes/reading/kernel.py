"""A kernel as the program launched it, its body run once on unknowns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import Workload
from cudaops.program import syntax as s
from cudaops.program.analysis.polynomials import number, symbol
from cudaops.program.front_end import kernel_form
from cudaops.program.syntax import KernelForm, NotUnderstood, TypedParameter
from cudaops.recipes.reading.expressions import Expressions
from cudaops.recipes.reading.symbolic import Effects, Execution
from cudaops.recipes.reading.values import (
    FLOATS,
    INTEGERS,
    Pointer,
    Scalar,
    Value,
    Whole,
    converted,
)


@dataclass(frozen=True)
class Reading:
    """What a kernel was understood to do."""

    parameters: tuple[TypedParameter, ...]
    effects: Effects

    def parameter(self, name: str) -> TypedParameter:
        """The parameter of this name. Raises KeyError."""
        for candidate in self.parameters:
            if candidate.name == name:
                return candidate
        raise KeyError(name)


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
    inline = {function.name: _Inlined(function) for function in form.functions}
    effects = Execution(env, inline).run(form.kernel.body)
    return Reading(form.kernel.parameters, effects)


def _parameter_value(parameter: TypedParameter) -> Value | None:
    if parameter.is_pointer:
        return Pointer(parameter.name, number(0), parameter.type)
    if parameter.type in INTEGERS:
        return Whole(symbol(parameter.name), parameter.type)
    if parameter.type in FLOATS:
        return Scalar(parameter.name, parameter.type)
    return None


def _nothing_loadable(array: str) -> None:
    raise NotUnderstood(f"{array} read in a function")


class _Inlined:
    """A device function whose body is declarations and one `return`."""

    def __init__(self, function: s.Function) -> None:
        self._function = function

    def __call__(self, arguments: tuple[Value, ...]) -> Value:
        function = self._function
        if len(function.parameters) != len(arguments):
            raise NotUnderstood(f"a call of {function.name}")
        env: dict[str, Value] = {}
        for parameter, value in zip(function.parameters, arguments, strict=True):
            if parameter.is_pointer or parameter.unclear:
                raise NotUnderstood(f"the parameters of {function.name}")
            env[parameter.name] = converted(value, parameter.type)
        lines, last = function.body[:-1], function.body[-1] if function.body else None
        expressions = Expressions(env, _nothing_loadable, {})
        for line in lines:
            if not isinstance(line, s.Declare) or line.value is None or line.extents:
                raise NotUnderstood(f"the body of {function.name}")
            env[line.name] = converted(expressions.value(line.value), line.type)
        if not isinstance(last, s.Give):
            raise NotUnderstood(f"the body of {function.name}")
        return converted(expressions.value(last.value), function.result)
