"""Plan expressions as C++: for the host wrapper of a spliced program, for a preloaded library."""

from __future__ import annotations

from collections.abc import Sequence

from cudaops.domain.program import Kernel
from cudaops.program.expressions import Expression, NullPointer, PointerValue
from cudaops.program.launch_expression import (
    CHOICE,
    FUNCTIONS,
    ROOTS,
    Constant,
    LaunchExpression,
    Operation,
    Variable,
)

_INTEGERS = frozenset({
    "char", "bool", "short", "int", "unsigned", "signed", "long", "size_t", "ssize_t", "ptrdiff_t",
    "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t",
    "uint", "ulong", "ushort", "uchar",
})  # fmt: skip


def cpp(expression: Expression, spell: Speller) -> str:
    """The expression in C++; `spell` gives each name. Integers are `long long`, as in the plan.

    Division goes through `cudaops_divide` and `cudaops_remainder`, which refuse a zero divisor.
    """
    return _node(expression.root, spell)


class Speller:
    """Spells a plan's names inside of the wrapper."""

    def __init__(self, kernel: Kernel, scratch: frozenset[str], constants: dict[str, int]) -> None:
        self._integers = {p.name for p in kernel.parameters if _is_integer(p.type_text)}
        self._parameters = {p.name for p in kernel.parameters}
        self._scratch, self._constants = scratch, constants
        self.pointers = scratch | {p.name for p in kernel.parameters if p.is_pointer}

    def __call__(self, name: str) -> str:
        """The name in C++."""
        root, _, member = name.partition(".")
        if root in ROOTS:
            return f"(long long)cudaops_{'grid' if root == 'gridDim' else 'block'}.{member}"
        if member:
            return f"({name} + 0LL)"  # wide where it is an integer, itself where it is not
        if name in self._integers:
            return f"(long long){name}"
        if name in self._parameters or name == "nullptr":
            return name
        if name in self._scratch:
            return f"cudaops_scratch_{name}"
        if name == "smem":
            return "(long long)cudaops_smem"
        if name in self._constants:
            return f"{self._constants[name]}LL"
        return f"(long long){name}"  # of the template that the wrapper is

    def integer(self, value: int) -> str:
        """A literal in C++."""
        return f"{value}LL"


def scratch_in(expression: Expression, scratch: frozenset[str]) -> bool:
    """Whether an argument points into scratch memory."""
    return bool(expression.names() & scratch)


def constant_value(expression: Expression, constants: dict[str, int]) -> int | None:
    """The expression's value where it needs nothing but constants."""
    if not expression.names() <= set(constants):
        return None
    value = expression.evaluate(constants)
    return (
        value
        if isinstance(value, int) and not isinstance(value, PointerValue | NullPointer)
        else None
    )


def _is_integer(type_text: str) -> bool:
    words = type_text.replace("const", " ").replace("std::", "").split()
    return bool(words) and set(words) <= _INTEGERS


def _node(node: LaunchExpression, spell: Speller) -> str:
    match node:
        case Constant(value=int() as value):
            return spell.integer(value)
        case Constant(value=value):
            return repr(value)
        case Variable(name):
            return spell(name)
        case Operation(operator, operands):
            texts = [_node(x, spell) for x in operands]
            if operator in FUNCTIONS:
                return f"cudaops_{operator}({', '.join(texts)})"
            if operator == CHOICE:
                return "({} ? {} : {})".format(*texts)
            return f"{operator}({texts[0]})" if len(texts) == 1 else _binary(node, texts, spell)
    raise TypeError(f"no launch expression: {node!r}")


def _binary(node: Operation, sides: Sequence[str], spell: Speller) -> str:
    operator, (left, right) = node.operator, sides
    if operator in ("==", "!=") and any(_is_pointer(x, spell) for x in node.operands):
        return f"({'' if operator == '==' else '!'}cudaops_same_place({left}, {right}))"
    named = {"/": "cudaops_divide", "%": "cudaops_remainder"}.get(operator)
    # A divisor that is a literal cannot be zero unless it says so.
    literal = isinstance(node.operands[1], Constant) and node.operands[1].value != 0
    if named is not None and not literal:
        return f"{named}({left}, {right})"
    return f"({left} {operator} {right})"


def _is_pointer(node: LaunchExpression, spell: Speller) -> bool:
    match node:
        case Variable(name):
            return name in spell.pointers
        case Operation("+" | "-", (left, right)) | Operation("?:", (_, left, right)):
            return _is_pointer(left, spell) or _is_pointer(right, spell)
    return False
