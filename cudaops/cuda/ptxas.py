"""What ptxas says a kernel takes: the log of `-Xptxas -v`, of `--resource-usage` and of NVRTC.

    ptxas info    : Compiling entry function '_Z1kPf' for 'sm_86'
    ptxas info    : Function properties for _Z1kPf
        8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
    ptxas info    : Used 128 registers, used 1 barriers, 8192 bytes smem, 380 bytes cmem[0]

A number is in the answer only where its whole line was understood and is in its place.
What ptxas leaves out is None: kernels without static shared memory have no `smem`, and for sm_90
and newer it never names `cmem` (seen with ptxas 13.0).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cudaops.errors import InputError


class PtxasLogError(InputError):
    """The log contradicts itself: two answers for the same kernel."""


class PtxasKernel(NamedTuple):
    """One entry function in the log. None: the log does not say."""

    symbol: str
    """Mangled name."""
    sm_arch: str
    registers: int | None = None
    """A thread."""
    barriers: int | None = None
    """Named barriers of a block in use."""
    static_smem_bytes: int | None = None
    """A block, without what the system reserves there."""
    stack_frame_bytes: int | None = None
    """A thread, of the kernel itself."""
    cumulative_stack_bytes: int | None = None
    """A thread, with the functions it calls; named only where there is a stack."""
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    constant_bytes: int | None = None
    """Bank 0: parameters."""


_INFO = r"ptxas info\s*: (?:\(\w+\) )?"
_HEAD = re.compile("")
"""Stands for: nothing more is expected of this kernel."""
_ENTRY = re.compile(_INFO + r"Compiling entry function '(?P<symbol>[^'\s]+)' for '(?P<arch>\w+)'")
_PROPERTIES = re.compile(_INFO + r"Function properties for (?P<symbol>\S+)")
_STACK = re.compile(
    r"(?:ptxas\s*\.)?\s*(?P<stack_frame_bytes>[0-9]+) bytes stack frame, "
    r"(?P<spill_store_bytes>[0-9]+) bytes spill stores, "
    r"(?P<spill_load_bytes>[0-9]+) bytes spill loads"
)
_USED = re.compile(_INFO + r"Used (?P<items>[0-9]+ registers(?:, [^,]+)*)")
_ITEMS = {
    "registers": re.compile(r"([0-9]+) registers"),
    "barriers": re.compile(r"used ([0-9]+) barriers"),
    "cumulative_stack_bytes": re.compile(r"([0-9]+) bytes cumulative stack size"),
    "static_smem_bytes": re.compile(r"([0-9]+) bytes smem"),
    "constant_bytes": re.compile(r"([0-9]+) bytes cmem\[0\]"),
}
_OTHER_ITEM = re.compile(
    r"[0-9]+ bytes (?:cmem\[[1-9][0-9]*\]|lmem|gmem)|[0-9]+ (?:textures?|surfaces?|samplers?)"
)


def parse_ptxas(log: str) -> tuple[PtxasKernel, ...]:
    """Every entry function of a log, in order; one that was compiled for two targets twice.

    Lines that are not understood whole are passed over, and so is a last line without its end: the
    log may have been cut there. A line out of its place is nobody's. Raises PtxasLogError where one
    kernel is answered for twice.
    """
    found: list[PtxasKernel] = []
    heads: set[PtxasKernel] = set()
    expected = _HEAD
    for line in _whole_lines(log):
        if "Compiling entry function" in line:
            entry = _ENTRY.fullmatch(line)
            if entry:
                found.append(PtxasKernel(entry["symbol"], entry["arch"]))
                if found[-1] in heads:
                    raise _contradiction(entry["symbol"])
                heads.add(found[-1])
            expected = _PROPERTIES if entry else _HEAD
        elif "Function properties for" in line:
            about = _PROPERTIES.fullmatch(line)
            ours = expected is _PROPERTIES and about and about["symbol"] == found[-1].symbol
            expected = _STACK if ours else _HEAD
        elif stack := _STACK.fullmatch(line):
            if expected is _USED:
                raise _contradiction(found[-1].symbol)
            if expected is _STACK:
                found[-1] = _with(found[-1], {n: int(v) for n, v in stack.groupdict().items()})
            expected = _USED if expected is _STACK else _HEAD
        elif used := _USED.fullmatch(line):
            if found and found[-1].registers is not None:
                raise _contradiction(found[-1].symbol)
            if expected is _USED:
                found[-1] = _with(found[-1], _usage(used["items"]))
            expected = _HEAD
    return tuple(found)


def _whole_lines(log: str) -> list[str]:
    lines = log.split("\n")[:-1]
    return [line.removesuffix("\r").rstrip(" ") for line in lines]


def _usage(items: str) -> dict[str, int]:
    """Numbers of one usage line; nothing where a part of it is not known."""
    found: dict[str, int] = {}
    for item in items.split(", "):
        for name, pattern in _ITEMS.items():
            if number := pattern.fullmatch(item):
                if name in found:
                    return {}
                found[name] = int(number[1])
                break
        else:
            if not _OTHER_ITEM.fullmatch(item):
                return {}
    return found


def _with(kernel: PtxasKernel, numbers: dict[str, int]) -> PtxasKernel:
    return PtxasKernel(**{**kernel._asdict(), **numbers})


def _contradiction(symbol: str) -> PtxasLogError:
    return PtxasLogError(f"the log of ptxas holds two answers for `{symbol}`")
