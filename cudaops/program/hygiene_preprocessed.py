"""A candidate's own part of a preprocessed unit, with CUDA's words as their author wrote them.

Headers turn `__device__` into nothing and `__shared__` into `thread_local`. Before the candidate
begins, these words are defined as themselves: a macro does not expand within itself, so they stay,
and `#ifdef` finds them as before. Everything else is expanded as for the compiler.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cudaops.program.candidate import FILE, NAMESPACE

_WORDS = (
    "__global__", "__device__", "__host__", "__constant__", "__managed__", "__shared__",
    "__grid_constant__", "__forceinline__", "__noinline__", "__nv_pure__", "__inline_hint__",
)  # fmt: skip
_CALLS = (
    "__launch_bounds__", "__maxnreg__", "__local_maxnreg__", "__cluster_dims__", "__block_size__",
    "__align__", "__builtin_align__", "__builtin_assume",
)  # fmt: skip
_FAST = (
    "__expf", "__logf", "__log2f", "__log10f", "__sinf", "__cosf", "__tanf", "__tanhf", "__powf",
    "__exp10f", "__sincosf",
)  # fmt: skip
"""Functions of CUDA that glibc keeps the names of: macros in our headers for g++."""
_CONSTANTS = """
    INF_F NAN_F MIN_DENORM_F MAX_NORMAL_F NEG_ZERO_F ZERO_F ONE_F SQRT_HALF_F SQRT_TWO_F
    THIRD_F PIO4_F PIO2_F 3PIO4_F 2_OVER_PI_F PI_F L2E_F L2T_F LG2_F LGE_F LN2_F LNT_F LNPI_F
    INF NAN NEG_ZERO ZERO ONE SQRT_TWO SQRT_HALF PIO4 PIO2 PI L2E LN2 LNT INF_FP16 NAN_FP16
    MIN_DENORM_FP16 MAX_NORMAL_FP16 NEG_ZERO_FP16 ZERO_FP16 ONE_FP16 INF_BF16 NAN_BF16
    MIN_DENORM_BF16 MAX_NORMAL_BF16 NEG_ZERO_BF16 ZERO_BF16 ONE_BF16
"""
"""CUDA's `CUDART_...`, which our headers for g++ spell as other expressions of the same value."""
_DYNAMIC = "CUDAOPS_DYNAMIC_SHARED"
_BEGIN = f'namespace {NAMESPACE} {{\n#line 1 "{FILE}"\n'
_MARKER = re.compile(r'^#(?:line)? (\d+) "((?:[^"\\]|\\.)*)"((?: \d)*)\s*$')
_EPILOGUE = re.compile(r"\s*(?:\}\s*|#pragma pop_macro\(.*\)\s*)?")


class CandidateText(NamedTuple):
    """What the preprocessor made of a rewrite's text."""

    text: str
    """Without the namespace around it."""
    lines: tuple[int, ...]
    """Line in the rewrite, from 1, of each line of `text`."""


class NotTheCandidate(Exception):
    """The output does not hold the candidate where it should; says why in one line."""


def with_plain_words(candidate: str) -> str:
    """`candidate_text` of a rewrite, with CUDA's words kept in its body."""
    at = candidate.index(_BEGIN)
    return candidate[:at] + _definitions() + candidate[at:]


def candidate_part(output: str, included_as: str, source: str) -> CandidateText:
    """Take the candidate's part out of the whole unit's preprocessed text.

    `included_as`: the file that holds `candidate_text`. `source`: the rewrite as written; what
    follows its last line is ours. Raises NotTheCandidate where text of another file is within,
    or where the end is not the one that we wrote.
    """
    last = source.count("\n") + 1
    kept: list[tuple[str, int]] = []
    tail: list[str] = []
    file, number, inside, begun = "", 0, False, False
    for line in output.split("\n"):
        if marker := _MARKER.match(line):
            left, file, number = inside and file == FILE, marker[2], int(marker[1])
            entered = marker[3].split()[:1] == ["1"]
            inside = inside or (file == included_as and entered)
            begun = begun or (inside and file == FILE)
            if left and file != FILE:
                break
            continue
        if inside and file == FILE:
            if number <= last:
                kept.append((line.rstrip(), number))
            else:
                tail.append(line)
        number += 1
    if not begun:
        raise NotTheCandidate("the candidate is not in what the preprocessor wrote")
    ours = [line for line in tail if line.strip()]
    if not ours or ours[0].strip() != "}" or not all(_EPILOGUE.fullmatch(line) for line in ours):
        raise NotTheCandidate("the candidate's text does not end where it should")
    return CandidateText("\n".join(t for t, _ in kept) + "\n", (*(n for _, n in kept), last))


def _definitions() -> str:
    constants = (f"CUDART_{name}" for name in _CONSTANTS.split())
    pairs = [(word, word) for word in (*_WORDS, *_FAST, *constants)]
    pairs += [(f"{word}(...)", f"{word}(__VA_ARGS__)") for word in _CALLS]
    pairs.append((f"{_DYNAMIC}(T, name)", "extern __shared__ T name[]"))
    return "".join(
        f"#ifdef {(name := head.partition('(')[0])}\n#undef {name}\n#define {head} {body}\n#endif\n"
        for head, body in pairs
    )
