"""Comparison of what two programs print."""

from __future__ import annotations

from random import Random

import pytest

from cudaops.sandbox.printed import AuthorsOutput, compare_printed

REFERENCE = "checksum 1.234560e+06\ncorners 1.000000 2.500000 -3.000000 0.000000\n"


@pytest.mark.parametrize(
    "printed",
    [
        REFERENCE,
        REFERENCE.replace("1.234560e+06", "1.234561e+06"),
        REFERENCE.replace("1.234560e+06", "1.2349e+06"),
        REFERENCE.replace("2.500000", "2.500001"),
        REFERENCE + "\n\n",
        REFERENCE.replace("0.000000", "0.000001"),
    ],
)
def test_agreeing_outputs(printed: str) -> None:
    result = compare_printed(REFERENCE, printed, 1e-3)
    assert result.matches, result.summary
    assert result.numbers_compared == 5


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        (REFERENCE.replace("1.234560e+06", "1.240000e+06"), "1.240000e+06"),
        (REFERENCE.replace("-3.000000", "3.000000"), "3.000000"),
        (REFERENCE.replace("2.500000", "nan"), "nan"),
        (REFERENCE.replace("0.000000", "0.500000"), "0.500000"),
        (REFERENCE.replace("checksum", "sum"), "sum"),
        (REFERENCE.splitlines()[0], "1 lines"),
        ("", "0 lines"),
    ],
)
def test_disagreeing_outputs_say_where(printed: str, says: str) -> None:
    result = compare_printed(REFERENCE, printed, 1e-3)
    assert not result.matches
    assert says in result.summary


def test_times_may_differ_and_results_on_the_same_page_may_not() -> None:
    expected = "Average kernel execution time: 12.5 (us)\nsum 10\n"
    assert compare_printed(
        expected, "Average kernel execution time: 3.1 (us)\nsum 10\n", 1e-3
    ).matches
    assert not compare_printed(
        expected, "Average kernel execution time: 3.1 (us)\nsum 11\n", 1e-3
    ).matches


def test_lines_of_times_by_their_unit_alone_are_left_out() -> None:
    expected = " 2 bases |    92 ns |   365 ns\n 8 blocks: 12.1 GiB/s\n"
    assert compare_printed(
        expected, " 2 bases |    53 ns |  1078 ns\n 8 blocks: 9 GiB/s\n", 1e-3
    ).matches


def test_numbers_in_columns_may_take_less_room() -> None:
    assert compare_printed("x:   10.000 |    9.999\n", "x:    9.999 |   10.000\n", 1e-3).matches
    assert not compare_printed("x 1 y 2\n", "x 1 z 2\n", 1e-3).matches


def test_of_a_long_line_the_place_is_shown() -> None:
    line = ",".join(str(n % 8) for n in range(1280))
    other = line.split(",")
    other[700] = "9"
    found = compare_printed(line, ",".join(other), 1e-3)
    assert found.summary.startswith("prints 9 where the author's program prints 4 (number 701 of")
    assert len(found.summary) < 250


def test_nan_meets_nan_and_infinities_keep_their_sign() -> None:
    assert compare_printed("x nan", "x nan", 1e-3).matches
    assert compare_printed("x inf", "x inf", 1e-3).matches
    assert not compare_printed("x inf", "x -inf", 1e-3).matches


def test_integers_compare_within_the_tolerance_too() -> None:
    assert compare_printed("count 100000", "count 100001", 1e-3).matches
    assert not compare_printed("count 100", "count 101", 1e-3).matches


RMSE, UNFUSED = "RMSE 0.000118\nsum 100.0\n", "RMSE 0.000116\nsum 100.0\n"


def test_a_number_that_rounding_alone_moves_may_move_four_times_as_far() -> None:
    """The error of a result against the host's moves with every rounding."""
    assert not compare_printed(RMSE, RMSE.replace("118", "112"), 1e-3).matches
    moved = compare_printed(RMSE, RMSE.replace("118", "112"), 1e-3, AuthorsOutput(unfused=UNFUSED))
    assert moved.matches
    assert "1 differ by rounding alone" in moved.summary
    assert not compare_printed(
        RMSE, RMSE.replace("118", "130"), 1e-3, AuthorsOutput(unfused=UNFUSED)
    ).matches
    assert not compare_printed(
        RMSE, RMSE.replace("100.0", "101.0"), 1e-3, AuthorsOutput(unfused=UNFUSED)
    ).matches


@pytest.mark.parametrize("unfused", ["", "other words\nsum 100.0\n", "RMSE nan\nsum 100.0\n"])
def test_what_rounding_turns_into_something_else_excuses_no_number(unfused: str) -> None:
    moved = RMSE.replace("118", "112")
    assert not compare_printed(RMSE, moved, 1e-3, AuthorsOutput(unfused=unfused)).matches


@pytest.mark.parametrize(
    ("expected", "actual", "shown"),
    [
        ("start 4\nPASS\n", "start 4\nerror at 3: 1.5\nFAIL\n", "first 'error at 3: 1.5'"),
        ("start 4\nerror at 3: 1.5\nFAIL\n", "start 4\nPASS\n", "without 'error at 3: 1.5'"),
        (
            "start 4\n",
            "start 4\nFAIL\n",
            "prints 2 lines where the author's program prints 1, first",
        ),
    ],
)
def test_a_line_more_is_shown(expected: str, actual: str, shown: str) -> None:
    found = compare_printed(expected, actual, 1e-3)
    assert not found.matches
    assert shown in found.summary


@pytest.mark.parametrize(
    "line",
    ["Total kernel execution # (s)", "total # s", "kernel: #s, copies: 1.0s", "[#s]", "# [s]"],
)
def test_seconds_by_their_letter(line: str) -> None:
    one, other = (f"{line.replace('#', n)}\nsum 10\n" for n in ("0.466526", "2.203422"))
    assert compare_printed(one, other, 1e-3).matches
    assert not compare_printed(one, other.replace("10", "11"), 1e-3).matches


@pytest.mark.parametrize("line", ["# sums", "step # s=4", "#st", "x # so far"])
def test_a_letter_that_is_no_unit(line: str) -> None:
    one, other = (line.replace("#", n) for n in ("0.466526", "2.203422"))
    assert not compare_printed(one, other, 1e-3).matches


def test_what_the_author_prints_otherwise_each_time() -> None:
    says = "pace of it 4.5\nsum 10\n"
    author = AuthorsOutput(others=(says.replace("4.5", "5.25"),))
    found = compare_printed(says, says.replace("4.5", "9.1"), 1e-3, author)
    assert found.matches
    assert found.numbers_compared == 1
    assert "; 1 that the author's program prints otherwise each time" in found.summary
    assert not compare_printed(says, says.replace("10", "11"), 1e-3, author).matches
    for other in ("pace of it 4.5", "pace of her 5.25\nsum 10", ""):  # not the same output
        author = AuthorsOutput(others=(other,))
        assert not compare_printed(says, says.replace("4.5", "9.1"), 1e-3, author).matches


def test_an_error_may_be_rounding() -> None:
    says = "Max error between host and device: 8.67362e-19"
    moved = says.replace("8.67362e-19", "1.15463e-14")
    assert not compare_printed(says, moved, 1e-3).matches
    assert not compare_printed(says, moved, 1e-3, AuthorsOutput(rounding=1e-14)).matches
    assert compare_printed(says, moved, 1e-3, AuthorsOutput(rounding=2e-14)).matches
    assert compare_printed("error 0", "error 4.9e-15", 1e-3, AuthorsOutput(rounding=2e-14)).matches
    for other in ("0.5", "nan", "inf", "1"):
        worse = says.replace("8.67362e-19", other)
        assert not compare_printed(says, worse, 1e-3, AuthorsOutput(rounding=2e-14)).matches
    counts = "errors: 0", "errors: 3"
    assert not compare_printed(*counts, 1e-3, AuthorsOutput(rounding=60.0)).matches
    sums = "checksum: 0.010", "checksum: 0.020"
    assert not compare_printed(*sums, 1e-3, AuthorsOutput(rounding=60.0)).matches


PROGRESS = "begun 3\nworking 1\nworking 2\nsum 10\n"


@pytest.mark.parametrize(
    "seen", ["", "working 1\n", "working 1\nworking 4\nworking 2\nworking 2\n"]
)
def test_lines_of_progress_may_be_there_or_not(seen: str) -> None:
    author = AuthorsOutput(others=("begun 3\nworking 1\nsum 10\n", "begun 3\nsum 10\n"))
    printed = f"begun 3\n{seen}sum 10\n"
    assert compare_printed(PROGRESS, printed, 1e-3, author).matches
    assert not compare_printed(PROGRESS, printed.replace("10", "11"), 1e-3, author).matches
    assert not compare_printed(PROGRESS, printed.replace("sum 10\n", ""), 1e-3, author).matches
    other = compare_printed(PROGRESS, f"{printed}failed 2\n", 1e-3, author)
    assert not other.matches
    assert "first 'failed 2'" in other.summary


def test_what_does_not_move_with_the_clocks_is_compared_on_lines_of_times_too() -> None:
    says = "time 1.5 energy 7\n"
    clocked = AuthorsOutput(others=(says.replace("1.5", "1500"),), clocked=True)
    assert compare_printed(says, says.replace("1.5", "0.3"), 1e-3, clocked).matches
    assert not compare_printed(says, says.replace("7", "8"), 1e-3, clocked).matches
    assert compare_printed(says, says.replace("7", "8"), 1e-3).matches


def test_a_program_that_times_itself_has_other_lines_of_times() -> None:
    says = "sum 10\nkernel 3 ms\n"
    for other in ("sum 10\n", "sum 10\ncopy 1 ms\nkernel 2 ms\n"):
        assert compare_printed(says, other, 1e-3, times_itself=True).matches
        assert not compare_printed(says, other, 1e-3).matches
    assert not compare_printed(says, "kernel 3 ms\n", 1e-3, times_itself=True).matches


def rows(seed: int, last: str = "done: 3 births") -> str:
    """A picture of random cells, as a game of life prints it."""
    cells = Random(seed)
    picture = ["".join(cells.choice("■ ") for _ in range(20)) for _ in range(30)]
    return "\n".join(["+----+", *(f"|{row}|" for row in picture), last]) + "\n"


def test_pictures_of_random_numbers_are_not_compared_and_what_stands_beside_them_is() -> None:
    author = AuthorsOutput(others=(rows(2), rows(3)))
    assert compare_printed(rows(1), rows(4), 1e-3, author).matches
    assert not compare_printed(rows(1), rows(4), 1e-3).matches, "no other run: nothing moves"
    for last in ("done: 4 births", "FAILED", ""):
        assert not compare_printed(rows(1), rows(4, last), 1e-3, author).matches
    more = rows(4).replace("done", "error at 7\ndone")
    assert not compare_printed(rows(1), more, 1e-3, author).matches


def test_a_word_that_is_another_each_time_is_not_compared() -> None:
    author = AuthorsOutput(others=("winner: b\nchecked: yes\n",))
    said = "winner: a\nchecked: yes\n"
    assert compare_printed(said, "winner: c\nchecked: yes\n", 1e-3, author).matches
    assert not compare_printed(said, "winner: c\nchecked: no\n", 1e-3, author).matches
