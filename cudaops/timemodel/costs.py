"""What an operation of the author's source becomes on a GPU, in warp instructions.

Counted in the SASS that nvcc 13.0.88 (`-O3 -arch=sm_86`) makes of one call each, main path only
(2026-11-20, disassembled with nvdisasm); the call's loads, stores and addresses are left out.
"""

from __future__ import annotations

import functools
import re
from importlib.resources import files

from cudaops.timemodel.work import Mix


def _mix(fp32: int = 0, alu: int = 0, sfu: int = 0, convert: int = 0, fp64: int = 0) -> Mix:
    return Mix(fp32 + alu + sfu + convert + fp64, fp32, fp64, alu, sfu, convert)


FLOAT_DIVIDE = _mix(fp32=5, alu=5, sfu=1)
DOUBLE_DIVIDE = _mix(fp64=8, alu=6, sfu=1, fp32=1)
INT_DIVIDE = _mix(fp32=8, alu=12, convert=2, sfu=1)
INT_DIVIDE_CONSTANT = _mix(fp32=1, alu=3)
INT_DIVIDE_POWER_OF_TWO = _mix(alu=3)
LONG_DIVIDE = _mix(fp32=10, alu=16, convert=2, sfu=1)
"""Products, and moves that are written as such, go through the FMA pipe (IMAD). Of 64 bits: where
both numbers fit into 32."""

CALLS: dict[str, Mix] = {
    "sqrtf": _mix(fp32=4, alu=4, sfu=1), "rsqrtf": _mix(fp32=2, alu=1, sfu=1),
    "expf": _mix(fp32=6, alu=3, sfu=1), "exp2f": _mix(fp32=2, alu=1, sfu=1),
    "exp10f": _mix(fp32=6, alu=3, sfu=1), "expm1f": _mix(fp32=16, alu=11, sfu=1, convert=1),
    "logf": _mix(fp32=15, alu=12, convert=1), "log2f": _mix(fp32=17, alu=12, convert=1),
    "log10f": _mix(fp32=15, alu=12, convert=1), "log1pf": _mix(fp32=16, alu=13, convert=1),
    "sinf": _mix(fp32=12, alu=12, convert=2), "cosf": _mix(fp32=12, alu=12, convert=2),
    "sincosf": _mix(fp32=16, alu=14, convert=1), "tanf": _mix(fp32=13, alu=12, sfu=1, convert=2),
    "tanhf": _mix(fp32=9, alu=6, sfu=2), "erff": _mix(fp32=9, alu=20, sfu=1),
    "atanf": _mix(fp32=11, alu=7, sfu=1), "atan2f": _mix(fp32=19, alu=23, sfu=1),
    "cbrtf": _mix(fp32=9, alu=5, sfu=2), "hypotf": _mix(fp32=11, alu=13, sfu=1),
    "sinhf": _mix(fp32=14, alu=8, sfu=2, convert=1),
    "coshf": _mix(fp32=8, alu=5, sfu=2, convert=1),
    "asinf": _mix(fp32=14, alu=10, sfu=1), "acosf": _mix(fp32=15, alu=10, sfu=1),
    "asinhf": _mix(fp32=19, alu=18, sfu=2, convert=1),
    "acoshf": _mix(fp32=20, alu=18, sfu=1, convert=1),
    "atanhf": _mix(fp32=17, alu=18, sfu=1, convert=1),
    "erfcf": _mix(fp32=34, alu=10, sfu=3, convert=1), "rcbrtf": _mix(fp32=9, alu=6, sfu=2),
    "sinpif": _mix(fp32=13, alu=9, convert=3), "cospif": _mix(fp32=13, alu=10, convert=2),
    "normcdff": _mix(fp32=43, alu=18, sfu=3, convert=1),
    "powf": _mix(fp32=44, alu=38, sfu=1, convert=5),
    "fmodf": _mix(fp32=23, alu=33, sfu=2, convert=2),
    "floorf": _mix(convert=1), "ceilf": _mix(convert=1), "truncf": _mix(convert=1),
    "rintf": _mix(convert=1), "nearbyintf": _mix(convert=1), "roundf": _mix(convert=1, alu=3),
    "fabsf": _mix(), "fmaf": _mix(fp32=1), "fmaxf": _mix(alu=1), "fminf": _mix(alu=1),
    "copysignf": _mix(alu=1),
    "sqrt": _mix(fp64=8, alu=10, sfu=1), "rsqrt": _mix(fp64=5, alu=7, sfu=1),
    "exp": _mix(fp64=17, alu=19), "exp2": _mix(fp64=17, alu=19),
    "log": _mix(fp64=30, alu=29, sfu=1),
    "log2": _mix(fp64=30, alu=29, sfu=1), "log10": _mix(fp64=30, alu=29, sfu=1),
    "sin": _mix(fp64=15, alu=16, convert=2), "cos": _mix(fp64=15, alu=16, convert=2),
    "tan": _mix(fp64=25, alu=20, convert=2), "tanh": _mix(fp64=33, alu=16, sfu=2, convert=4),
    "sinh": _mix(fp64=39, alu=28, fp32=10, sfu=1), "cosh": _mix(fp64=21, alu=11, fp32=6, sfu=1),
    "asin": _mix(fp64=42, alu=15, fp32=8, sfu=1), "acos": _mix(fp64=46, alu=18, fp32=8, sfu=1),
    "atan": _mix(fp64=28, alu=9, fp32=6, sfu=1), "cbrt": _mix(fp64=13, alu=13, fp32=12, sfu=3),
    "erfc": _mix(fp64=63, alu=22, fp32=15, sfu=2), "expm1": _mix(fp64=21, alu=21, fp32=11),
    "exp10": _mix(fp64=20, alu=13, fp32=10), "log1p": _mix(fp64=35, alu=20, fp32=10, sfu=1),
    "erf": _mix(fp64=41, alu=8, sfu=1, convert=4), "pow": _mix(fp64=70, alu=60, sfu=2),
    "fma": _mix(fp64=1), "fabs": _mix(), "fmax": _mix(fp64=1), "fmin": _mix(fp64=1),
    "__byte_perm": _mix(alu=1), "__brev": _mix(sfu=1), "__dp4a": _mix(alu=1),
    "__funnelshift_l": _mix(alu=1), "__funnelshift_r": _mix(alu=1),
    "floor": _mix(convert=1), "ceil": _mix(convert=1), "trunc": _mix(convert=1),
    "rint": _mix(convert=1), "fmod": _mix(fp64=20, alu=40),
    "sincos": _mix(fp64=21, alu=30, fp32=8, convert=2),
    "cudaops::multiply_tiles": _mix(fp32=32),
    **{f"cudaops_ptx::tile_{n}": _mix(fp32=n // 128) for n in (256, 512, 1024, 2048, 4096)},
}  # fmt: skip
CALLS |= {"cexpif": CALLS["sincosf"], "cexpi": CALLS["sincos"]}
"""By the C library's name, and by CUDA's where that is one instruction. g++ makes one `cexpi` of
both a sine and a cosine of one angle; these two are counted for sm_90. `tan` and `pow` in double
and `fmod` are estimates; `sinh`, `log1p` and the inverse hyperbolic ones have all of what stands
before their end, of which small arguments need less. `multiply_tiles` is a product of `mma.h`: 4096
multiply-adds, four times as often as in single precision; `tile_1024` is one of inline PTX, of so
many. Source: NVIDIA Ampere GA102 GPU Architecture whitepaper, 2.0, table 3; later devices take a
half or a quarter of it."""

BRANCHING = frozenset(
    (FLOAT_DIVIDE, DOUBLE_DIVIDE, LONG_DIVIDE, *(CALLS[name] for name in (
        "sqrtf", "sinf", "cosf", "sincosf", "tanf", "atan2f", "hypotf", "powf", "fmodf",
        "sqrt", "rsqrt", "sin", "cos", "sincos", "tan", "tanh", "sinh", "asin", "acos", "erfc",
        "expm1", "log1p", "pow", "fmod",
    )))
)  # fmt: skip
"""What branches to a slow path for rare arguments: nvcc moves neither loads nor arithmetic past it.
Measured: of four calls one after another, each of another element, the SASS of these (nvcc 13.0.88,
sm_90, 2026-12-01) has the second one's load behind the first one's branch; of all others in these
tables the four loads stand in front."""
FAST_BRANCHING = BRANCHING - {
    FLOAT_DIVIDE, *(CALLS[name] for name in ("sqrtf", "sinf", "cosf", "sincosf", "tanf", "powf"))
}  # fmt: skip
"""With `-use_fast_math`, where those are a few instructions. Source: CUDA C++ Programming Guide,
"Intrinsic Functions"."""

FAST_CALLS: dict[str, Mix] = {
    "__expf": _mix(fp32=3, alu=1, sfu=1), "__exp10f": _mix(fp32=3, alu=1, sfu=1),
    "__logf": _mix(fp32=3, alu=1, sfu=1), "__log2f": _mix(fp32=2, alu=1, sfu=1),
    "__sinf": _mix(fp32=1, sfu=1), "__cosf": _mix(fp32=1, sfu=1),
    "__fdividef": _mix(fp32=3, alu=2, sfu=1), "__frcp_rn": _mix(fp32=3, alu=2, sfu=1),
    "__powf": _mix(fp32=3, alu=1, sfu=2), "__tanf": _mix(fp32=2, sfu=3),
}  # fmt: skip

BIT_COUNTS = {
    "popcount": _mix(sfu=1), "clz": _mix(sfu=1), "ctz": _mix(sfu=2), "ffs": _mix(sfu=2),
}  # fmt: skip
"""By the beginning of g++'s name: POPC, FLO and, for the last bit, BREV before it, each a quarter
as often as an addition. Source: CUDA C++ Programming Guide, table "Throughput of Native Arithmetic
Instructions", 8.6 and 9.0."""

DEAR = 5
"""Instructions."""


def is_dear(name: str) -> bool:
    """Whether a call of this function is more than a few instructions."""
    mix = CALLS.get(name) or FAST_CALLS.get(name)
    return mix is not None and mix.issued >= DEAR


SFU_LATENCY = 5.0
"""Instructions that one of the special function unit lasts longer than another. With it, chains of
dependent divisions, roots, exponentials and reciprocal roots in single precision come out within a
fifth of an H200's 58, 56, 42 and 39 cycles (driver 580.159.04, CUDA 13.0.88, 2026-11-23)."""

UNKNOWN_CALL = _mix(alu=4)
"""A function the dump does not show: counted as a call and little else."""

CONVERT_FLOAT = _mix(convert=1)
ONE_FP32 = _mix(fp32=1)
ONE_FP64 = _mix(fp64=1)
ONE_ALU = _mix(alu=1)
ONE_IMAD = _mix(fp32=1)
"""An integer multiply-add goes through the FMA pipe."""
TWO_IMAD = _mix(fp32=2)
TWO_ALU = _mix(alu=2)
SHUFFLE = Mix(issued=1.0)
"""Goes through the load/store pipe, which the model does not load with it."""
COMPARE_AND_BRANCH = Mix(issued=2, alu=1, branch=1)
FREE = Mix()
"""Folded into another instruction: sign, cast between integers of one size, address offset."""


HEADER = "device_math.h"
"""Its functions are inlined into the author's kernel, so the IL shows their bodies. A body computes
the value on this machine; what it costs on a GPU is looked up under the function's name."""
HALF_HEADERS = frozenset({"half.h", "bfloat16.h", "narrow_type.h", "narrow_math.h"})
"""Their casts are part of the instruction that they surround."""
_DEFINITION = re.compile(r"^CUDAOPS_FN \w+ (?:fast)?(\w+)\(")
_CALL = re.compile(r"\b[a-z]\w*f?\(")


@functools.cache
def _by_line() -> dict[int, tuple[Mix, bool]]:
    """Cost of the function defined on a line, and whether its body calls another."""
    found: dict[int, tuple[Mix, bool]] = {}
    text = files("cudaops.executors.cpu").joinpath(f"include/cudaops/{HEADER}").read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        named = _DEFINITION.match(line)
        if not named:
            continue
        mix = CALLS.get(named.group(1)) or FAST_CALLS.get(named.group(1))
        if mix is not None:
            body = line.partition("{")[2]
            found[number] = (mix, bool(_CALL.search(body)))
    return found


def of_header_line(line: int, value: str) -> Mix | None:
    """The cost of a statement of `device_math.h`: all of it falls on one statement of the body.

    None: the line defines nothing the cost table knows, so its statements count as written.
    """
    known = _by_line().get(line)
    if known is None:
        return None
    mix, calls = known
    pays = re.match(r"^[.\w:]+ \(", value) is not None if calls else " / " in value
    return mix if pays else FREE
