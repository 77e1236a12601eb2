"""What pragmas make of loops, as nvcc's SASS shows it."""

from __future__ import annotations

from cudaops.timemodel.loops import FULL, NONE, SOME, unroll_pragmas, with_gcc_pragmas
from cudaops.timemodel.steps import unroll_factor
from cudaops.timemodel.work import Mix, WorkStep

SOURCE = """\
#pragma unroll 1
for (int i = 0; i < n; i++) s += a[i];
  #pragma unroll (8) // as many as for one sector

    // while there are any
    while (more()) {}
#pragma unroll N
for (;;) {}
#pragma unroll
  do { } while (0);
#pragma nounroll
for (;;) {}
#pragma unroll 4
int x = 3;
"""


def test_a_pragma_is_of_the_line_where_its_loop_begins() -> None:
    asked = {("k.cu", 2): 1, ("k.cu", 6): 8, ("k.cu", 10): SOME, ("k.cu", 12): NONE}
    assert unroll_pragmas({"src/k.cu": SOURCE}) == asked


def test_gcc_is_asked_the_same_on_the_same_lines() -> None:
    lines = with_gcc_pragmas(SOURCE).splitlines()
    assert [line.strip() for line in lines[::2]] == [
        "#pragma GCC unroll 1", "#pragma GCC unroll 8", "// while there are any",
        "#pragma unroll N", "#pragma unroll", "#pragma GCC unroll 1", "#pragma unroll 4",
    ]  # fmt: skip
    assert len(lines) == len(SOURCE.splitlines())


def test_a_number_decides_whatever_the_size_of_the_body() -> None:
    small, large = [WorkStep(mix=Mix(issued=9.0))], [WorkStep(mix=Mix(issued=60.0))]
    assert unroll_factor(small, 100.0, FULL, None) == FULL
    assert unroll_factor(large, 100.0, FULL, None) == NONE
    assert unroll_factor(small, 100.0, SOME, None) == SOME
    assert unroll_factor(small, 100.0, FULL, 1) == 1
    assert unroll_factor(large, 100.0, SOME, 32) == 32
    # All of fewer iterations are left to the loop of the remainder.
    assert unroll_factor(small, 20.0, FULL, 32) == NONE
    # Where nobody knows the number of iterations each copy has its own test.
    assert unroll_factor(small, 100.0, NONE, 8) == NONE
