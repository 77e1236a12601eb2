"""half and bfloat16 of the `cpu` executor: every function of CUDA's headers, and their values."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from cudaops.executors.cpu.toolchain import INCLUDE, find_toolchain
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.platform import Module
from tests.executors.cuda.gpu_builds import unit_of

requires_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="CUDA's own headers come with nvcc"
)
HEADERS = {"half": "cuda_fp16", "bfloat16": "cuda_bf16"}
DECLARED = re.compile(
    r"__CUDA_(HOSTDEVICE_|)(?:FP16|BF16)_DECL__\s+([^;{}()]*?)(\w+)\s*\(([^;{)]*)\)\s*;"
)
"""A declaration of NVIDIA's headers: for both sides, result, name, parameters."""


class Declared(NamedTuple):
    """A function as NVIDIA declares it."""

    name: str
    result: str
    parameters: tuple[str, ...]
    on_host: bool

    @property
    def call(self) -> str:
        return f"{self.name}({', '.join(f'std::declval<{p}>()' for p in self.parameters)})"


def declared(header: str, folder: Path) -> list[Declared]:
    """Every public function of one of the headers of the nvcc on PATH."""
    (folder / "one.cu").write_text(f"#include <{header}.h>\n")
    listed = subprocess.run(["nvcc", "-M", "one.cu"], cwd=folder, capture_output=True, text=True)
    text = Path(next(w for w in listed.stdout.split() if w.endswith(f"/{header}.h"))).read_text(
        "utf-8"
    )
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    found = []
    for side, result, name, parameters in DECLARED.findall(text):
        kinds = (p for p in parameters.split(",") if p.strip() not in ("", "void"))
        typed = (
            re.sub(r"\s*(?:const\s+)?\b\w+\s*(?:=.*)?$", "", " ".join(p.split())) for p in kinds
        )
        plain = tuple(t if "*" in t else t.removeprefix("const ") for t in typed)
        found.append(Declared(name, " ".join(result.split()), plain, bool(side)))
    return found


def compiled(folder: Path, source: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "source.cpp").write_text(source)
    command = [find_toolchain().gxx, *find_toolchain().flags, f"-I{INCLUDE}", *flags, "source.cpp"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def asserted(folder: Path) -> str:
    """A program that does not compile where a function lacks or gives another type."""
    lines = ["#include <cuda_fp16.h>", "#include <cuda_bf16.h>", "#include <utility>"]
    for header in HEADERS.values():
        functions = declared(header, folder)
        assert len({f.name for f in functions}) > 200
        lines += [
            f'static_assert(std::is_same<decltype({f.call}), {f.result}>::value, "{f.name}");'
            for f in functions
        ]
    return "\n".join(lines)


@requires_nvcc
@pytest.mark.parametrize("widened", [False, True])
def test_every_function_of_cudas_headers_is_there(tmp_path: Path, widened: bool) -> None:
    wide = ("-include", "cudaops/widen.h") if widened else ()
    flags = ("-fsyntax-only", "-include", "cudaops/cuda.h", *wide)
    done = compiled(tmp_path, asserted(tmp_path), *flags)
    assert done.returncode == 0, done.stderr[:4000]


@requires_nvcc
def test_the_gpus_yardstick_knows_every_function_too(tmp_path: Path) -> None:
    text = asserted(tmp_path) + "\n__global__ void k(half* a, __nv_bfloat162* b) {}"
    builder = GpuBuilder(tmp_path, "sm_90")
    try:
        built = builder.unit(unit_of(text, "k", widened=True), draft=False)
    finally:
        builder.close()
    assert isinstance(built, Module), built.log[:4000]


VALUES = {
    "float": "from_bits<float>((unsigned)(i * 2654435761u ^ i << 13))",
    "double": "(double)from_bits<float>((unsigned)(i * 2654435761u)) * (1 + i * 1e-9)",
    "short int": "(short)i",
    "unsigned short int": "(unsigned short)i",
    "int": "(int)(i * 2654435761u) >> i % 31",
    "unsigned int": "(unsigned)(i * 2654435761u) >> i % 31",
    "long long int": "(long long)(i * 0x9E3779B97F4A7C15ull) >> i % 63",
    "unsigned long long int": "(unsigned long long)(i * 0x9E3779B97F4A7C15ull) >> i % 63",
    "float2": "float2{from_bits<float>((unsigned)(i * 40503u)), (float)i}",
}
"""The i-th argument of a type that is no half."""
DIGEST_HEAD = """
#include <cstdio>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class T, class F> T from_bits(F v) {
  static_assert(sizeof(T) == sizeof(F), ""); T r; memcpy((void*)&r, &v, sizeof r); return r;
}
static unsigned long long digest;
template <class T> void eat(T v) {
  unsigned char bytes[sizeof(T)];
  memcpy(bytes, &v, sizeof(T));
  for (unsigned char b : bytes) digest = (digest ^ b) * 1099511628211ull;
}
static void eat(float v) { unsigned b; memcpy(&b, &v, 4); eat(v == v ? b : 0x7fffffffu); }
static void eat(float2 v) { eat(v.x), eat(v.y); }
int main() {
"""


def argument(kind: str, position: int) -> str:
    """The i-th argument of a type: all 65,536 bit patterns, against another pattern each."""
    if not kind.startswith("__"):
        return VALUES[kind]
    bits = ("i", "i * 40503u + 77u ^ i >> 5 & 1", "i * 3u + 1")[position]
    if kind in ("__half", "__nv_bfloat16"):
        return f"from_bits<{kind}>((unsigned short)({bits}))"
    return f"from_bits<{kind}>((unsigned)({bits}) * 65537u ^ (unsigned)(i << 16) * 3u)"


@requires_nvcc
def test_what_cuda_computes_on_the_host_too_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    lines = [DIGEST_HEAD]
    for kind, header in HEADERS.items():
        for f in declared(header, tmp_path):
            if f.on_host:
                call = (
                    f"{f.name}({', '.join(argument(p, at) for at, p in enumerate(f.parameters))})"
                )
                lines.append("digest = 1469598103934665603ull;")
                lines.append(f"for (unsigned long long i = 0; i < 131072; i++) eat({call});")
                lines.append(f'printf("{kind} {f.name} %llx\\n", digest);')
    (tmp_path / "digests.cu").write_text("\n".join([*lines, "}"]))
    flags = (*find_toolchain().flags, "-no-pie", "-O1", "-x", "c++", f"-I{INCLUDE}")
    told = []
    for command in ([find_toolchain().gxx, *flags], ["nvcc", "-O1", "-std=c++17"]):
        subprocess.run([*command, "digests.cu", "-o", "digests"], cwd=tmp_path, check=True)
        ran = subprocess.run([tmp_path / "digests"], capture_output=True, text=True, check=True)
        told.append(ran.stdout.splitlines())
    assert len(told[1]) > 250
    assert [line for line in told[0] if line not in told[1]] == []


class Format(NamedTuple):
    """A type of 16 bits. Sources: IEEE 754-2019 table 3.5 (binary16), CUDA's cuda_bf16.h."""

    type: str
    name: str
    digits: int
    least_exponent: int
    largest: float

    def value(self, bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            if self.name == "half":
                return bits.view(np.float16).astype(np.float64)
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    def rounded(
        self, x: npt.NDArray[np.float64], to: Callable[..., npt.NDArray[np.float64]] = np.rint
    ) -> npt.NDArray[np.float64]:
        """`x` rounded once: by `np.rint` (ties to even), `np.floor`, `np.ceil` or `np.trunc`."""
        with np.errstate(all="ignore"):
            exponent = np.maximum(np.frexp(x)[1] - 1, self.least_exponent)
            unit = np.ldexp(1.0, exponent - self.digits + 1)
            got = np.where(np.isfinite(x), to(x / unit) * unit, x)
            beyond = np.abs(got) > self.largest
            inward = np.copysign(self.largest, x)
            kept = (to is np.trunc) | ((to is np.floor) & (x > 0)) | ((to is np.ceil) & (x < 0))
            return np.where(
                beyond & np.isfinite(x) & kept, inward, np.where(beyond, got * np.inf, got)
            )


FORMATS = (
    Format("__half", "half", 11, -14, 65504.0),
    Format("__nv_bfloat16", "bfloat16", 8, -126, 2.0**128 * (1 - 2.0**-8)),
)
each_format = pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
ALL = np.arange(65536, dtype=np.uint32).astype(np.uint16)


def computed(
    folder: Path,
    format: Format,
    functions: str,
    inputs: npt.NDArray[np.generic],
    kind: npt.DTypeLike,
) -> npt.NDArray[Any]:
    """What `Out f(In)` gives for each of the inputs, compiled with our headers."""
    inputs.tofile(folder / "in.bin")
    source = f"""
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector>
typedef {format.type} T;
{functions}
int main() {{
  std::vector<In> in({inputs.nbytes} / sizeof(In));
  FILE* file = fopen("in.bin", "rb");
  fread((void*)in.data(), sizeof(In), in.size(), file), fclose(file);
  std::vector<Out> out(in.size());
  for (size_t i = 0; i < in.size(); i++) out[i] = f(in[i]);
  file = fopen("out.bin", "wb");
  fwrite((const void*)out.data(), sizeof(Out), out.size(), file), fclose(file);
}}"""
    done = compiled(folder, source, "-no-pie", "-O2", "-o", "computes")
    assert done.returncode == 0, done.stderr[:2000]
    subprocess.run(["./computes"], cwd=folder, check=True)
    return np.fromfile(folder / "out.bin", dtype=kind)


MATH: dict[str, Callable[..., npt.NDArray[np.float64]]] = {
    "hsqrt": np.sqrt, "hrsqrt": lambda x: 1 / np.sqrt(x), "hrcp": lambda x: 1 / x,
    "hlog": np.log, "hlog2": np.log2, "hlog10": np.log10,
    "hexp": np.exp, "hexp2": np.exp2, "hexp10": lambda x: np.power(10.0, x),
    "hsin": np.sin, "hcos": np.cos, "htanh": np.tanh, "htanh_approx": np.tanh,
    "htrunc": np.trunc, "hceil": np.ceil, "hfloor": np.floor, "hrint": np.rint,
}  # fmt: skip
SINGLE = 2.0**-22
"""Twice the roundoff of the single precision that a function is computed in."""


@each_format
def test_functions_of_every_value_are_rounded_once(tmp_path: Path, format: Format) -> None:
    names = list(MATH)
    calls = ", ".join(f"{name}(x)" for name in names)
    pairs = " ".join(
        f"{{ auto p = {n.replace('h', 'h2', 1)}({format.type}{2}(x, x)); "
        f"if (memcmp(&p.x, &r.of[{at}], 2) || memcmp(&p.y, &r.of[{at}], 2)) abort(); }}"
        for at, n in enumerate(names)
    )
    functions = (
        f"typedef T In; struct Out {{ T of[{len(names)}]; }};"
        f"Out f(T x) {{ Out r{{{{{calls}}}}}; {pairs} return r; }}"
    )
    out = computed(tmp_path, format, functions, ALL, "<u2").reshape(-1, len(names))
    x = format.value(ALL)
    for at, name in enumerate(names):
        got = format.value(np.ascontiguousarray(out[:, at]))
        with np.errstate(all="ignore"):
            exact = MATH[name](x)
            one, other = (format.rounded(exact * (1 + by)) for by in (-SINGLE, SINGLE))
        fits = (got == one) | (got == other) | (np.isnan(got) & np.isnan(exact))
        assert fits.all(), (name, x[~fits][:4], got[~fits][:4], exact[~fits][:4])


def fused(format: Format, a: float, b: float, c: float) -> float:
    """a * b + c rounded once, in exact arithmetic."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    exponent -= abs(exact) < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, format.least_exponent) - format.digits + 1)
    got = round(exact / unit) * unit  # ties to even
    if abs(got) > Fraction(format.largest):
        return float("inf") if got > 0 else float("-inf")
    return float(got)


@each_format
def test_a_multiply_add_is_rounded_once(tmp_path: Path, format: Format) -> None:
    numbers = np.random.default_rng(16)
    near_one = 0x3C00 if format.name == "half" else 0x3F80
    patterns = numbers.integers(0, 65536, (6000, 3)).astype(np.uint16)
    # products that lie on the middle between two numbers, and a little on either side of it
    patterns[2000:, :2] = near_one + numbers.integers(0, 200, (4000, 2))
    patterns[4000:, :2] = near_one + 8 * numbers.integers(0, 25, (2000, 2))
    patterns[2000:, 2] = numbers.integers(0, 3, 4000) + 0x8000 * numbers.integers(0, 2, 4000)
    values = format.value(patterns)
    patterns = patterns[np.isfinite(values).all(axis=1)]
    pair = format.type + "2"
    functions = f"""
struct In {{ T a, b, c; }};
struct Out {{ T plain, sat, relu, low, high; }};
Out f(In i) {{
  {pair} p = __hfma2({pair}(i.a, i.b), {pair}(i.b, i.a), {pair}(i.c, i.c));
  T sat = __hfma_sat(i.a, i.b, i.c), relu = __hfma_relu(i.a, i.b, i.c);
  return Out{{__hfma(i.a, i.b, i.c), sat, relu, p.x, p.y}};
}}"""
    out = computed(tmp_path, format, functions, patterns, "<u2").reshape(-1, 5)
    values, got = format.value(patterns), format.value(out)
    expected = np.array([fused(format, *row) for row in values.tolist()])
    with np.errstate(over="ignore"):
        single = (values[:, 0] * values[:, 1] + values[:, 2]).astype(np.float32)
    twice = format.rounded(single.astype(np.float64))
    assert (twice != expected).any()  # else these numbers would show nothing
    assert (got[:, 0] == expected).all()
    assert (got[:, 3:] == expected[:, None]).all()
    assert (got[:, 1] == np.clip(expected, 0, 1)).all()
    assert (got[:, 2] == np.maximum(expected, 0)).all()


@each_format
def test_conversions_to_integers_round_as_their_suffix_says(tmp_path: Path, format: Format) -> None:
    kinds = {
        "short": "<i2",
        "ushort": "<u2",
        "int": "<i4",
        "uint": "<u4",
        "ll": "<i8",
        "ull": "<u8",
    }
    modes = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
    spelled = {
        "ushort": "unsigned short",
        "ll": "long long",
        "ull": "unsigned long long",
        "uint": "unsigned",
    }
    names = [f"{kind}_{mode}" for kind in kinds for mode in modes]
    fields = " ".join(
        f"{spelled.get(kind, kind)} {kind}_{mode};" for kind in kinds for mode in modes
    )
    calls = ", ".join(f"__{format.name}2{name}(x)" for name in names)
    functions = f"typedef T In; struct Out {{ {fields} }}; Out f(T x) {{ return Out{{{calls}}}; }}"
    record = np.dtype([(f"{k}_{m}", code) for k, code in kinds.items() for m in modes], align=True)
    out = computed(tmp_path, format, functions, ALL, record)
    x = format.value(ALL)
    for kind, code in kinds.items():
        limits = np.iinfo(code)
        none = 1 << 63 if limits.bits == 64 else 0  # PTX ISA, cvt: not-a-number
        for mode, rounding in modes.items():
            with np.errstate(invalid="ignore"):  # signalling NaNs
                rounded = rounding(x)
            bounds = (float(limits.min), float(limits.max))
            whole = [
                none if v != v else min(int(np.clip(v, *bounds)), int(limits.max))
                for v in rounded.tolist()
            ]
            kept = [w % (1 << limits.bits) for w in whole]
            expected = np.array(kept, dtype=f"<u{limits.bits // 8}")
            assert (out[f"{kind}_{mode}"].view(expected.dtype) == expected).all(), (kind, mode)


@each_format
def test_conversions_from_numbers_round_as_their_suffix_says(
    tmp_path: Path, format: Format
) -> None:
    numbers = np.random.default_rng(17)
    modes = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
    small = numbers.integers(-70000, 70000, 20000)
    near = np.array([256, 257, 258, 259, 65504, 65519, 65520, 2049, 2050, 2051, 1 << 24], np.int64)
    inputs = {
        "float": (
            "float",
            np.concatenate([small, 1.0 / small[small != 0], near]).astype(np.float32),
        ),
        "int": ("int", np.concatenate([small, -near, near]).astype(np.int32)),
        "ll": (
            "long long",
            np.concatenate([small, near << 32, (near << 40) + 1, (near << 38) - 1]),
        ),
    }
    for kind, (type_name, given) in inputs.items():
        calls = ", ".join(f"__{kind}2{format.name}_{mode}(x)" for mode in modes)
        functions = (
            f"typedef {type_name} In; struct Out {{ T of[4]; }};"
            f"Out f(In x) {{ return Out{{{{{calls}}}}}; }}"
        )
        out = format.value(computed(tmp_path, format, functions, given, "<u2")).reshape(-1, 4)
        exact = given.astype(np.longdouble)
        for at, to in enumerate(modes.values()):
            expected = format.rounded(exact, to)  # type: ignore[arg-type]
            wrong = out[:, at] != expected
            assert not wrong.any(), (kind, to, given[wrong][:4], out[wrong, at][:4])
