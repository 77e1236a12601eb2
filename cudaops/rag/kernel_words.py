"""What a kernel does, in the words under which libraries keep kernels of its class.

Told by the form of its code, whatever its author calls things: a running sum that is stored in
every iteration is a scan.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

_NAME = re.compile(r"__global__[^;{]*?\b(\w+)\s*\(\s*(?!\d)")

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_SHORTEST = 3
"""Letters of a name's part that says something."""

MOST_CHARACTERS = 20_000
"""Of a kernel's code; what follows is not looked at."""

MOST_LOOPS = 64

_NO_WORDS = frozenset({"kernel", "device", "global", "cuda", "gpu", "fast", "naive", "simple"})

_LOAD = r"[\w.>-]+(?:\[[^\]]*\])+"
_FACTOR = rf"(?:\w+\(\s*)?{_LOAD}\s*\)?"
_PRODUCT = re.compile(rf"\+=\s*[^;]*?{_FACTOR}\s*\*\s*{_FACTOR}|\bfmaf?\s*\(|\bwmma::|\bmma_sync\b")
_SQUARES = re.compile(
    r"\+=\s*(\w+(?:\[[^\]]*\])?)\s*\*\s*\1\s*;|\bfmaf?\(\s*(\w+(?:\[[^\]]*\])?)\s*,\s*\2\s*,"
)
_TIMES = r"(?:\*|\bfmaf?\([^;,]{0,80},)\s*\w+\["
_GATHERED = re.compile(rf"{_TIMES}\s*\w+\[|\b(\w+)\s*=\s*\w+\[[^;]*;[^;]*{_TIMES}\1\]")
"""A factor whose index is itself loaded."""
_EXP = re.compile(r"\b(?:__)?(?:h?exp2?|h?exp2?f|hexp)\s*\(")
_ROOT = re.compile(r"\b(?:__f)?r?sqrtf?(?:_r[nzud])?\s*\(")
_MAX = re.compile(
    r"\bf?maxf?\s*\(|\b(\w+)\s*>=?\s*(\w+)\s*\?\s*\1\s*:\s*\2\b|"
    r"\bif\s*\(\s*\w+[^;()]{0,200}>\s*(\w+)\s*\)\s*(?:\{[^{}]{0,200}?)?\b\3\s*=(?!=)"
)
_ACCUMULATED = re.compile(
    r"\b(\w+)\s*(?:\+=|=\s*\1\s*(?:\*[^;+]{0,80})?\+|=\s*f?(?:max|min)f?\s*\(\s*\1\b|"
    r"=\s*fmaf?\s*\([^;]{0,200},\s*\1\s*\))"
)
_DOUBLING = re.compile(
    r"\((?:int|unsigned|auto)?[^;()]{0,80}\b(\w+)\s*=\s*1\b[^;]{0,80};[^;]{0,200};"
    r"[^)]{0,80}(?:<<=\s*1|\*=\s*2|\+=\s*\1)"
)
_HALVING = re.compile(r";[^;)]{0,80}(?:>>=\s*1|/=\s*2)")
_PICKED = re.compile(
    r"\bif\s*\([^;{}]{0,200}[<>][^;{}]{0,200}\)\s*\{\s*[\w\[\]]+\s*=(?!=)[^{}=]*;"
    r"\s*[\w\[\]]+\s*=(?!=)[^{}]*\}"
)
_KEPT = re.compile(
    r"\b(\w+)\s*=\s*\(?\s*(\w+)[^;?:=]{0,80}[<>]=?\s*(\w+)[^;?:=]{0,80}\?\s*(\w+)[^;?:]{0,80}:\s*\1\s*;"
)
"""`where = value > best ? i : where`."""
_LEFT = re.compile(r"\b(?:break|return)\b")
_COUNTED = re.compile(r"\batomicAdd\s*\(\s*&?\s*\w+\s*[\[+][^;]*,\s*1[uUlL]*(?:\.0?f?)?\s*\)")
_SWAPPED = re.compile(
    r"(\w+)\s*=\s*(\w+\[[^\]]*\])\s*;\s*\2\s*=\s*(\w+\[[^\]]*\])\s*;\s*\3\s*=\s*\1"
)


class _Class(NamedTuple):
    words: str
    is_it: Callable[[str], bool]


def _is_attention(code: str) -> bool:
    return bool(_EXP.search(code) and _MAX.search(code) and _PRODUCT.search(code))


def _is_softmax(code: str) -> bool:
    return bool(_EXP.search(code) and _MAX.search(code) and _ACCUMULATED.search(code))


def _is_norm(code: str) -> bool:
    return bool(_SQUARES.search(code) and _ROOT.search(code))


def _is_product(code: str) -> bool:
    return any(_PRODUCT.search(body) for body in _loops(code)) and not (
        _EXP.search(code) or _ROOT.search(code) or _SQUARES.search(code) or _is_gathered(code)
    )


def _is_gathered(code: str) -> bool:
    return any(_ACCUMULATED.search(body) and _GATHERED.search(body) for body in _loops(code))


def _is_scan(code: str) -> bool:
    for body in map(_own, _loops(code)):
        for found in _ACCUMULATED.finditer(body):
            begun_here = re.search(rf"\w\s+{found[1]}\s*[=;]", body)
            if not begun_here and re.search(rf"\]\s*=\s*{found[1]}\s*;", body):
                return True
    doubling = _DOUBLING.search(code)
    if not doubling:
        return False
    step = re.escape(doubling[1])
    return bool(re.search(rf">=\s*{step}\b|-\s*{step}\b|__shfl_up_sync", code))


def _is_reduction(code: str) -> bool:
    """A running sum in a loop, or a tree of sums; of a class that has sums, it says nothing."""
    sums = bool(_HALVING.search(code) or re.search(r"__shfl_(?:down|xor)_sync", code))
    sums = sums or any(_ACCUMULATED.search(body) for body in _loops(code))
    others = (
        _is_product,
        _is_gathered,
        _is_softmax,
        _is_norm,
        _is_scan,
        _is_sampling,
        _is_selection,
    )
    return sums and not any(is_it(code) for is_it in others)


def _is_sampling(code: str) -> bool:
    """A running sum is compared with something, and the loop ends there."""
    for body in _loops(code):
        for found in _ACCUMULATED.finditer(body) if _LEFT.search(body) else ():
            name = re.escape(found[1])
            if re.search(rf"\bif\s*\([^;{{}}]*\b{name}\b[^;{{}}]*[<>]|[<>]=?\s*{name}\b", body):
                return True
    return False


def _is_selection(code: str) -> bool:
    """A value and where it stands are kept where it is larger."""
    if _EXP.search(code) or _SWAPPED.search(code):
        return False
    return any(
        _PICKED.search(body)
        or any(len({*found.groups()}) == len(found.groups()) for found in _KEPT.finditer(body))
        for body in _loops(code)
    )


_CLASSES = (
    _Class("attention softmax qk kv", _is_attention),
    _Class("softmax", lambda code: _is_softmax(code) and not _is_attention(code)),
    _Class("norm normalization layer rms", _is_norm),
    _Class("matrix multiply gemm", _is_product),
    _Class("sparse matrix spmv csr", _is_gathered),
    _Class("scan prefix sum", lambda code: _is_scan(code) and not _is_sampling(code)),
    _Class("sampling probability", _is_sampling),
    _Class("argmax arg max top k", _is_selection),
    _Class("reduction reduce sum", _is_reduction),
    _Class("histogram", lambda code: bool(_COUNTED.search(code))),
    _Class("sort", lambda code: bool(_SWAPPED.search(code))),
)


def kernel_words(text: str) -> str:
    """Words on what a kernel's code does; where its form tells nothing, the parts of its name.

    Empty where nothing tells.
    """
    code = _COMMENT.sub(" ", text)[:MOST_CHARACTERS]
    said = [word for each in _CLASSES if each.is_it(code) for word in each.words.split()]
    if not said:
        parts = [word for name in _NAME.findall(code) for word in words_of(name)]
        said = [word for word in parts if len(word) >= _SHORTEST and word not in _NO_WORDS]
    return " ".join(dict.fromkeys(["kernel", *said])) if said else ""


def words_of(name: str) -> list[str]:
    """Parts of an identifier, in lower case: `RMSNormKernel` has rms, norm, kernel."""
    return [part.lower() for part in _WORD.findall(name)]


def _own(body: str) -> str:
    """A loop's body without those of the loops in it."""
    for inner in _loops(body):
        body = body.replace(inner, ";")
    return body


@lru_cache(maxsize=256)
def _loops(code: str) -> tuple[str, ...]:
    """Bodies of loops, outer ones too."""
    closed = _closed(code)
    bodies = []
    for found in islice(re.finditer(r"\b(?:for|while)\s*\(", code), MOST_LOOPS):
        start = closed.get(found.end() - 1)
        if start is None:
            continue
        start += len(code[start:]) - len(code[start:].lstrip())
        end = closed.get(start) if code[start : start + 1] == "{" else code.find(";", start) + 1
        bodies.append(code[start : end or len(code)])
    return tuple(bodies)


def _closed(code: str) -> dict[int, int]:
    """Of each bracket that is closed, one past where."""
    open_at: dict[str, list[int]] = {")": [], "}": []}
    closed: dict[int, int] = {}
    for found in re.finditer(r"[(){}]", code):
        if found[0] in "({":
            open_at[")" if found[0] == "(" else "}"].append(found.start())
        elif open_at[found[0]]:
            closed[open_at[found[0]].pop()] = found.end()
    return closed
