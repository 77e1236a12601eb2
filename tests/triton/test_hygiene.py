"""What a rewrite of a Triton kernel may hold, and how it is put into the author's file."""

from __future__ import annotations

import ast

import pytest

from cudaops.errors import InputError
from cudaops.triton.hygiene import spliced, values_set, why_refused
from cudaops.triton.source import TritonProgram
from tests.triton.programs import EXAMPLES, REWRITES, example

RIGHT = (REWRITES / "right_vector_add.py").read_text("utf-8")


def refused(text: str, of: str = "vector_add") -> list[str]:
    program = example(of)
    return why_refused(text, "r.py", program, program.kernels[of])


def in_kernel(line: str) -> str:
    """The right rewrite with one more line in its helper."""
    return RIGHT.replace("    return b + a\n", f"    {line}\n    return b + a\n")


@pytest.mark.parametrize("name", ["right_vector_add", "right_layer_norm"])
def test_right_rewrites_pass_and_are_put_in(name: str) -> None:
    text, of = (REWRITES / f"{name}.py").read_text("utf-8"), name.removeprefix("right_")
    assert refused(text, of) == []
    author = example(of)
    rewrite = TritonProgram(text, "r.py")
    whole = spliced(rewrite, author, author.kernels[of])
    assert ast.parse(whole)
    assert values_set(rewrite, author.kernels[of])["BLOCK"] == 1024
    assert whole.count("1024") == 1
    assert whole.count("import triton\n") == 1
    assert not refused(TritonProgram(whole, "w.py").module(of), of)


@pytest.mark.parametrize(
    "statement",
    [
        "import time", "import os", "import torch", "from triton.runtime import driver",
        "from triton.language import *", "import triton.language.core as c", "triton.jit = None",
        "x = open('f')", "x = [1].append(2)", "def f(): pass", "class A: pass", "if 1: import os",
        "@exit\n@triton.jit\ndef g(x): pass", "@triton.jit\ndef g(x=exit()): pass",
        "@triton.jit\ndef g(x: exit()): pass", "@triton.jit\ndef g(*x): pass",
        "@triton.jit(repr=exit)\ndef g(x): pass", "tl = 3", "BLOCK = 3", "for x in y: pass",
        "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef g(x): pass",
        "async def g(x): pass", "with x: pass", "add: int = 3; add.x = 4",
    ],
)  # fmt: skip
def test_host_code_is_refused(statement: str) -> None:
    assert refused(f"{RIGHT}\n\n{statement}\n")[0].startswith("r.py:")


@pytest.mark.parametrize(
    "line",
    [
        "import os", "__import__('os')", "open('f')", "exec('1')", "a.__class__", "a.handle",
        "a.handle.data.tofile('f')", "tl.core.sys", "tl.math.core", "triton.runtime",
        "triton.language.core", "tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)",
        "tl.sum = a", "x = tl", "lambda: a", "[x for x in range(3)]", "f'{a}'", "print(a)",
        "global BLOCK", "getattr(a, 'handle')", "tl.extra", "vector_add.fn", "a.shape.x = 3",
        "torch.cuda", "time.sleep(1)", "raise a", "tl = a", "del a", "(x := a)", "a.to.__self__",
        "tl.device_print('a', a)", "'{}'.format(a)",
    ],
)  # fmt: skip
def test_what_leads_out_of_a_kernel_is_refused(line: str) -> None:
    found = refused(in_kernel(line))
    assert found
    assert found[0].startswith("r.py:")


@pytest.mark.parametrize(
    "line",
    [
        "x = a.to(tl.float32)", "x = tl.math.exp(a)", "for i in range(3):\n        a += i",
        "x: tl.constexpr = 3", "x = triton.cdiv(3, 2)", "x = a[:, None]", "assert BLOCK == 1024",
        "x = triton.language.max(a, axis=0)", "if BLOCK > 3:\n        a = b", "x = -float('inf')",
        "tl.static_assert(BLOCK > 3)", "while BLOCK < 3:\n        a = b", "x, y = a, b",
    ],
)  # fmt: skip
def test_what_kernels_are_made_of_passes(line: str) -> None:
    assert refused(in_kernel(line)) == []


def test_it_must_take_what_the_author_s_kernel_takes() -> None:
    assert "there is no @triton.jit function vector_add" in refused("import triton\n")[0]
    other = RIGHT.replace("c_ptr, n, BLOCK", "c_ptr, m, BLOCK").replace("at < n", "at < m")
    assert "the author's takes a_ptr, b_ptr, c_ptr, n" in refused(other)[0]
    taken = f"{RIGHT}\n\n@triton.jit\ndef add(x):\n    return x\n"
    assert refused(taken)[0].endswith("add is a name of vector_add.py too; call it something else")


def test_a_value_that_no_integer_holds_is_refused_when_it_is_put_in() -> None:
    author = example("row_softmax")
    text = author.module("row_softmax") + "\n\nBLOCK = 64\n"
    assert refused(text, "row_softmax") == []
    with pytest.raises(InputError, match=r"BLOCK=64 cannot be put into row_softmax.py: line 26"):
        spliced(TritonProgram(text, "r.py"), author, author.kernels["row_softmax"])


def test_a_parameter_of_its_own_is_given_at_the_launch() -> None:
    text = RIGHT.replace("BLOCK: tl.constexpr):", "BLOCK: tl.constexpr, WIDE: tl.constexpr = 2):")
    author = example("vector_add")
    assert refused(text) == []
    whole = spliced(TritonProgram(text, "r.py"), author, author.kernels["vector_add"])
    assert "BLOCK=block, WIDE=2)" in whole


def test_every_wrong_host_line_is_named() -> None:
    found = refused((REWRITES / "wrong_host_vector_add.py").read_text("utf-8"))
    assert [line.split(":")[1] for line in found] == ["3", "5", "9"]
    assert {p.stem for p in EXAMPLES.glob("*.py")} >= {"vector_add"}


def test_a_rewrite_of_values_alone_keeps_the_kernel() -> None:
    author = example("vector_add")
    kernel = author.kernels["vector_add"]
    text = "import triton\nimport triton.language as tl\n\nBLOCK = 1024\n\n\n"
    rewrite = TritonProgram(text + author.source(kernel.node), "same.py")
    whole = spliced(rewrite, author, kernel)
    assert whole == author.text.replace("block = 64", "block = 1024")
