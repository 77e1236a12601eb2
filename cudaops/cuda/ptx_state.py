"""Which variables of a PTX module its kernels may write: what outlives a launch.

Addresses are followed through registers, whatever the order of instructions. One that is stored,
returned or handed to a function counts as written through: who has it may write.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from cudaops.cuda.ptx_module import Function, Instruction, PtxModule, names_in

_REGISTER = re.compile(r"%[A-Za-z_$][\w$]*")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_WRITERS = frozenset({"st", "red", "atom", "cp", "stmatrix", "multimem"})
_READERS = frozenset({"ld", "ldu", "ldmatrix", "prefetch", "prefetchu", "discard", "applypriority"})
_READING_CALLEES = ("vprintf", "__assertfail")
"""They read the strings whose addresses they are given."""


def written_variables(module: PtxModule, reached: Iterable[Function]) -> frozenset[str]:
    """Names of `.global` variables that these functions write, or may write."""
    known = {v.name for v in module.variables.values() if v.space == "global"}
    found: set[str] = set()
    mentioned: set[str] = set()
    for function in reached:
        found |= _written(function, known)
        mentioned |= {n for i in function.instructions for n in names_in(i.operands)}
    # A variable that holds another one's address hands it to whoever reads it.
    for name in mentioned & module.variables.keys():
        found |= module.variables[name].words & known
    return frozenset(found)


def _written(function: Function, known: set[str]) -> set[str]:
    holders = _address_holders(function.instructions, known)

    def addressed(text: str) -> set[str]:
        direct = set(names_in(text) & known)
        return direct.union(*(holders.get(r, set()) for r in _REGISTER.findall(text)))

    found: set[str] = set()
    handed: set[str] = set()
    prints = any(_only_reads(one) for one in function.instructions)
    for one in function.instructions:
        if one.name == "call":
            if not _only_reads(one):
                found |= handed | addressed(one.operands)
            handed = set()
        elif one.name == "st" and "param" in one.modifiers:
            handed |= addressed(one.operands)
        elif one.name in _WRITERS or (one.name == "wmma" and one.modifiers[:1] == ("store",)):
            target = _BRACKET.search(one.operands)
            where = target[1] if target else ""
            rest = one.operands.replace(f"[{where}]", " ", 1) if target else one.operands
            values = _BRACKET.sub(" ", rest)  # a second bracket is where a copy reads
            arguments = prints and "local" in one.modifiers  # of printf, which lie on the stack
            found |= addressed(where) | (set() if arguments else addressed(values))
    return found | handed


def _only_reads(one: Instruction) -> bool:
    return one.name == "call" and any(
        re.search(rf"(?<![\w$]){name}(?![\w$])", one.operands) for name in _READING_CALLEES
    )


def _address_holders(instructions: Sequence[Instruction], known: set[str]) -> dict[str, set[str]]:
    """Registers that may hold the address of a variable."""
    holders: dict[str, set[str]] = defaultdict(set)
    moves = [
        _split(one.operands)
        for one in instructions
        if one.name not in _WRITERS | _READERS | {"call", "bra", "wmma"}
    ]
    changed = True
    while changed:
        changed = False
        for into, source in moves:
            names = names_in(source) & known
            names = names.union(*(holders[r] for r in _REGISTER.findall(source) if r in holders))
            for register in _REGISTER.findall(into) if names else ():
                if not names <= holders[register]:
                    holders[register] |= names
                    changed = True
    return holders


def _split(operands: str) -> tuple[str, str]:
    """The first operand, with its braces, and the others."""
    depth = 0
    for at, character in enumerate(operands):
        depth += (character in "{[(") - (character in "}])")
        if character == "," and depth == 0:
            return operands[:at], operands[at + 1 :]
    return operands, ""
