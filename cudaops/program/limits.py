"""What a program does that capture cannot follow, in plain words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cudaops.domain.program import Kernel
from cudaops.program.launches import find_launches
from cudaops.program.lexing import line_of
from cudaops.program.outline import Outline
from cudaops.program.overloads import not_told_apart
from cudaops.program.ptx_asm import ASM, AsmStatement, asm_statements

_WORDS = {
    "texture": "texture references",
    "cudaTextureObject_t": "texture objects",
    "surface": "surface references",
    "cudaSurfaceObject_t": "surface objects",
    "cuLaunchKernel": "a launch through the driver API",
}
_LIBRARIES = frozenset({"thrust", "cub"})
"""Namespaces whose functions launch kernels of their own."""
_LAUNCH_NOTHING = frozenset({
    "pair", "tuple", "tie", "get", "make_pair", "make_tuple", "raw_pointer_cast", "complex", "abs",
    "device_pointer_cast", "device_ptr", "device", "host", "seq", "cuda", "host_vector", "plus",
    "minus", "multiplies", "maximum", "minimum", "less", "greater", "equal_to", "identity",
    "BlockReduce", "BlockScan", "WarpReduce", "WarpScan", "Sum", "Max", "Min", "BlockLoad",
    "BlockStore", "BlockRadixSort", "LaneId",
})  # fmt: skip
"""Of what is in them, what is a value or a function of a thread or block."""


def find_limits(
    files: Sequence[tuple[str, Outline]], kernels: Sequence[Kernel], followed: Collection[str] = ()
) -> tuple[str, ...]:
    """One line for each kind of thing in each file, with the first place it stands. `followed`:
    macros that define kernels which are among these."""
    found: dict[str, None] = {}
    for path, facts in files:
        for text in _of_file(path, facts, followed):
            found.setdefault(text)
    for name in not_told_apart(kernels):
        found.setdefault(f"kernel `{name}` has several definitions: its launches are ambiguous")
    return tuple(found)


def _of_file(path: str, facts: Outline, followed: Collection[str]) -> Iterator[str]:
    text = facts.lexed.text
    seen: set[str] = set()
    asm = asm_statements(facts.lexed, author=True)
    read = {s.start for s in asm if isinstance(s, AsmStatement)}
    for index, token in enumerate(facts.tokens[:-1]):
        after = facts.tokens[index + 1].text
        what = _WORDS.get(token.text) if token.kind == "name" else None
        if token.text in ("texture", "surface") and after != "<":
            what = None
        unread = token.kind == "name" and token.text in ASM and token.start not in read
        if unread and facts.is_in_device_code(token.start):
            what = "inline PTX"
        named = facts.tokens[index + 2].text if index + 2 < len(facts.tokens) else ""
        if token.text in _LIBRARIES and after == "::" and named not in _LAUNCH_NOTHING:
            what = f"kernels of the library {token.text}"
        if what is not None and what not in seen:
            seen.add(what)
            yield f"{path}:{line_of(text, token.start)}: {what}: not followed by capture"
    for launch in find_launches(facts.lexed):
        if facts.is_in_device_code(launch.start):
            place = f"{path}:{line_of(text, launch.start)}"
            yield f"{place}: a launch from the device: its kernel's time is modelled without it"
    for directive in facts.lexed.directives:
        words = [t.text for t in facts.lexed.tokens[directive.first : directive.last]]
        unseen = "__global__" in words and "{" in words and words[2] not in followed
        if directive.keyword == "define" and unseen:
            line = line_of(text, directive.start)
            yield f"{path}:{line}: macro `{words[2]}` defines a kernel: such kernels are not seen"
