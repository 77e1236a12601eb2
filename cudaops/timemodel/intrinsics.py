"""Which of CUDA's functions a line of our `device_math.h` stands for.

Those functions are inlined into the author's kernel, so the IL shows their bodies. A body computes
the value on this machine; what it costs on a GPU is looked up under the function's name instead.
"""

from __future__ import annotations

import functools
import re

from cudaops.cuda.work import Mix
from cudaops.executors.cpu.toolchain import INCLUDE
from cudaops.timemodel import costs as cost

HEADER = "device_math.h"
HALF_HEADER = "half.h"
_DEFINITION = re.compile(r"^CUDAOPS_FN \w+ (?:fast)?(\w+)\(")
_FAST = re.compile(r"^CUDAOPS_FAST\((\w+), (\w+)\)")
_CALL = re.compile(r"\b[a-z]\w*f?\(")


@functools.cache
def _by_line() -> dict[int, tuple[Mix, bool]]:
    """Cost of the function defined on a line, and whether its body calls another."""
    found: dict[int, tuple[Mix, bool]] = {}
    text = (INCLUDE / "cudaops" / HEADER).read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        fast = _FAST.match(line)
        named = fast or _DEFINITION.match(line)
        if not named:
            continue
        mix = cost.CALLS.get(named.group(1)) or cost.FAST_CALLS.get(named.group(1))
        if mix is not None:
            body = line.partition("{")[2]
            found[number] = (mix, fast is not None or bool(_CALL.search(body)))
    return found


def cost_of(line: int, value: str) -> Mix | None:
    """The cost of a statement of `device_math.h`: all of it falls on one statement of the body.

    None: the line defines nothing the cost table knows, so its statements count as written.
    """
    known = _by_line().get(line)
    if known is None:
        return None
    mix, calls = known
    pays = re.match(r"^[.\w:]+ \(", value) is not None if calls else " / " in value
    return mix if pays else cost.FREE
