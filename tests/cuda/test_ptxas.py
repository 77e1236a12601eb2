"""Logs of ptxas: what stands there, what does not, and logs that something happened to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaops.cuda.ptxas import PtxasKernel, PtxasLogError, parse_ptxas
from tests.lanes import examples

_DATA = Path(__file__).parents[1] / "data" / "ptxas"
LOGS = {path.stem: path.read_text("utf-8") for path in sorted(_DATA.glob("*.txt"))}


def by_name(log: str) -> dict[str, PtxasKernel]:
    return {kernel.symbol: kernel for kernel in parse_ptxas(log)}


@pytest.mark.parametrize("name", ["nvcc_sm_86", "nvrtc_sm_86"])
def test_every_column(name: str) -> None:
    found = by_name(LOGS[name])
    assert found["_Z7spilledILi96EEvPf"] == PtxasKernel(
        "_Z7spilledILi96EEvPf", "sm_86", registers=64, barriers=0, static_smem_bytes=None,
        stack_frame_bytes=680, cumulative_stack_bytes=680, spill_store_bytes=1104,
        spill_load_bytes=1104, constant_bytes=360,
    )  # fmt: skip
    assert found["_Z7stackedPfi"] == PtxasKernel(
        "_Z7stackedPfi", "sm_86", registers=36, barriers=1, static_smem_bytes=400,
        stack_frame_bytes=256, cumulative_stack_bytes=256, spill_store_bytes=0,
        spill_load_bytes=0, constant_bytes=364,
    )  # fmt: skip
    assert list(found) == [
        "_Z5emptyv", "_Z7spilledILi96EEvPf", "_Z8texturedPdy", "_Z7stackedPfi",
    ]  # fmt: skip


def test_what_ptxas_leaves_out_is_missing_and_never_zero() -> None:
    empty = by_name(LOGS["nvcc_sm_90"])["_Z5emptyv"]
    assert (empty.registers, empty.barriers, empty.stack_frame_bytes) == (4, 0, 0)
    assert empty.constant_bytes is None
    assert empty.static_smem_bytes is None
    assert empty.cumulative_stack_bytes is None


def test_resource_usage_says_the_same() -> None:
    found = by_name(LOGS["nvcc_resource_usage_sm_75"])
    assert found["_Z8texturedPdy"].sm_arch == "sm_75"
    assert found["_Z8texturedPdy"].constant_bytes == 368


def test_properties_of_a_called_function_are_not_the_kernels() -> None:
    log = LOGS["nvcc_sm_86"].replace("Function properties for _Z7stackedPfi", "Function properties")
    stacked = by_name(log)["_Z7stackedPfi"]
    assert stacked == PtxasKernel("_Z7stackedPfi", "sm_86")


def test_two_targets_in_one_log_are_two_answers() -> None:
    both = parse_ptxas(LOGS["nvcc_sm_86"] + LOGS["nvcc_sm_90"])
    assert [k.sm_arch for k in both if k.symbol == "_Z5emptyv"] == ["sm_86", "sm_90"]


def test_two_answers_for_one_kernel_are_an_error() -> None:
    used = "ptxas info    : Used 4 registers, used 0 barriers, 352 bytes cmem[0]\n"
    with pytest.raises(PtxasLogError, match="_Z5emptyv"):
        parse_ptxas(LOGS["nvcc_sm_86"].replace(used, used + used))


def test_nothing_of_ptxas_is_nothing() -> None:
    assert parse_ptxas("") == ()
    assert parse_ptxas("k.cu(3): error: expected a ';'\n") == ()


def lines_of(log: str) -> dict[tuple[str, str], str]:
    """Kernel and field to the line that says it, by deleting one line after the other."""
    whole = by_name(log)
    lines = log.split("\n")
    found = {}
    for index, line in enumerate(lines):
        if " bytes stack frame" in line or ": Used " in line:
            without = by_name("\n".join(lines[:index] + lines[index + 1 :]))
            for symbol, kernel in whole.items():
                for field, value in kernel._asdict().items():
                    if value != without[symbol]._asdict()[field]:
                        found[symbol, field] = line
    return found


SOURCES = {name: lines_of(log) for name, log in LOGS.items()}


def cut(log: str, at: int, draw: st.DrawFn) -> str:
    return log[:at]


def lose(log: str, at: int, draw: st.DrawFn) -> str:
    return log[:at] + log[at + draw(st.integers(1, 12)) :]


def insert(log: str, at: int, draw: st.DrawFn) -> str:
    return log[:at] + draw(st.text(max_size=8)) + log[at:]


def lose_line(log: str, at: int, draw: st.DrawFn) -> str:
    end = log.find("\n", at) + 1 or len(log)
    return log[: log.rfind("\n", 0, at) + 1] + log[end:]


def move_line(log: str, at: int, draw: st.DrawFn) -> str:
    lines = log.split("\n")
    line = lines.pop(draw(st.integers(0, len(lines) - 1)))
    lines.insert(draw(st.integers(0, len(lines))), line)
    return "\n".join(lines)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str]:
    """A log's name, and the log after one thing or two happened to it.

    Not two moved lines: that two kernels' lines changed places cannot be seen in what is left.
    """
    name = draw(st.sampled_from(sorted(LOGS)))
    log = LOGS[name]
    ways = [cut, lose, insert, lose_line]
    if draw(st.booleans()):
        log = move_line(log, 0, draw)
        ways = []
    for way in draw(st.lists(st.sampled_from(ways), min_size=1, max_size=2)) if ways else []:
        log = way(log, draw(st.integers(0, len(log))), draw)
    return name, log


@settings(max_examples=examples(500), deadline=None)
@given(damaged())
def test_a_damaged_log_gives_no_wrong_number(case: tuple[str, str]) -> None:
    """A line that is whole is read right; a number without such a line is of a damaged one."""
    name, log = case
    try:
        found = by_name(log)
    except PtxasLogError:
        return
    whole = by_name(LOGS[name])
    original, left = Counter(LOGS[name].split("\n")), Counter(log.split("\n"))
    for symbol, kernel in found.items():
        for field, value in kernel._asdict().items():
            source = SOURCES[name].get((symbol, field))
            if value is None or source is None:
                continue
            if left[source] == original[source]:
                assert value == whole[symbol]._asdict()[field], (field, log)
            elif original[source] == 1:
                assert left - original, (field, log)
