"""What is read of an author's file: kernels, launches, and the integers that may be replaced."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from cudaops.errors import InputError
from cudaops.triton.bench import axes, widened_text
from cudaops.triton.source import TritonProgram, is_triton, only_equated, touches_by_memory
from cudaops.triton.worker import _Capture
from tests.triton.programs import SIZES, example

HEAD = """import torch
import triton
import triton.language as tl

EPS = 1e-5

@triton.jit
def k(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, EPS, mask=at < n)

"""


def read(launching: str) -> TritonProgram:
    return TritonProgram(HEAD + launching, "k.py")


def fixed(launching: str) -> str:
    """Why BLOCK cannot be replaced."""
    return read(launching).values("k")[1]["BLOCK"]


@pytest.mark.parametrize("name", SIZES)
def test_the_examples_are_read_and_their_kernels_stand_alone(name: str) -> None:
    program = example(name)
    assert is_triton(program.text)
    module = ast.parse(program.module(name))
    assert name in {n.name for n in module.body if isinstance(n, ast.FunctionDef)}
    assert not any("DEVICE" in ast.unparse(n) for n in module.body)
    assert "num_warps" in axes(program, program.kernels[name])


def test_a_literal_a_variable_and_a_keyword_are_replaced() -> None:
    program = read("def f(x, n):\n    b = 64\n    k[(triton.cdiv(n, b),)](x, n, BLOCK=b)\n")
    values, _ = program.values("k")
    assert values == {"BLOCK": 64, "num_warps": 4, "num_stages": 3}
    text = program.edited(program.with_values("k", {"BLOCK": 256, "num_warps": 8}))
    assert "b = 256\n" in text
    assert "(x, n, BLOCK=b, num_warps=8)" in text
    lambda_grid = read("k[lambda meta: (triton.cdiv(9, meta['BLOCK']),)](x, 9, 64, num_warps=2,)\n")
    text = lambda_grid.edited(lambda_grid.with_values("k", {"BLOCK": 32, "num_stages": 2}))
    assert "(x, 9, 32, num_warps=2, num_stages=2,)" in text


def test_text_beyond_ascii_keeps_its_places() -> None:
    program = read('s = "é"; k[(1,)](s, 9, BLOCK=64)  # über\n')
    assert 's = "é"; k[(1,)](s, 9, BLOCK=128)  # über' in program.edited(
        program.with_values("k", {"BLOCK": 128})
    )


@pytest.mark.parametrize(
    ("launching", "why"),
    [
        ("k[(9,)](x, n, BLOCK=triton.next_power_of_2(n))", "is not an integer"),
        ("def f(x, b):\n    k[(9,)](x, 1, BLOCK=b)", "b is not set once, to an integer"),
        ("k[(triton.cdiv(n, 64),)](x, n, BLOCK=64)", "64 stands in the grid as a number too"),
        ("k[(9,)](x, *rest)", "launches with * or **"),
        ("b = 64\nb = 32\nk[(9,)](x, 1, b)", "b is not set once"),
        ("b = 64\ny = torch.empty(b)\nk[(9,)](y, 1, b)", "uses y for more than launch and grid"),
        ("b = 64\nprint(b)\nk[(9,)](x, 1, b)", "line 13 uses b for more than launch and grid"),
        (
            "b = 64\ndef f(n):\n    g = n // b\n    k[(g,)](x, n, b)\n    return g",
            "uses g for more than launch and grid",
        ),
    ],
)
def test_what_may_not_be_replaced_says_why(launching: str, why: str) -> None:
    assert why in fixed(launching)


def test_several_values_of_one_parameter_are_left_alone() -> None:
    assert "several values" in fixed("k[(9,)](x, 1, 64)\nk[(9,)](x, 1, 32)")


def test_an_autotuned_kernel_keeps_its_decorators_choice() -> None:
    text = HEAD.replace(
        "@triton.jit\n", "@triton.autotune(configs=CONFIGS, key=['n'])\n@triton.jit\n"
    )
    program = TritonProgram(f"CONFIGS = []\n{text}k[(9,)](x, 1)\n", "k.py")
    assert "the decorators of k choose it" in program.values("k")[1]["BLOCK"]
    assert "autotune" not in program.module("k")
    assert "CONFIGS" not in program.module("k")


def test_a_block_that_covers_a_row_is_never_made_smaller() -> None:
    program = read("k[(9,)](x, 1, BLOCK=64)\n")
    assert min(axes(program, program.kernels["k"])["BLOCK"]) == 64
    norm = example("layer_norm")
    assert min(axes(norm, norm.kernels["layer_norm"])["BLOCK"]) == 16


def test_a_kernel_that_needs_more_than_constants_is_refused() -> None:
    text = HEAD.replace("EPS, mask", "helper(EPS), mask") + "def helper(x):\n    return x\n"
    with pytest.raises(InputError, match=r"k.py:12: k needs helper, which is no @triton.jit"):
        TritonProgram(text, "k.py").module("k")
    with pytest.raises(InputError, match=r"k.py:1: no Python that can be read"):
        TritonProgram("def", "k.py")


def test_the_widened_kernel_names_float64_alone() -> None:
    wide = widened_text(example("matmul").module("matmul"))
    assert "float32" not in wide
    assert "tl.float64" in wide


def test_the_grid_is_worked_out_for_other_values_in_the_launching_frame() -> None:
    small = 64
    frame = sys._getframe()
    assert frame.f_locals["small"] == small
    site = {
        "first": 1, "last": 10**6, "grid": "grid", "variables": {"small": "BLOCK"},
        "derived": ["blocks = -(-1000 // small)", "grid = (blocks, 1)"],
    }  # fmt: skip
    configs = [{"BLOCK": 64}, {"BLOCK": 256}, {"BLOCK": 0}]
    capture = _Capture({"most_bytes": 0, "sites": {"k": [site]}, "configs": {"k": configs}}, Path())
    assert capture._grids("k", frame, {}, [16, 1]) == [[16, 1], [4, 1], None]
    assert capture._grids("k", frame, {}, [17, 1]) == [None] * 3
    site |= {"grid": "lambda meta: (meta['BLOCK'] // 2,)", "derived": []}
    assert capture._grids("k", frame, {"BLOCK": 64}, [32]) == [[32], [128], [0]]


@pytest.mark.parametrize(
    ("body", "equated"),
    [
        ("tl.store(x, tl.load(x) != at)", True),
        ("if at:\n        tl.store(x, 1)", True),
        ("tl.store(x, 1 if at == 2 else 0)", True),
        ("tl.store(x + at, tl.load(x) != at)", False),
        ("tl.store(x, 1, mask=tl.arange(0, 8) < at)", False),
        ("tl.store(x, 1)", False),
    ],
)
def test_what_is_only_asked_to_be_equal_may_be_any_number(body: str, equated: bool) -> None:
    kernel = ast.parse(f"def k(x, y, at):\n    {body}\n").body[0]
    assert isinstance(kernel, ast.FunctionDef)
    assert only_equated(kernel, "at") is equated


@pytest.mark.parametrize(
    ("body", "by_memory"),
    [
        ("v = tl.load(x + at)\n    tl.store(y + at, v * 2, mask=v > 0)", False),
        ("v = tl.load(x + at).to(tl.int32)\n    tl.store(y + v, 1)", True),
        ("v = tl.load(x + at)\n    w = v + 1\n    tl.atomic_add(pointer=y + w, val=1)", True),
        ("for i in range(tl.load(x)):\n        tl.store(y + at, i)", True),
        ("v = helper(x, at)\n    tl.store(y + v, 1)", True),
        (
            "v = tl.load(x + at)\n    p = tl.make_block_ptr(y, offsets=(v,))\n    tl.store(p, v)",
            True,
        ),
    ],
)
def test_whether_memory_says_what_is_touched(body: str, by_memory: bool) -> None:
    kernel = ast.parse(f"def k(x, y, at):\n    {body}\n").body[0]
    assert isinstance(kernel, ast.FunctionDef)
    assert touches_by_memory(kernel) is by_memory
