"""What each precision gives: products with rounded operands, compared with double.

`python tests/gates/precision_table.py` prints the table of docs/verification.md.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cudaops.executors.arrays import Array
from cudaops.sandbox.precision import rounded

SIDE = 128
"""Rows and columns of every product."""

INPUTS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "randn": lambda generator, shape: generator.standard_normal(shape),
    "uniform": lambda generator, shape: generator.random(shape),
    "0.02 randn": lambda generator, shape: 0.02 * generator.standard_normal(shape),
}

BITS = {"tf32": 11, "fp16": 11, "bf16": 8, "e4m3": 4}


class Product(NamedTuple):
    """Two float32 matrices, their product in double, and as a plain loop in float32 gives it."""

    a: Array
    b: Array
    wide: Array
    baseline: Array


@functools.cache
def product(inputs: str, k: int, side: int = SIDE, seed: int = 7) -> Product:
    """A product of `side` x k and k x `side` matrices."""
    generator = np.random.default_rng(seed)
    a = INPUTS[inputs](generator, (side, k)).astype(np.float32)
    b = INPUTS[inputs](generator, (k, side)).astype(np.float32)
    baseline = np.zeros((side, side), np.float32)
    for i in range(k):
        baseline += a[:, i : i + 1] * b[i : i + 1, :]
    return Product(a, b, a.astype(np.float64) @ b.astype(np.float64), baseline)


def narrow(values: Array, kind: str) -> Array:
    """Operands as matrix instructions of this type take them; fp16 with its range."""
    if kind == "fp16":
        return values.astype(np.float16).astype(np.float32)
    return rounded(values, BITS[kind]).astype(np.float32)


def cut(values: Array, kind: str) -> Array:
    """Operands truncated to the type, as where float32 is handed to a TF32 instruction as it is."""
    shift = 24 - BITS[kind]
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32) >> shift << shift
    return bits.view(np.float32)


def in_half_accumulators(p: Product) -> Array:
    """fp16 operands, and sums kept in fp16 after each 16 terms, as a matrix instruction can."""
    a, b = narrow(p.a, "fp16"), narrow(p.b, "fp16")
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for i in range(0, a.shape[1], 16):
        total = (total.astype(np.float32) + a[:, i : i + 16] @ b[i : i + 16]).astype(np.float16)
    return total.astype(np.float32)


WAYS: dict[str, Callable[[Product], Array]] = {
    "fp32, one sum after the other": lambda p: p.baseline,
    "fp32, another order": lambda p: p.a @ p.b,
    "tf32 or fp16 operands": lambda p: narrow(p.a, "tf32") @ narrow(p.b, "tf32"),
    "tf32 operands, truncated": lambda p: cut(p.a, "tf32") @ cut(p.b, "tf32"),
    "one operand tf32": lambda p: narrow(p.a, "tf32") @ p.b,
    "fp16 operands and sums": in_half_accumulators,
    "bf16 operands": lambda p: narrow(p.a, "bf16") @ narrow(p.b, "bf16"),
    "one operand bf16": lambda p: narrow(p.a, "bf16") @ p.b,
    "e4m3 operands (mantissa only)": lambda p: narrow(p.a, "e4m3") @ narrow(p.b, "e4m3"),
}


def relative_l2(result: Array, wide: Array) -> float:
    """Relative L2 error against the product in double."""
    return float(np.linalg.norm(result - wide) / np.linalg.norm(wide))


def table() -> str:
    """Markdown: a row a way of computing, a column an input distribution and K."""
    columns = [(inputs, k) for inputs in INPUTS for k in (256, 4096)]
    products = [product(inputs, k) for inputs, k in columns]
    lines = [
        "| computed in | " + " | ".join(f"{i}, K={k}" for i, k in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for name, way in WAYS.items():
        errors = (f"{relative_l2(way(p), p.wide):.1e}" for p in products)
        lines.append(f"| {name} | " + " | ".join(errors) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
