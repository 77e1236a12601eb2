"""What a technique looks like in SASS, and how often a unit's kernels hold it.

A technique goes by the words it states itself with: `TECHNIQUE_FLOAT4_LOADS` is to be seen as loads
and stores of 128 bits. Only words that name one thing are listed; `tile` and `prefetch` are not.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import CompileFailed, Unit
from cudaops.errors import CudaOpsError
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cuda.build import GpuBuilder
from cudaops.executors.cuda.sass import Instruction, disassembled, instructions_in


class Signature(NamedTuple):
    """What one kind of technique leaves in the machine code."""

    name: str
    """As a report counts it, in the plural."""
    words: str
    """What a technique that means it says of itself, as a regular expression; a blank stands for
    an underscore too."""
    opcodes: str
    """The instructions, as a regular expression on the whole opcode: `LDG.E.128.CONSTANT`."""
    guarded: bool = False
    """Only those under a predicate."""

    def counts(self, one: Instruction) -> bool:
        """Whether the instruction belongs to it."""
        return bool(re.fullmatch(self.opcodes, one.opcode)) and (one.guarded or not self.guarded)


SIGNATURES = (
    Signature(
        "tensor instructions", r"tensor ?core|w?mma\b|wgmma|\b[hi]mma",
        r"(?:[HIDBQO]|HG|IG|QG|BG)MMA\b.*|UTC\w*MMA\b.*",
    ),
    Signature("matrix loads from shared memory", r"ldmatrix|ldsm", r"LDSM\b.*"),
    Signature(
        "copies from global to shared memory",
        r"cp ?async|memcpy ?async|async(?:hronous)? ?cop|\btma\b|bulk cop",
        r"LDGSTS\b.*|UTMALDG\b.*|UBLKCP\b.*",
    ),
    Signature("warp reductions", r"\bredux|reduce (?:add|min|max) sync", r"C?REDUX\b.*"),
    Signature("shuffles", r"shuffle|shfl", r"SHFL\b.*"),
    Signature("votes", r"ballot|\bvote|match (?:any|all)", r"(?:U?VOTEU?|MATCH)\b.*"),
    Signature(
        "shared-memory atomics",
        r"shared (?:memory )?(?:atomic|histogram)|atomics? (?:in|on) shared",
        r"ATOMS\b.*",
    ),
    Signature(
        "128-bit accesses",
        r"float4|u?int4\b|double2|longlong2|128.?bit|16.?bytes?\b|"
        r"vector(?:i[sz]ed)? (?:load|store)",
        r"(?:LDG|STG|LDS|STS|LD|ST)\..*\b(?:128|256|ENL2)\b.*",
    ),
    Signature(
        "64-bit accesses", r"float2|u?int2\b|64.?bit (?:load|store)|8.?byte (?:load|store)",
        r"(?:LDG|STG|LDS|STS|LD|ST)\..*\b64\b.*",
    ),
    Signature("packed half instructions", r"half2|bfloat162|bf162", r"H(?:ADD|MUL|FMA)2\b.*"),
    Signature("read-only loads", r"ldg\b|read.?only (?:load|cache)", r"LDG\..*\bCONSTANT\b.*"),
    Signature("special-function instructions", r"\bmufu|fast reciprocal|rsqrt", r"MUFU\b.*"),
    Signature(
        "predicated instructions", r"predicat", r"(?!BRA|EXIT|BSYNC|RET|CALL).*", guarded=True
    ),
    Signature("shared-memory accesses", r"shared|smem", r"(?:LDS|STS|LDSM|ATOMS)\b.*"),
)  # fmt: skip
"""The first that a technique's name, then its comment, speaks of. Opcodes: instruction set
references of Volta to Blackwell in CUDA Binary Utilities."""


def signature_of(name: str, says: str) -> Signature | None:
    """What a technique of this name and comment is to leave in SASS; None where neither tells."""
    for text in (name, says):
        plain = re.sub(r"[_\s]+", " ", text.lower())
        for one in SIGNATURES:
            if re.search(one.words, plain):
                return one
    return None


def signatures_in(cache: Path, sm_arch: str, unit: Unit) -> Counter[str] | str:
    """How many instructions of each of `SIGNATURES` the unit's own kernels hold, built as the
    `cuda` executor builds it (once, under `cache`); or in a line why that is not known."""
    builder = GpuBuilder(cache, sm_arch)
    try:
        module = builder.unit(unit, draft=False)
    except CudaOpsError as problem:
        return str(problem)
    finally:
        builder.close()
    if isinstance(module, CompileFailed):
        return f"nvcc refuses it: {module.placed}"
    listing = disassembled(module.image)
    if listing.missing:
        return listing.missing
    own = {
        one.symbol for one in module.launchables
        if (one.entry != BASELINE_ENTRY) == (unit.rewrite is not None)
    }  # fmt: skip
    return Counter(
        signature.name
        for one in instructions_in(listing.text)
        if one.kernel in own
        for signature in SIGNATURES
        if signature.counts(one)
    )
