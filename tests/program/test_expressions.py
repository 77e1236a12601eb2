"""The evaluator against Python integers with C's rules, and its errors with their columns."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaops.domain.workload import Field, OpaqueArgument
from cudaops.errors import PlanError
from cudaops.program.expressions import (
    INT64_MAX,
    INT64_MIN,
    ExpressionValue,
    NullPointer,
    OpaqueValue,
    PointerValue,
    parse,
)

NAMES = {"N": 1000, "M": -7, "zero": 0, "big": 2**40}


class RefusedError(Exception):
    """C has no answer: division by zero or overflow."""


def _fits(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise RefusedError
    return value


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise RefusedError
    return _fits(int(abs(a) // abs(b)) * (1 if (a >= 0) == (b >= 0) else -1))


def _ceil_div(a: int, b: int) -> int:
    if b <= 0:
        raise RefusedError
    return -(-a // b)


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: _fits(a + b),
    "-": lambda a, b: _fits(a - b),
    "*": lambda a, b: _fits(a * b),
    "/": _divide,
    "%": lambda a, b: a - _divide(a, b) * b,
    "<": lambda a, b: int(a < b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
}
FUNCTIONS: dict[str, Callable[[int, int], int]] = {"min": min, "max": max, "ceil_div": _ceil_div}


class Tree:
    """An expression as text with full parentheses, and how to compute it in Python."""

    def __init__(self, text: str, compute: Callable[[], int]) -> None:
        self.text, self.compute = text, compute

    def __repr__(self) -> str:
        return self.text


leaves = st.one_of(
    st.integers(0, 2**62).map(lambda v: Tree(str(v), lambda: v)),
    st.integers(0, 255).map(lambda v: Tree(hex(v), lambda: v)),
    st.sampled_from(sorted(NAMES)).map(lambda n: Tree(n, lambda: NAMES[n])),
)


def _grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    def binary(op: str, a: Tree, b: Tree) -> Tree:
        return Tree(f"({a.text} {op} {b.text})", lambda: OPERATORS[op](a.compute(), b.compute()))

    def call(name: str, a: Tree, b: Tree) -> Tree:
        return Tree(f"{name}({a.text},{b.text})", lambda: FUNCTIONS[name](a.compute(), b.compute()))

    def choice(c: Tree, a: Tree, b: Tree) -> Tree:
        text = f"({c.text} ? {a.text} : {b.text})"
        return Tree(text, lambda: a.compute() if c.compute() else b.compute())

    def logic(op: str, a: Tree, b: Tree) -> Tree:
        def compute() -> int:
            left = bool(a.compute())
            return int(left and bool(b.compute()) if op == "&&" else left or bool(b.compute()))

        return Tree(f"({a.text} {op} {b.text})", compute)

    return st.one_of(
        st.builds(binary, st.sampled_from(sorted(OPERATORS)), inner, inner),
        st.builds(call, st.sampled_from(sorted(FUNCTIONS)), inner, inner),
        st.builds(choice, inner, inner, inner),
        st.builds(logic, st.sampled_from(["&&", "||"]), inner, inner),
        inner.map(lambda a: Tree(f"-({a.text})", lambda: _fits(-a.compute()))),
        inner.map(lambda a: Tree(f"!({a.text})", lambda: int(not a.compute()))),
    )


@given(st.recursive(leaves, _grown, max_leaves=12))
def test_same_answer_as_python_with_c_rules(tree: Tree) -> None:
    expression = parse(tree.text)
    try:
        expected = tree.compute()
    except RefusedError:
        with pytest.raises(PlanError):
            expression.evaluate(NAMES)
    else:
        assert expression.evaluate(NAMES) == expected


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    with contextlib.suppress(PlanError):
        parse(text, 3, 5).evaluate(NAMES)
        return
    with pytest.raises(PlanError) as caught:
        parse(text, 3, 5).evaluate(NAMES)
    assert caught.value.line == 3
    assert 5 <= caught.value.column <= 5 + len(text) + 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("20 - 5 - 3", 12),
        ("100 / 10 / 2", 5),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("1 < 2 == 1", 1),
        ("1 || 1 / 0", 1),
        ("0 && 1 / 0", 0),
        ("0 ? 1 / 0 : 1 ? 2 : 3", 2),
        ("- - 3", 3),
        ("!-1", 0),
        ("+N", 1000),
        ("ceil_div(1000, 64)", 16),
        ("ceil_div(-3, 2)", -1),
        ("sizeof(float4) + sizeof(unsigned long long) + sizeof(float*)", 32),
        ("64u * 2L", 128),
        ("9223372036854775807", INT64_MAX),
    ],
)
def test_value(text: str, value: int) -> None:
    assert parse(text).evaluate(NAMES) == value


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a value before the end"),
        ("N +", 4, "expected a value before the end"),
        ("(N", 3, "expected `)`"),
        ("N)", 2, "unbalanced `)`"),
        ("N 2", 3, "unexpected `2`"),
        ("a @ b", 3, "unexpected `@`"),
        ("N > 2 and N < 9", 7, "unexpected `and`: write `&&`, as in C"),
        ("N = 2", 3, "unexpected `=`"),
        ("abs(N)", 1, "unknown function `abs`"),
        ("max(N)", 1, "takes 2 arguments, not 1"),
        ("sizeof(matrix)", 1, "does not know the type `matrix`"),
        ("gridDim", 8, "expected `.`"),
        ("blockDim.w", 10, "x, y and z"),
        ("missing", 1, "unknown name `missing`"),
        ("N / zero", 3, "division by zero"),
        ("N % zero", 3, "division by zero"),
        ("big * big", 5, "overflow"),
        ("-(0 - 9223372036854775807 - 1)", 1, "overflow"),
        ("9223372036854775808", 1, "does not fit 64 bits"),
        ("ceil_div(N, M)", 1, "divisor must be positive"),
        ("1 ? 2", 6, "expected `:`"),
        ("__import__", 1, "unknown name"),
        ("((((" * 30, 33, "nested deeper"),
        ("1+" * 90 + "1", 1, "more than 64 operators"),
        ("1" * 1001, 1, "longer than 1000"),
    ],
)
def test_error(text: str, column: int, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse(text).evaluate(NAMES)
    assert message in caught.value.message
    assert caught.value.column == column


def test_pointers_move_by_elements() -> None:
    env: dict[str, ExpressionValue] = {
        "A": PointerValue(allocation=1, offset_bytes=8, element_bytes=4),
        "p": NullPointer(),
    }
    assert parse("A + 3").evaluate(env) == PointerValue(1, None, 20, 4)
    assert parse("2 + A - 4").evaluate(env) == PointerValue(1, None, 0, 4)
    assert parse("p == 0").evaluate(env) == 1
    assert parse("A != 0 && !p").evaluate(env) == 1
    assert parse("aligned(A, 4) && !aligned(A, 16) && aligned(A - 2, 16)").evaluate(env) == 1
    assert parse("aligned(p, 16)").evaluate(env) == 1
    for text in ("aligned(A, 3)", "aligned(A, 512)", "aligned(3, 4)", "aligned(A, 4.0)"):
        with pytest.raises(PlanError, match="aligned"):
            parse(text).evaluate(env)
    for text in ("A * 2", "A + A", "1 - A", "A < 3", "min(A, 1)", "-A", "A + 1.5"):
        with pytest.raises(PlanError):
            parse(text).evaluate(env)


def test_floats_and_structures() -> None:
    structure = OpaqueValue(OpaqueArgument(name="s", raw_hex="00"))
    env: dict[str, ExpressionValue] = {"alpha": 0.5, "s": structure}
    assert parse("alpha * 2 == 1.0f").evaluate(env) == 1
    assert parse("s").evaluate(env) == structure
    for text in ("s + 1", "!s", "alpha % 2", "ceil_div(alpha, 2)"):
        with pytest.raises(PlanError):
            parse(text).evaluate(env)


def test_members_of_a_structure() -> None:
    inner = Field(path="size.rows", element="i32", at_bytes=4)
    own = Field(path="size.columns", element="i32", at_bytes=0, is_public=False)
    several = Field(path="v[1]", element="i32", at_bytes=0)
    structure = OpaqueArgument(
        name="s", raw_hex=struct.pack("<ii", 7, -12).hex(), fields=(own, inner, several)
    )
    members = {name: field.value(bytes.fromhex(structure.raw_hex))
               for name, field in structure.members.items()}  # fmt: skip
    assert members == {"s.size.rows": -12}
    expression = parse("ceil_div(s.size . rows * -1, 5)")
    assert expression.names() == {"s.size.rows"}
    assert expression.evaluate(members) == 3
    for text in ("s.", "s.size.", "s.(a)"):
        with pytest.raises(PlanError, match="member"):
            parse(text)


def test_names_and_where_they_stand() -> None:
    expression = parse("N + gridDim.x * N", 4, 10)
    assert expression.names() == {"N", "gridDim.x"}
    assert expression.name_columns() == {"N": 10, "gridDim.x": 14}
