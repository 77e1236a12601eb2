"""What device code does beside computing, as far as its words tell: for where there is no nvcc.

The vocabulary is that of `cuda.ptx`. Words say less than instructions: any variable that
could be written is state, and arithmetic on halves by operators is not seen beside their storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from cudaops.cuda.ptx import Facts, Trait, TraitKind
from cudaops.program.lexing import Token, byte_text
from cudaops.program.outline import Declaration, Outline, outline

_TYPES = {
    "fp16": re.compile(r"__half\w*|__float2half\w*|h(?:exp|log|sqrt|rsqrt|sin|cos|tanh)\w*"),
    "bf16": re.compile(r"(?:__)?nv_bfloat16\w*|__float2bfloat16\w*|__float22bfloat162\w*"),
    "tf32": re.compile(r"\w*tf32"),
    "fp8": re.compile(r"__nv_fp[864]\w*"),
}
_NARROW_OPERATION = re.compile(r"__h(?:add|sub|mul|fma|div|neg)\w*|h(?:exp|log|sqrt|rcp|tanh)\w*")
_MATRIX = re.compile(r"wmma|mma_sync|load_matrix_sync")
_CALLED: dict[str, Trait] = {
    **{n: Trait("clock", n) for n in ("clock", "clock64", "__clock", "__clock64", "globaltimer")},
    **{n: Trait("heap", n) for n in ("malloc", "free")},
    "printf": Trait("prints", "printf"),
    "__nanosleep": Trait("sleeps", "__nanosleep"),
    "__brkpt": Trait("breakpoint", "__brkpt"),
    **{
        n: Trait("approximation", n)
        for n in (
            "__sinf",
            "__cosf",
            "__sincosf",
            "__logf",
            "__tanhf",
            "sin_f32",
            "cos_f32",
            "lg2_f32",
            "tanh_f32",  # of inline PTX, as g++ is given it
        )
    },
}
_WIDE: dict[str, Trait] = {
    "float": Trait("arithmetic", "fp32"),
    "double": Trait("arithmetic", "fp64"),
}


def text_facts(texts: Iterable[str]) -> Facts:
    """Facts of device code by its words alone."""
    return frozenset(trait for text in texts for trait in _facts(outline(byte_text(text))))


def _facts(facts: Outline) -> Iterator[Trait]:
    yield from _words(facts.tokens)
    for item in facts.items:
        if item.kind == "variable" and _is_state(item):
            yield Trait("state", item.name)
        if item.body is not None:
            yield from _local_state(facts.tokens[item.body[0] : item.body[1]])


def _words(tokens: Sequence[Token]) -> Iterator[Trait]:
    texts = [t.text for t in tokens]
    narrow = {p for p, word in _TYPES.items() if any(word.fullmatch(t) for t in texts)}
    narrow |= {"fp16"} if any(_is_half(texts, i) for i in range(len(texts))) else set()
    kinds: list[TraitKind] = ["holds", "rounding"]
    if any(_MATRIX.fullmatch(t) for t in texts):
        kinds.append("matrix")
    if any(_NARROW_OPERATION.fullmatch(t) for t in texts):
        kinds.append("arithmetic")
    yield from (Trait(kind, precision) for precision in narrow for kind in kinds)
    for text, after in zip(texts, [*texts[1:], ""], strict=True):
        if after == "(" and text in _CALLED:
            yield _CALLED[text]
        elif text in _WIDE:
            yield _WIDE[text]


def _is_half(texts: Sequence[str], at: int) -> bool:
    """Whether the word `half` or `half2` is the type and not somebody's variable."""
    if texts[at] not in ("half", "half2"):
        return False
    before, after = texts[at - 1] if at else ";", texts[at + 1] if at + 1 < len(texts) else ";"
    if after in ("*", "&"):
        return before in ("const", "(", ",", ";", "{", "}", "<")
    return after == ">" or re.fullmatch(r"[A-Za-z_]\w*", after) is not None


def _is_state(item: Declaration) -> bool:
    device = item.spaces & {"__device__", "__managed__"}
    return bool(device) and not item.specifiers & {"const", "constexpr", "extern"}


def _local_state(body: Sequence[Token]) -> Iterator[Trait]:
    """`static` variables of functions that are neither shared nor constant."""
    texts = [t.text for t in body]
    for index, text in enumerate(texts):
        if text != "static":
            continue
        end = next((i for i, t in enumerate(texts[index:], index) if t in ";=[{("), len(texts))
        words = texts[max(0, index - 1) : end]
        if not {"__shared__", "const", "constexpr", "__constant__"} & set(words):
            yield Trait("state", words[-1])
