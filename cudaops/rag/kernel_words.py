"""What a kernel does, in the words under which libraries keep kernels of its class.

Told by the form of its code, whatever its author calls things: a running sum that is stored in
every iteration is a scan. The names that it has come besides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

_NAME = re.compile(r"__global__[^;{]*?\b(\w+)\s*\(\s*(?!\d)")

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_SHORTEST = 3
"""Letters of a name's part that says something."""

_NO_WORDS = frozenset({"kernel", "device", "global", "cuda", "gpu", "fast", "naive", "simple"})

_LOAD = r"[\w.>-]+(?:\[[^\]]*\])+"
_FACTOR = rf"(?:\w+\(\s*)?{_LOAD}\s*\)?"
_PRODUCT = re.compile(rf"\+=\s*[^;]*?{_FACTOR}\s*\*\s*{_FACTOR}|\bfmaf?\s*\(|\bwmma::|\bmma_sync\b")
_SQUARE = re.compile(r"\b(\w+(?:\[[^\]]*\])?)\s*\*\s*\1(?![\w\[])")
_EXP = re.compile(r"\b(?:__)?(?:h?exp2?|h?exp2?f|hexp)\s*\(")
_ROOT = re.compile(r"\b(?:__f)?r?sqrtf?(?:_r[nzud])?\s*\(")
_MAX = re.compile(r"\bf?maxf?\s*\(|\bif\s*\(\s*\w+[^;()]*>\s*(\w+)\s*\)\s*\{?\s*\1\s*=")
_ACCUMULATED = re.compile(r"\b(\w+)\s*(?:\+=|=\s*\1\s*\+)")
_DOUBLING = re.compile(r"\(\s*(?:int|unsigned|auto)?[^;]*\b(\w+)\s*=\s*1\b[^;]*;[^;]*;[^)]*"
                       r"(?:<<=\s*1|\*=\s*2|\+=\s*\1)")  # fmt: skip
_HALVING = re.compile(r";[^;)]*(?:>>=\s*1|/=\s*2)")
_PICKED = re.compile(r"\bif\s*\([^;{}]*[<>]=?[^;{}]*\)\s*\{[^{}]*\w+\s*=[^{}]*\w+\s*=[^{}]*\}")
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
    sums = any(_SQUARE.search(each[0]) for each in re.finditer(r"\+=[^;]*|fmaf?\([^;]*", code))
    return bool(sums and _ROOT.search(code))


def _is_product(code: str) -> bool:
    return bool(_PRODUCT.search(code) and not _EXP.search(code) and not _ROOT.search(code)
                and any(True for _ in _loops(code)))  # fmt: skip


def _is_scan(code: str) -> bool:
    for body in _loops(code):
        for found in _ACCUMULATED.finditer(body):
            if re.search(rf"\]\s*=\s*{found[1]}\s*;", body):
                return True
    doubling = _DOUBLING.search(code)
    if not doubling:
        return False
    step = re.escape(doubling[1])
    return bool(re.search(rf">=\s*{step}\b|-\s*{step}\b|__shfl_up_sync", code))


def _is_reduction(code: str) -> bool:
    return bool(_HALVING.search(code) or re.search(r"__shfl_(?:down|xor)_sync", code))


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
    return any(_PICKED.search(body) for body in _loops(code))


_CLASSES = (
    _Class("attention softmax qk kv", _is_attention),
    _Class("softmax", lambda code: _is_softmax(code) and not _is_attention(code)),
    _Class("norm normalization layer rms", _is_norm),
    _Class("matrix multiply gemm", _is_product),
    _Class("scan prefix sum", lambda code: _is_scan(code) and not _is_sampling(code)),
    _Class("sampling probability", _is_sampling),
    _Class("argmax topk top k", _is_selection),
    _Class("reduction reduce sum", lambda code: _is_reduction(code) and not _is_norm(code)
           and not _is_softmax(code) and not _is_scan(code)),
    _Class("histogram", lambda code: bool(_COUNTED.search(code))),
    _Class("sort", lambda code: bool(_SWAPPED.search(code))),
)  # fmt: skip


def kernel_words(text: str) -> str:
    """Words on what a kernel's code does, then parts of its names. Empty where nothing tells."""
    code = _COMMENT.sub(" ", text)
    said = [word for each in _CLASSES if each.is_it(code) for word in each.words.split()]
    for name in _NAME.findall(code):
        said += [word for word in words_of(name) if len(word) >= _SHORTEST]
    words = [word for word in dict.fromkeys(said) if word not in _NO_WORDS]
    return " ".join(["kernel", *words]) if words else ""


def words_of(name: str) -> list[str]:
    """Parts of an identifier, in lower case: `RMSNormKernel` has rms, norm, kernel."""
    return [part.lower() for part in _WORD.findall(name)]


def _loops(code: str) -> Iterator[str]:
    """Bodies of loops, outer ones too."""
    for found in re.finditer(r"\b(?:for|while)\s*\(", code):
        start = _after(code, found.end() - 1, "(", ")")
        rest = code[start:].lstrip()
        if rest.startswith("{"):
            yield rest[: _after(rest, 0, "{", "}")]
        else:
            yield rest[: rest.find(";") + 1]


def _after(code: str, start: int, opening: str, closing: str) -> int:
    """Where the bracket that opens at `start` is closed, one past it."""
    depth = 0
    for at in range(start, len(code)):
        depth += (code[at] == opening) - (code[at] == closing)
        if depth == 0:
            return at + 1
    return len(code)
