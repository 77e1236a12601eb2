"""A kernel as the program launched it: template arguments bound, macros expanded, body run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cudaops.domain.program import DeviceFunction, Kernel, Parameter, Program
from cudaops.domain.workload import Element, PointerArgument, ScalarArgument, Workload
from cudaops.recipes.affine import number, symbol
from cudaops.recipes.reading import syntax as s
from cudaops.recipes.reading.expressions import Expressions
from cudaops.recipes.reading.parser import Reader, normal_type
from cudaops.recipes.reading.symbolic import Effects, Execution
from cudaops.recipes.reading.tokens import (
    Macro,
    NotUnderstood,
    Token,
    expand,
    macros_of,
    split,
    without_comments,
)
from cudaops.recipes.reading.values import (
    FLOATS,
    INTEGERS,
    Pointer,
    Scalar,
    Value,
    Whole,
    converted,
)

_C_TYPE: Mapping[Element, str] = {
    "f32": "float", "f64": "double", "i32": "int", "u32": "unsigned", "i64": "long long",
    "u64": "unsigned long long",
}  # fmt: skip
_CONSTANT = re.compile(
    r"\b(?:constexpr|const)\s+(?:static\s+|const\s+)*"
    r"(?:unsigned\s+|long\s+)*(?:int|unsigned|size_t|long|auto)\s+(\w+)\s*=\s*([^;,{]+)[;,]"
)


@dataclass(frozen=True)
class KnownParameter:
    """A parameter with its concrete type."""

    name: str
    type: str
    """Element type of a pointer, else the value's; normalised."""
    is_pointer: bool


@dataclass(frozen=True)
class Reading:
    """What a kernel was understood to do."""

    parameters: tuple[KnownParameter, ...]
    effects: Effects

    def parameter(self, name: str) -> KnownParameter:
        """The parameter of this name. Raises KeyError."""
        for candidate in self.parameters:
            if candidate.name == name:
                return candidate
        raise KeyError(name)


class Scope:
    """What the kernel's text may refer to: macros, template arguments, constants, functions."""

    def __init__(self, program: Program, kernel: Kernel, workloads: Sequence[Workload]) -> None:
        texts = [f.text for f in program.files]
        self.macros: dict[str, Macro | None] = macros_of(texts)
        self.constants = _constants(texts, self.macros)
        for variable in program.global_variables:
            self.constants.pop(variable.name, None)
        self._functions = program.device_functions
        self.macros.update(self._template_arguments(kernel, workloads))

    def tokens(self, text: str) -> tuple[Token, ...]:
        """`text` as tokens with everything known put in its place."""
        return expand(split(text), self.macros)

    def parameter(self, written: Parameter) -> KnownParameter:
        """The parameter with its concrete type. Raises NotUnderstood for one without a name."""
        words = [t.text for t in self.tokens(written.type_text)]
        odd = "&" in words or words.count("*") > 1 or "[" in words
        if odd or not written.name.isidentifier():
            raise NotUnderstood(f"the type of {written.name}")
        plain = normal_type(" ".join(w for w in words if w != "*"))
        return KnownParameter(written.name, plain, "*" in words)

    def inline(self) -> dict[str, Callable[[tuple[Value, ...]], Value]]:
        """Device functions that can be put in place of their calls."""
        names = [f.name for f in self._functions]
        return {f.name: _Inlined(f, self) for f in self._functions if names.count(f.name) == 1}

    def _template_arguments(
        self, kernel: Kernel, workloads: Sequence[Workload]
    ) -> dict[str, Macro | None]:
        if not kernel.template_parameters:
            return {}
        found = [self._bound(kernel, workload) for workload in workloads]
        if not found or any(other != found[0] for other in found):
            raise NotUnderstood("template arguments that differ between launches")
        return dict(found[0])

    def _bound(self, kernel: Kernel, workload: Workload) -> dict[str, Macro]:
        given = template_arguments(workload.callee)
        bound: dict[str, Macro] = {}
        for position, written in enumerate(kernel.template_parameters):
            head, _, default = written.partition("=")
            *kind, name = head.split() or [""]
            if position < len(given):
                text = given[position]
            elif kind[:1] in (["typename"], ["class"]):
                text = _deduced(name, kernel, workload) or default.strip()
            else:
                text = default.strip()
            if not text:
                raise NotUnderstood(f"the template argument {name}")
            bound[name] = Macro(None, self._argument_tokens(text, kind))
        return bound

    def _argument_tokens(self, text: str, kind: list[str]) -> tuple[Token, ...]:
        tokens = self.tokens(text)
        if kind[:1] in (["typename"], ["class"]):
            return tokens
        value = Expressions(dict(self.constants), _nothing_loadable, {}).whole(
            Reader(tokens).whole_expression()
        )
        if value.constant is None or value.constant < 0:
            raise NotUnderstood(f"the template argument {text}")
        return (Token("number", str(value.constant)),)


def read_kernel(program: Program, kernel: Kernel, workloads: Sequence[Workload]) -> Reading:
    """Run the kernel's body on unknowns. Raises NotUnderstood."""
    scope = Scope(program, kernel, workloads)
    parameters = tuple(scope.parameter(p) for p in kernel.parameters)
    env: dict[str, Value] = dict(scope.constants)
    for parameter in parameters:
        env.pop(parameter.name, None)
        value = _parameter_value(parameter)
        if value is not None:
            env[parameter.name] = value
    body = read_body(scope, kernel)
    for name in {d.name for d in body if isinstance(d, s.Declare)} & set(scope.constants):
        env.pop(name, None)
    return Reading(parameters, Execution(env, scope.inline()).run(body))


def read_body(scope: Scope, kernel: Kernel) -> tuple[s.Statement, ...]:
    """The kernel's statements, macros and template arguments in place."""
    return Reader(scope.tokens(kernel.text)).body()


def template_arguments(callee: str) -> tuple[str, ...]:
    """What stands between `<` and `>` of a launched name, split at the outer commas."""
    start, end = callee.find("<"), callee.rfind(">")
    if start < 0 or end < start:
        return ()
    found, depth = [""], 0
    for character in callee[start + 1 : end]:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return tuple(part.strip() for part in found)


def _deduced(name: str, kernel: Kernel, workload: Workload) -> str | None:
    """The type that the arguments give a template parameter."""
    for parameter in kernel.parameters:
        if re.search(rf"\b{re.escape(name)}\b", parameter.type_text) is None:
            continue
        for argument in workload.arguments:
            if argument.name != parameter.name:
                continue
            if isinstance(argument, PointerArgument | ScalarArgument):
                return _C_TYPE.get(argument.element)
    return None


def _parameter_value(parameter: KnownParameter) -> Value | None:
    if parameter.is_pointer:
        return Pointer(parameter.name, number(0), parameter.type)
    if parameter.type in INTEGERS:
        return Whole(symbol(parameter.name), parameter.type)
    if parameter.type in FLOATS:
        return Scalar(parameter.name, parameter.type)
    return None


def _constants(texts: Iterable[str], macros: Mapping[str, Macro | None]) -> dict[str, Value]:
    """Integer constants of the program; a name with two values is left out."""
    known: dict[str, Value] = {}
    refused: set[str] = set()
    for text in texts:
        for found in _CONSTANT.finditer(without_comments(text)):
            name = found[1]
            value = _constant(found[2], macros, known)
            if value is None or known.get(name, value) != value:
                refused.add(name)
            else:
                known[name] = value
    return {name: value for name, value in known.items() if name not in refused}


def _constant(
    text: str, macros: Mapping[str, Macro | None], known: Mapping[str, Value]
) -> Value | None:
    try:
        tokens = expand(split(text), macros)
        value = Expressions(dict(known), _nothing_loadable, {}).whole(
            Reader(tokens).whole_expression()
        )
    except NotUnderstood:
        return None
    return None if value.constant is None else Whole(value)


def _nothing_loadable(array: str) -> None:
    raise NotUnderstood(f"{array} read in a constant")


class _Inlined:
    """A device function whose body is declarations and one `return`."""

    def __init__(self, function: DeviceFunction, scope: Scope) -> None:
        self._function = function
        self._scope = scope

    def __call__(self, arguments: tuple[Value, ...]) -> Value:
        tokens = self._scope.tokens(self._function.text)
        if any(t.text == "template" for t in tokens):
            raise NotUnderstood(f"a call of the template {self._function.name}")
        result, parameters = self._signature(tokens)
        if len(parameters) != len(arguments):
            raise NotUnderstood(f"a call of {self._function.name}")
        env: dict[str, Value] = dict(self._scope.constants)
        for (kind, name), value in zip(parameters, arguments, strict=True):
            env[name] = converted(value, kind)
        body = Reader(tokens).body()
        lines, last = body[:-1], body[-1] if body else None
        expressions = Expressions(env, _nothing_loadable, {})
        for line in lines:
            if not isinstance(line, s.Declare) or line.value is None or line.extents:
                raise NotUnderstood(f"the body of {self._function.name}")
            env[line.name] = converted(expressions.value(line.value), line.type)
        if not isinstance(last, s.Give):
            raise NotUnderstood(f"the body of {self._function.name}")
        return converted(expressions.value(last.value), result)

    def _signature(self, tokens: tuple[Token, ...]) -> tuple[str, list[tuple[str, str]]]:
        texts = [t.text for t in tokens]
        if self._function.name not in texts or "{" not in texts:
            raise NotUnderstood(f"the text of {self._function.name}")
        start = texts.index(self._function.name)
        end = texts.index("{")
        inside = texts[start + 2 : end - 1]
        if "*" in inside or "&" in inside or "(" in inside:
            raise NotUnderstood(f"the parameters of {self._function.name}")
        attributes = {"__device__", "__host__", "__forceinline__", "__inline__", "inline", "static"}
        result = normal_type(" ".join(w for w in texts[:start] if w not in attributes))
        parameters = []
        for part in " ".join(inside).split(" , ") if inside else ():
            *kind, name = part.split() or [""]
            parameters.append((normal_type(" ".join(kind)), name))
        return result, parameters
