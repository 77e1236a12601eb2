"""Source lines of a cubin's machine instructions, by NVIDIA's own disassembler."""

from __future__ import annotations

import re
from pathlib import Path

from cudaops.cuda.hot_spots import Line
from cudaops.executors.cuda.toolchain import find_tool
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import run_bounded

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_PLACE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-fA-F]{4,})\*/\s+(.*?)\s*;?\s*$")
_SECONDS = 30.0


def find_nvdisasm() -> Path | None:
    """nvdisasm on PATH, in CUDA_HOME or CUDA_PATH, or in NVIDIA's wheels; else None."""
    return find_tool("nvdisasm")


def lines_of(cubin: Path, symbol: str) -> dict[int, Line]:
    """Byte offset of each instruction of a kernel to the line it was compiled from.

    Empty where nvdisasm is not here or refuses, or the cubin was built without `-lineinfo`.
    """
    disassembler = find_nvdisasm()
    if disassembler is None:
        return {}
    command = [str(disassembler), "-g", "-c", str(cubin)]
    confine = Confinement("compile", reads=(cubin,))
    done = run_bounded(command, cwd=cubin.parent, timeout_s=_SECONDS, confine=confine)
    return {} if done.exit_code else parse_listing(done.stdout).get(symbol, {})


def parse_listing(listing: str) -> dict[str, dict[int, Line]]:
    """Kernels of `nvdisasm -g -c` with the line of each of their instructions."""
    kernels: dict[str, dict[int, Line]] = {}
    current: dict[int, Line] | None = None
    place: Line | None = None
    for text in listing.splitlines():
        if found := _SECTION.match(text):
            current, place = kernels.setdefault(found[1], {}), None
        elif found := _PLACE.match(text):
            place = (found[1], int(found[2]))
        elif (found := _INSTRUCTION.match(text)) and current is not None and place is not None:
            current[int(found[1], 16)] = place
    return kernels
