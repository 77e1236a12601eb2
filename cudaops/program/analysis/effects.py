"""What a node of a tree may do: what it changes and reads, whether it is pure, leaves or waits.

One answer to each question for facts, recipes and transformations, which is why it stands beside
the facts: transformations may ask it, and it asks none of them. It looks at trees alone, so that
what it says holds for every launch, and takes what it does not know to do the worst.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cudaops.program import syntax as s

_ASSEMBLY = frozenset({"asm_stmt", "ms_asm_stmt"})


def reached(node: Any, form: s.KernelForm) -> Iterator[Any]:
    """Everything below a node, and in the program's functions that it calls, each of them once."""
    waiting, seen = [node], set[str]()
    while waiting:
        for x in s.below(waiting.pop()):
            yield x
            if isinstance(x, s.Call) and x.function not in seen:
                seen.add(x.function)
                if (function := form.function(x.function)) is not None:
                    waiting.append(function)


# Volatile memory


def has_volatile(node: Any) -> bool:
    """Whether a volatile variable or place stands in a function, statement or expression."""
    return any(getattr(x, "is_volatile", False) for x in s.below(node))


def is_volatile(function: s.Function, form: s.KernelForm) -> bool:
    """Whether a function has volatile memory or assembly in it, of whose accesses none may be
    moved or left out; or volatile memory stands in what its loops call.

    What it calls elsewhere is left out, as it stays where it is: the last warp's sums of a block.
    """
    if has_volatile(function):
        return True
    if any(isinstance(x, s.Opaque) and x.what in _ASSEMBLY for x in s.below(function)):
        return True
    loops = tuple(x for x in s.below(function.body) if isinstance(x, s.For | s.Do))
    return any(getattr(x, "is_volatile", False) for x in reached(loops, form))
