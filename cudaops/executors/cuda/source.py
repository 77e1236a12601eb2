"""The translation unit of a Unit as nvcc and NVRTC take it, with a mark for every entry.

A mark is an empty kernel whose template arguments are an entry's number and the kernel that is
launched: its mangled name says which symbol of the cubin is which step of the plan, whatever
templates, namespaces or linkage the kernel has. See `executors.cuda.symbols`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Unit
from cudaops.domain.program import Program
from cudaops.executors.cpu.build import BASELINE_ENTRY
from cudaops.executors.cpu.toolchain import INCLUDE as CPU_INCLUDE
from cudaops.executors.cuda.toolchain import BROUGHT_ALONG
from cudaops.program.candidate import FILE as CANDIDATE_FILE
from cudaops.program.candidate import NAMESPACE, unit_candidate
from cudaops.program.instances import bound_arguments
from cudaops.program.lexing import (
    Edit,
    Lexed,
    apply_edits,
    byte_text,
    lex,
    plain_text,
    without_comments,
)
from cudaops.program.overloads import address, pointer_type
from cudaops.program.plans import instance
from cudaops.program.reroute import device_view_files
from cudaops.program.whole_program import device_source

MAIN = "cudaops_unit.cu"
"""The file that is compiled; it includes the author's."""
CANDIDATE = "cudaops_candidate.inc"
"""Where a rewrite's text is written; its `#line` says `candidate.cu`."""
MARK = "cudaops_mark"
"""Name of the empty kernels."""

INCLUDE = Path(__file__).parent / "include"
NVRTC_INCLUDE = INCLUDE / "nvrtc"
"""What replaces host headers where NVRTC compiles."""
_WIDENED = {
    "cudaops_widened.h": INCLUDE / "widened" / "cudaops_widened.h",
    "cudaops_widened_half.h": INCLUDE / "widened" / "cudaops_widened_half.h",
    "cudaops_widened_names.h": CPU_INCLUDE / "cudaops" / "widened_names.h",
} | {
    f"cudaops/{name}": CPU_INCLUDE / "cudaops" / name
    for name in (
        "half.h",
        "bfloat16.h",
        "narrow_type.h",
        "narrow_math.h",
        "macros_off.h",
        "macros_on.h",
    )
}

_ARCH_SPECIFIC = re.compile(r"\b(?:wgmma|setmaxnreg|tcgen05)\b")
"""Instructions of `sm_90a` and its like only. Source: PTX ISA 9.0, target notes of wgmma.mma_async,
setmaxnreg and tcgen05. `cp.async.bulk` needs no more than sm_90."""

_FLOAT_LITERAL = re.compile(
    r"(?:[0-9][0-9']*\.?[0-9']*|\.[0-9']+)(?:[eE][+-]?[0-9]+)?[fF]"
    r"|0[xX][0-9a-fA-F.']+[pP][+-]?[0-9]+[fF]"
)


class NvccSource(NamedTuple):
    """Files of one translation unit."""

    files: dict[str, str]
    main: str


def unit_source(unit: Unit) -> NvccSource:
    """What nvcc compiles: the program's device view, the rewrite's text and the marks."""
    files = device_view_files(unit.program, dialect="cuda", widened=unit.widened)
    head = ""
    if unit.widened:
        files = {path: _double_literals(text) for path, text in files.items()}
        files |= {name: path.read_text("utf-8") for name, path in _WIDENED.items()}
        head = _widened_head(unit)
    lines = [f"#include <{BROUGHT_ALONG}>", f'#include "{unit.program.main_path}"']
    if unit.rewrite is not None:
        files[CANDIDATE] = unit_candidate(unit, dialect="cuda")
        files.setdefault(CANDIDATE_FILE, unit.rewrite.source)  # for who follows the line table
        lines.append(f'#include "{CANDIDATE}"')
    files[MAIN] = head + "\n".join(lines) + "\n" + _marks(unit)
    return NvccSource(files, MAIN)


def nvrtc_text(unit: Unit) -> str:
    """What NVRTC compiles: device code alone, as one text. Its lines are nobody's."""
    parts = [_device_source(unit.program)]
    if unit.rewrite is not None:
        parts.append(unit_candidate(unit, dialect="cuda"))
    return "\n".join([*parts, _marks(unit)])


@lru_cache(maxsize=4)
def _device_source(program: Program) -> str:
    return device_source(program, allow_libraries=True)


def target_arch(texts: Iterable[str], sm_arch: str) -> str:
    """`sm_90` becomes `sm_90a` (likewise for newer ones) where code asks for what only that has.

    Code asks by naming the instruction, in inline PTX or otherwise; comments do not count.
    """
    number = re.fullmatch(r"sm_(\d+)", sm_arch)
    if number is None or int(number[1]) < 90:
        return sm_arch
    asked = any(_ARCH_SPECIFIC.search(without_comments(text)) for text in texts)
    return f"{sm_arch}a" if asked else sm_arch


def unit_texts(unit: Unit) -> Iterator[str]:
    """Everything in a unit that somebody wrote."""
    yield from (f.text for f in unit.program.files)
    if unit.rewrite is not None:
        yield unit.rewrite.source


def shown_entries(unit: Unit) -> dict[int, str]:
    """Entry to kernel as its author wrote it: the rewrite's steps, then the baseline."""
    shown: dict[int, str] = {}
    if unit.rewrite is not None:
        bound = bound_arguments(unit.program.kernel(unit.kernel), unit.callee)
        steps = enumerate(unit.rewrite.plan.launches)
        shown = {i: instance(unit.rewrite, step, bound) for i, step in steps}
    return {**shown, BASELINE_ENTRY: unit.callee}


def _marks(unit: Unit) -> str:
    """The marks; what a compiler has to say of a step is said of its directive's line."""
    template = f"template <int I_, typename T_, T_ F_> __global__ void {MARK}() {{}}"
    lines = []
    shown = shown_entries(unit)
    if unit.rewrite is not None:
        lines += [f"namespace {NAMESPACE} {{", template]
        for index, step in enumerate(unit.rewrite.plan.launches):
            lines += [f'#line {step.line} "{CANDIDATE_FILE}"', _mark(index, f"&{shown[index]}")]
        lines += ["}", f'#line 1 "{MAIN}"']
    author = unit.program.kernel(unit.kernel)
    lines.append(pointer_type(author) + template)
    return "\n".join([*lines, _mark(BASELINE_ENTRY, address(author, unit.callee))]) + "\n"


def _mark(index: int, place: str) -> str:
    return f"template __global__ void {MARK}<{index}, decltype({place}), {place}>();"


def _widened_head(unit: Unit) -> str:
    """Every header from outside first: only what the author wrote may find `float` redefined."""
    names = dict.fromkeys([*unit.program.system_includes, *_foreign_includes(unit)])
    lines = [f"#if __has_include(<{name}>)\n#include <{name}>\n#endif" for name in names]
    half = {"cuda_fp16.h", "cuda_bf16.h"} & names.keys()
    lines.append(f'#include "cudaops_widened{"_half" if half else ""}.h"')
    return "\n".join(lines) + "\n"


def _double_literals(text: str) -> str:
    """`0.1f` as `double(0.1f)`: the value stays the author's, the type is that of all else.

    Otherwise `sqrtf(2.0f)` would be rounded to single precision, and `fmaxf(x, 0.0f)` would be
    ambiguous.
    """
    lexed = lex(byte_text(text))
    edits = [
        Edit(t.start, t.end, f" double({t.text})")
        for t in lexed.tokens
        if t.kind == "number" and _FLOAT_LITERAL.fullmatch(t.text)
    ]
    return plain_text(apply_edits(lexed.text, edits))


def _foreign_includes(unit: Unit) -> Iterator[str]:
    """Headers that are none of the program's files, however they are included."""
    known = {Path(f.path).name for f in unit.program.files}
    for text in unit_texts(unit):
        for name in _included(lex(byte_text(text))):
            if Path(name).name not in known:
                yield name


def _included(lexed: Lexed) -> Iterator[str]:
    for directive in lexed.directives:
        if directive.keyword == "include" and not lexed.dead(directive.start):
            written = lexed.text[lexed.tokens[directive.first + 1].end : directive.end]
            if name := re.match(r'\s*[<"]([^>"\n]+)[>"]', plain_text(written)):
                yield name[1]
