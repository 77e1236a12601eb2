"""Launch expressions as values: printed, read back, built, compared, evaluated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaops.errors import PlanError
from cudaops.program.expressions import evaluate, parse
from cudaops.program.launch_expression import (
    CHOICE,
    FUNCTIONS,
    ONE,
    PRECEDENCE,
    Constant,
    LaunchExpression,
    Operation,
    Variable,
    aligned,
    below,
    build,
    ceil_div,
    maximum,
    minimum,
    product,
)

NAMES = {"n": 1000, "m": -7, "blockDim.x": 32, "task.rows": 5}
n, m = Variable("n"), Variable("m")

leaves = st.one_of(
    st.integers(0, 2**40).map(Constant),
    st.floats(0, 1e6, allow_nan=False).map(Constant),
    st.sampled_from(sorted(NAMES)).map(Variable),
)


def _grown(inner: st.SearchStrategy[LaunchExpression]) -> st.SearchStrategy[LaunchExpression]:
    def operation(operators: tuple[str, ...], operands: int) -> st.SearchStrategy[LaunchExpression]:
        return st.builds(Operation, st.sampled_from(operators), st.tuples(*[inner] * operands))

    return st.one_of(
        operation((*PRECEDENCE, *FUNCTIONS), 2), operation(("-", "!"), 1), operation((CHOICE,), 3)
    )


expressions = st.recursive(leaves, _grown, max_leaves=10)


def _value(compute: Callable[[], object]) -> object:
    try:
        return compute()
    except PlanError as error:
        return error.message


@given(expressions)
def test_what_is_printed_is_read_as_the_same(x: LaunchExpression) -> None:
    again = parse(str(x)).root
    assert again == x
    assert hash(again) == hash(x)
    assert str(again) == str(x)


@given(expressions)
def test_what_is_printed_has_the_same_value(x: LaunchExpression) -> None:
    assert _value(lambda: evaluate(x, NAMES)) == _value(lambda: parse(str(x)).evaluate(NAMES))


@given(expressions)
def test_names_are_those_that_it_needs(x: LaunchExpression) -> None:
    known = {name: build(value) for name, value in NAMES.items()}
    fixed = x.substitute(known)
    assert fixed.names() == frozenset()
    assert x.substitute({}) is x
    assert _value(lambda: evaluate(fixed, {})) == _value(lambda: evaluate(x, NAMES))


@given(expressions, expressions)
def test_below_is_a_comparison(x: LaunchExpression, bound: LaunchExpression) -> None:
    told = _value(lambda: evaluate(below(x, bound), NAMES))
    plain = _value(lambda: evaluate(x < bound, NAMES))
    sides = [_value(lambda: evaluate(x, NAMES)), _value(lambda: evaluate(bound, NAMES))]
    assert told == plain or not all(isinstance(v, int) for v in (told, plain, *sides))


@pytest.mark.parametrize(
    ("built", "text"),
    [
        ((n + 1) * m, "(n + 1) * m"),
        (n - (m - 1), "n - (m - 1)"),
        (n - m - 1, "n - m - 1"),
        (n * (m / 4) % 3, "n * (m / 4) % 3"),
        (2 * n + m >= 1, "2 * n + m >= 1"),
        (n < -3, "n < -3"),
        (n.equals(1) & m.differs(2) | (m < n), "(n == 1 && m != 2) || m < n"),
        (
            ceil_div(n, 32) * minimum(n - 1, maximum(m, 0)),
            "ceil_div(n, 32) * min(n - 1, max(m, 0))",
        ),
        (aligned(n + 4, 16), "aligned(n + 4, 16)"),
        (product([n, m, 2]), "n * m * 2"),
        (product([]), "1"),
        (below(n - 1, m), "n <= m"),
        (below(n - 2, m), "n - 2 < m"),
        (Operation(CHOICE, (n < 1, ONE, n)) + 1, "(n < 1 ? 1 : n) + 1"),
    ],
)
def test_spelling(built: LaunchExpression, text: str) -> None:
    assert str(built) == text
    assert parse(text).root == built


@pytest.mark.parametrize("text", ["0x10", "sizeof(float)", "sizeof(float*)", "1.5f", "sizeof(T)"])
def test_literals_stay_as_their_author_spelled_them(text: str) -> None:
    assert str(parse(f"n*{text}").root) == f"n * {text}"


def test_equal_is_what_is_built_alike_wherever_it_stands() -> None:
    assert parse("(n) * ((4))", 7, 20).root == n * 4
    assert parse("0x4").root == Constant(4)
    assert Constant(4) != Constant(4.0)
    assert n * 4 != 4 * n
    assert {n + 1: "one"}[parse("n + 1").root] == "one"


def test_a_condition_has_no_truth_before_a_launch() -> None:
    with pytest.raises(TypeError, match="n < 1"):
        bool(n < 1)


def test_which_divide() -> None:
    assert (n % 4).equals(0).divides
    assert (ONE + n / m >= 1).divides
    assert not (ceil_div(n, 4) <= 3).divides
