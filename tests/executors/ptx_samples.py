"""Every instruction of PTX that a rewrite may hold, on samples: one program for GPU and processor.

`python -m tests.executors.ptx_samples > samples.cu` writes it. It prints a line an instruction: its
name and the bits of its results. What nvcc makes of it prints the same on a GPU but for the errors
of approximate instructions and the bits of NaN.
"""

from __future__ import annotations

import random
import struct
import sys

from cudaops.program.ptx_instructions import BITS, PtxOperation, instructions

SAMPLES = 32
"""Of each instruction: a warp."""
_FLOATS = (
    0.0, -0.0, 1.0, -1.5, 0.1, 7.25, -100.5, 3e38, -3e38, 1e-30, 1e-40, -1e-40, 1.3e-38, 2.0**126,
    1.5 * 2.0**126, 0.75, 1e9, -2147483648.0, 4294967296.0, 2.5, 3.5, -0.5, 1e20, 88.0, -30.25,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
_WORDS = (0, 1, 2, 5, 31, 32, 33, 63, 64, 127, 255, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678)
_SMALL = (0, 1, 2, 5, 8, 16, 24, 31, 32, 33, 63, 64, 65, 127, 255)
"""Positions and lengths of fields: their registers hold no more."""
_ANGLES = (0.0, -0.0, 1.0, -1.5, 0.1, 0.75, 2.5, 3.0, -3.0, -0.5, 1e-5, float("inf"))
"""For `sin.approx` and `cos.approx`, whose error is stated from -pi to pi."""
_LETTERS = {"f32": "f", "f64": "d", "u16": "h", "pred": "r"}
_TYPES = {
    "f": "float", "d": "double", "h": "unsigned short", "r": "unsigned", "l": "unsigned long long",
}  # fmt: skip


def opcodes() -> tuple[str, ...]:
    """All that compute, in order; loads and stores are seen by exploits."""
    return tuple(sorted(instructions()))


def program() -> str:
    """The program's text."""
    cases = "\n".join(_case(n, name, instructions()[name]) for n, name in enumerate(opcodes()))
    data = ",".join(f"{v}ull" for name in opcodes() for v in inputs_of(name))
    names = ",".join(f'"{name}"' for name in opcodes())
    return f"""#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
static const unsigned long long samples[] = {{{data}}};
static const char* const names[] = {{{names}}};
{cases}
int main() {{
    unsigned long long *in, *out, host[{SAMPLES}];
    cudaMalloc(&in, sizeof samples);
    cudaMalloc(&out, sizeof host);
    cudaMemcpy(in, samples, sizeof samples, cudaMemcpyHostToDevice);
    {_launches()}
    return cudaDeviceSynchronize() != cudaSuccess;
}}
"""


def _launches() -> str:
    return "\n    ".join(
        f"op{n}<<<1, {SAMPLES}>>>(in + {n * SAMPLES * 4}, out);"
        " cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);"
        f' printf("%s", names[{n}]); for (auto one : host) printf(" %llx", one); printf("\\n");'
        for n in range(len(opcodes()))
    )


def _case(number: int, name: str, one: PtxOperation) -> str:
    assert one.writes is not None
    head: list[str] = []
    operands: list[str] = []
    listed: list[str] = []
    for place, kind in enumerate(one.reads):
        letter = _LETTERS.get(kind, "r" if BITS[kind] == 32 else "l")
        if name == "lop3.b32" and place == 3:
            listed.append("0xCA")
            continue
        position = len(operands) + 1
        value = f"in[{place}]"
        spelled = {"f": f"__uint_as_float((unsigned){value})",
                   "d": f"__longlong_as_double((long long){value})"}.get(letter)  # fmt: skip
        operands.append(f'"{letter}"({spelled or f"({_TYPES[letter]}){value}"})')
        if kind == "pred":
            head.append(f".reg .pred p{place}; setp.ne.u32 p{place}, %{position}, 0; ")
            listed.append(f"p{place}")
        else:
            listed.append(f"%{position}")
    letter = _LETTERS.get(one.writes, "r" if BITS[one.writes] == 32 else "l")
    target, tail = "%0", ""
    if one.writes == "pred":
        head.append(".reg .pred q; ")
        target, tail = "q", "selp.u32 %0, 1, 0, q; "
    text = f"{{ {''.join(head)}{name} {', '.join([target, *listed])}; {tail}}}"
    return (
        f"__global__ void op{number}(const unsigned long long* in, unsigned long long* out) {{\n"
        f"    in += threadIdx.x * 4;\n    {_TYPES[letter]} result;\n"
        f'    asm("{text}" : "={letter}"(result) : {", ".join(operands)});\n'
        "    unsigned long long bits = 0;\n    memcpy(&bits, &result, sizeof result);\n"
        "    out[threadIdx.x] = bits;\n}"
    )


def inputs_of(name: str) -> list[int]:
    """Four numbers for each sample, those that the instruction does not read 0."""
    one, drawn = instructions()[name], random.Random(name)
    found = []
    for _ in range(SAMPLES):
        values = [_sample(name, place, kind, drawn) for place, kind in enumerate(one.reads)]
        found += [*values, 0, 0, 0, 0][:4]
    return found


def _sample(name: str, place: int, kind: str, drawn: random.Random) -> int:
    if kind == "f32":
        values = _ANGLES if name.startswith(("sin", "cos")) else _FLOATS
        value = drawn.choice(values)
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    if kind == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", drawn.choice(_FLOATS)))[0])
    if kind == "pred":
        return drawn.randrange(2)
    if name.startswith("bf") and place > (0 if name.startswith("bfe") else 1):
        return drawn.choice(_SMALL)
    bits = BITS[kind]
    word: int = drawn.choice((*_WORDS, drawn.getrandbits(bits), drawn.getrandbits(bits)))
    if bits == 64 and drawn.random() < 0.5:
        word = word << 32 | drawn.choice(_WORDS)
    return word % (1 << bits)


if __name__ == "__main__":
    sys.stdout.write(program())
