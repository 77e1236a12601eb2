"""PTX taken apart, and what its kernels do beside computing: state, clocks, precision, calls.

Source of every name: PTX ISA 9.0 (chapters 4 on syntax, 5 on state spaces, 9 on instructions and
their errors, 10 on special registers).

What outlives a launch: variables that kernels may write. Addresses are followed through registers,
whatever the order of instructions. One that is stored, returned or handed to a function counts as
written through: who has it may write.

Facts are of what kernels can reach, so that another kernel of the same file neither accuses nor
excuses one. Findings are what a candidate's code does and its baseline's does not. Why each
comparison is as it is:

- State (`.global` variables that are written). A counter for the last block of a reduction is
  honest, a result kept for the next launch is not, and both look alike: a person decides, unless
  the baseline keeps state as well. What nothing writes is a table.
- Clocks, `%smid`, waiting, `discard.L2`, device printf and malloc: seldom needed, and each lets a
  kernel work otherwise where it is timed.
- Precision. Narrow operands are no loss where the baseline's own data are as narrow (halves that
  are multiplied on tensor cores and added in float); narrow results are, unless the baseline rounds
  its results so as well. Float is narrow where the baseline computes in double alone.
- Approximations. `ex2.approx` and `rsqrt.approx` are what expf and rsqrtf are made of; `__expf`
  cannot be told from expf and is left to the gates on results. `sin`, `cos`, `lg2` and `tanh` are
  named where the baseline has none. Whoever allows a narrow type allows these: its unit roundoff
  (2^-11 for tf32 and fp16) is no smaller than their error.
- Launches from the device, calls out of the module and breakpoints have no place in a kernel that
  somebody else launches, whoever does it first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from cudaops.domain.options import Precision

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINES_WITHOUT_END = re.compile(r"^[ \t]*\.(?:version|target|address_size|file|loc)\b[^\n]*", re.M)
_SECTION = re.compile(r"\.section\b[^{]*\{[^}]*\}")
_LABEL = re.compile(r"[$%\w]+\s*:(?!:)\s*")
_GUARD = re.compile(r"@!?%[\w$]+\s+")
_VARIABLE = re.compile(
    r"\.(?P<space>global|const)\b(?P<head>[^=;]*?)(?P<name>[A-Za-z_$%][\w$]*)\s*(?P<extent>\[[^=;]*)?$"
)
_FUNCTION = re.compile(r"\.(?P<kind>entry|func)\b\s*(?:\([^)]*\)\s*)?(?P<name>[A-Za-z_$%][\w$]*)")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")


class PtxInstruction(NamedTuple):
    """One instruction; its guard and label are left out."""

    name: str
    """`mma`, `ld`, `mov`."""
    modifiers: tuple[str, ...]
    """`("sync", "aligned", "m16n8k8", ...)`."""
    operands: str

    @property
    def opcode(self) -> str:
        """As written: `ex2.approx.ftz.f32`."""
        return ".".join((self.name, *self.modifiers))


class PtxVariable(NamedTuple):
    """One variable at module scope."""

    name: str
    space: str
    """`global` or `const`."""
    words: frozenset[str]
    """Names in its initialiser: addresses of functions and of other variables."""


class PtxFunction(NamedTuple):
    """One function that is defined."""

    name: str
    is_entry: bool
    instructions: tuple[PtxInstruction, ...]


class PtxModule(NamedTuple):
    """Contents of one PTX text."""

    variables: dict[str, PtxVariable]
    functions: dict[str, PtxFunction]
    external: frozenset[str]
    """Functions that are declared and not defined."""

    @property
    def entries(self) -> tuple[str, ...]:
        """Kernels, in order."""
        return tuple(f.name for f in self.functions.values() if f.is_entry)


class PtxError(ValueError):
    """PTX that this reader does not support."""


def read_ptx(text: str) -> PtxModule:
    """Take a PTX text apart. Raises PtxError where its braces do not match or it has no version."""
    if not re.search(r"^[ \t]*\.version\s+\d+\.\d+", text, re.M):
        raise PtxError("no PTX: there is no .version")
    plain = _COMMENT.sub(" ", text)
    plain = _SECTION.sub(" ", _LINES_WITHOUT_END.sub("", plain))
    variables: dict[str, PtxVariable] = {}
    functions: dict[str, PtxFunction] = {}
    declared: set[str] = set()
    for head, body in _items(plain):
        function = _FUNCTION.search(head.partition("=")[0])
        if function is not None and body is not None:
            instructions = tuple(_instructions(body))
            name = function["name"]
            functions[name] = PtxFunction(name, function["kind"] == "entry", instructions)
        elif function is not None:
            declared.add(function["name"])
        elif variable := _variable(head):
            variables[variable.name] = variable
    return PtxModule(variables, functions, frozenset(declared - functions.keys()))


def names_in(operands: str) -> frozenset[str]:
    """Names of variables, functions and labels in an operand list; registers are not among them."""
    return frozenset(m.group() for m in _WORD.finditer(re.sub(r"%[\w$]+(?:\.\w+)?", " ", operands)))


def _items(plain: str) -> Iterator[tuple[str, str | None]]:
    """Declarations and definitions at module scope; a definition with its braces."""
    start = at = 0
    while at < len(plain):
        character = plain[at]
        if character == "}":
            raise PtxError("a brace closes nothing")
        if character == "{":
            end = _closing(plain, at)
            head = plain[start:at]
            if "=" not in head:
                yield head, plain[at + 1 : end]
                start = end + 1
            at = end
        elif character == ";":
            yield plain[start:at], None
            start = at + 1
        at += 1


def _closing(plain: str, opener: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(plain, opener):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise PtxError("a brace is not closed")


def _variable(head: str) -> PtxVariable | None:
    declared, _, initial = head.partition("=")
    found = _VARIABLE.search(declared.strip())
    if found is None:
        return None
    return PtxVariable(found["name"], found["space"], names_in(initial))


def _instructions(body: str) -> Iterator[PtxInstruction]:
    for statement in body.split(";"):
        text = statement.strip("{} \t\r\n")
        while label := _LABEL.match(text):
            text = text[label.end() :].lstrip("{} \t\r\n")
        if guard := _GUARD.match(text):
            text = text[guard.end() :]
        if not text or text.startswith("."):
            continue
        first = re.match(r"\S+", text)
        assert first is not None
        opcode, operands = first.group(), text[first.end() :].strip()
        name, *modifiers = re.split(r"\.|::", opcode)
        yield PtxInstruction(name, tuple(modifiers), " ".join(operands.split()))


_REGISTER = re.compile(r"%[A-Za-z_$][\w$]*")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_WRITERS = frozenset({"st", "red", "atom", "cp", "stmatrix", "multimem"})
_READERS = frozenset({"ld", "ldu", "ldmatrix", "prefetch", "prefetchu", "discard", "applypriority"})
_READING_CALLEES = ("vprintf", "__assertfail")
"""They read the strings whose addresses they are given."""


def written_variables(module: PtxModule, reached: Iterable[PtxFunction]) -> frozenset[str]:
    """Names of `.global` variables that these functions write, or may write."""
    known = {v.name for v in module.variables.values() if v.space == "global"}
    found: set[str] = set()
    mentioned: set[str] = set()
    for function in reached:
        found |= _written_by(function, known)
        mentioned |= {n for i in function.instructions for n in names_in(i.operands)}
    # A variable that holds another one's address hands it to whoever reads it.
    for name in mentioned & module.variables.keys():
        found |= module.variables[name].words & known
    return frozenset(found)


def _written_by(function: PtxFunction, known: set[str]) -> set[str]:
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


def _only_reads(one: PtxInstruction) -> bool:
    return one.name == "call" and any(
        re.search(rf"(?<![\w$]){name}(?![\w$])", one.operands) for name in _READING_CALLEES
    )


def _address_holders(
    instructions: Sequence[PtxInstruction], known: set[str]
) -> dict[str, set[str]]:
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


TraitKind = Literal[
    "launches", "calls", "breakpoint", "state", "clock", "place", "sleeps", "discards", "profiler",
    "dependents", "heap", "prints", "matrix", "arithmetic", "rounding", "holds", "approximation",
]  # fmt: skip


class Trait(NamedTuple):
    """One thing that code does, and with what."""

    kind: TraitKind
    """`launches`: kernels, from the device. `calls`: a function that is not in the module. `state`:
    a variable that outlives the launch. `place`: asks where it runs. `matrix`, `arithmetic`,
    `rounding`, `holds`: operands, results, conversions and values of a precision."""
    what: str
    """Name of a variable, register, function, instruction or precision."""


Facts = frozenset[Trait]

_CLOCKS = re.compile(r"%(clock(?:_hi|64)?|globaltimer(?:_lo|_hi)?)(?![\w$])")
_PLACES = re.compile(r"%(n?smid|n?warpid|gridid|pm\d+(?:_64)?)(?![\w$])")
"""Where on the chip, and how many grids were launched before. `%envreg` (cooperative groups) and
`%lanemask` (warp collectives) are no such question."""

NARROW = {
    "f16": "fp16", "f16x2": "fp16", "bf16": "bf16", "bf16x2": "bf16", "tf32": "tf32",
    **dict.fromkeys(
        ("e4m3", "e5m2", "e4m3x2", "e5m2x2", "e4m3x4", "e5m2x4", "e2m3", "e3m2", "e2m1", "e2m3x2",
         "e3m2x2", "e2m1x2", "ue8m0x2", "f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4"), "fp8"),
}  # fmt: skip
"""Type of an instruction to precision; `fp8` stands for all formats of 8 bits and fewer."""
_WIDE = {"f32": "fp32", "f64": "fp64"}
_FLOATS = NARROW | _WIDE
_OPERATIONS = frozenset(
    {"add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"}
) | {"tanh", "red", "atom"}
"""What rounds its result; `neg`, `abs`, `min`, `max`, comparisons and moves are exact."""
_COARSE = frozenset({"sin", "cos", "lg2", "tanh"})
"""`.approx` forms of coarse error: absolute 2^-20.5 (sin, cos in -pi to pi) and 2^-22 (lg2, which
relative to results near 0 is without bound), relative 2^-11 (tanh). Of the library's functions only
cbrtf, erfinvf, normcdfinvf and their like begin with one, lg2 (nvcc 13.0.88, 2026-11-20). `ex2`,
`rcp`, `rsqrt`, `sqrt`, `div` stay within 2 ulp and are part of expf, sqrtf and division."""
_PARAMETER_TYPES = {"6__half": "fp16", "7__half2": "fp16", "13__nv_bfloat16": "bf16"}
"""In a kernel's mangled name: bf16 is widened by a shift, which no instruction's type tells."""
_QUIET = frozenset({"__assertfail"})
_CALLEE = re.compile(r"^(?:\([^)]*\)\s*,\s*)?([%\w$]+)")


def facts_of(module: PtxModule, entries: Collection[str]) -> Facts:
    """What these kernels do, with every function that they can call. Raises KeyError: no such."""
    reached = [module.functions[name] for name in _reached(module, entries)]
    found = {t for f in reached for i in f.instructions for t in _traits(i, module)}
    found |= {Trait("state", v) for v in written_variables(module, reached)}
    for entry in entries:
        found |= {Trait("holds", p) for word, p in _PARAMETER_TYPES.items() if word in entry}
    narrow = {t.what for t in found if t.kind in ("matrix", "arithmetic", "rounding")}
    return frozenset(found | {Trait("holds", p) for p in narrow})


def _reached(module: PtxModule, entries: Collection[str]) -> set[str]:
    """Every function that a kernel can come to; by a pointer, every one that is no kernel."""
    others = {f.name for f in module.functions.values() if not f.is_entry}
    seen: set[str] = set()
    todo = list(entries)
    while todo:
        function = module.functions[todo.pop()]
        if function.name in seen:
            continue
        seen.add(function.name)
        todo += _mentioned(module, function) & module.functions.keys()
        if any(i.name == "call" and _callee(i).startswith("%") for i in function.instructions):
            todo += others
    return seen


def _mentioned(module: PtxModule, function: PtxFunction) -> set[str]:
    names = {n for i in function.instructions for n in names_in(i.operands)}
    return names | {w for n in names & module.variables.keys() for w in module.variables[n].words}


def _callee(call: PtxInstruction) -> str:
    found = _CALLEE.match(call.operands)
    return found[1] if found else ""


def _traits(one: PtxInstruction, module: PtxModule) -> Iterator[Trait]:
    yield from (Trait("clock", f"%{m[1]}") for m in _CLOCKS.finditer(one.operands))
    yield from (Trait("place", f"%{m[1]}") for m in _PLACES.finditer(one.operands))
    match one.name:
        case "call":
            yield from _call_traits(_callee(one), module)
        case "brkpt":
            yield Trait("breakpoint", "brkpt")
        case "nanosleep":
            yield Trait("sleeps", "nanosleep")
        case "discard":
            yield Trait("discards", one.opcode)
        case "pmevent":
            yield Trait("profiler", "pmevent")
        case "griddepcontrol":
            yield Trait("dependents", one.opcode)
        case "mma" | "wmma" | "wgmma" | "tcgen05":
            yield from _matrix_traits(one)
        case "cvt":
            yield from _conversion_traits(one)
        case name if name in _OPERATIONS:
            yield from _arithmetic_traits(one)


def _call_traits(name: str, module: PtxModule) -> Iterator[Trait]:
    if name in module.functions or name.startswith("%") or name in _QUIET:
        return
    if name == "vprintf":
        yield Trait("prints", "printf")
    elif name in ("malloc", "free"):
        yield Trait("heap", name)
    elif name.startswith("cuda"):
        yield Trait("launches", name)
    else:
        yield Trait("calls", name)


def _types_of(one: PtxInstruction) -> list[str]:
    return [_FLOATS[m] for m in one.modifiers if m in _FLOATS]


def _matrix_traits(one: PtxInstruction) -> Iterator[Trait]:
    """Operands and accumulators: `.d.a.b.c`, `.d.a.b` (wgmma), `.d.c` (wmma on halves)."""
    if one.name == "wmma" and one.modifiers[:1] != ("mma",):
        return
    types = _types_of(one)
    accumulators, operands = types[:1] + types[3:], types[1:3]
    if one.name == "wmma" and len(types) == 2:
        accumulators, operands = types, ["fp16"]
    elif one.name == "tcgen05":
        accumulators, operands = [], types
    yield from (Trait("matrix", p) for p in operands if p not in _WIDE.values())
    yield from (Trait("arithmetic", p) for p in accumulators if p not in _WIDE.values())


def _conversion_traits(one: PtxInstruction) -> Iterator[Trait]:
    types = [m for m in one.modifiers if re.fullmatch(r"[a-z]+\d\w*", m) and m != "relu"][-2:]
    if types and types[0] in NARROW:
        yield Trait("rounding", NARROW[types[0]])
    if types[1:] and types[1] in NARROW:
        yield Trait("holds", NARROW[types[1]])


def _arithmetic_traits(one: PtxInstruction) -> Iterator[Trait]:
    types = _types_of(one)
    if one.name in ("red", "atom") and "add" not in one.modifiers:
        return
    yield from (Trait("arithmetic", p) for p in types[:1])
    if one.name in _COARSE and "approx" in one.modifiers and types[:1] == ["fp32"]:
        yield Trait("approximation", f"{one.name}.approx.f32")


REFUSED: Mapping[TraitKind, str] = {
    "launches": "launches kernels from the device: {}",
    "calls": "calls what is not in its text: {}",
    "breakpoint": "stops for a debugger: {}",
}

SUSPICIOUS: Mapping[TraitKind, str] = {
    "state": "keeps {} between launches; check whether every launch sets it",
    "clock": "reads a clock ({}); check whether the result or the work depends on it",
    "place": "reads where it runs ({}); check whether the work depends on it",
    "sleeps": "waits ({}); look for what",
    "discards": "discards cached data ({}); check whether it is written before it is read",
    "profiler": "signals a profiler ({})",
    "dependents": "starts what depends on it early ({}); look what is done after it",
    "heap": "uses the device's heap ({}), which outlives a launch",
    "prints": "prints from the device ({})",
    "matrix": "multiplies {} matrices, where the baseline's data are none",
    "arithmetic": "computes in {}, where the baseline does not",
    "rounding": "rounds to {}, where the baseline does not",
    "approximation": "approximates coarsely ({}), where the baseline does not",
}

_SAME_DATA: frozenset[TraitKind] = frozenset({"matrix", "rounding"})
_SAME_THING: frozenset[TraitKind] = frozenset({"arithmetic", "approximation"})
_COVERED: Mapping[Precision, frozenset[str]] = {
    "tf32": frozenset({"tf32"}),
    "fp16": frozenset({"fp16", "tf32"}),
    "bf16": frozenset({"bf16", "tf32"}),
}
"""What an allowed precision allows. TF32 has the significant bits of fp16 and the exponents
of bf16, so it is no less exact than either."""


class Findings(NamedTuple):
    """What a candidate does beyond its baseline, one line each."""

    refused: tuple[str, ...]
    suspicious: tuple[str, ...]
    allowed: tuple[str, ...]
    """Lower precision that the user allowed."""


def findings(
    candidate: Facts,
    baseline: Facts,
    allowed: Precision | None = None,
    shown: Callable[[str], str] = str,
) -> Findings:
    """Compare two kernels' facts; `shown` turns a variable's symbol into a name."""
    beyond = {t for t in candidate if not _excused(t, baseline)}
    permitted = {t for t in beyond if _permitted(t, allowed)}
    return Findings(
        refused=_finding_lines(REFUSED, beyond, shown),
        suspicious=_finding_lines(SUSPICIOUS, beyond - permitted, shown),
        allowed=tuple(sorted({t.what for t in permitted})),
    )


def _excused(trait: Trait, baseline: Facts) -> bool:
    """Whether the baseline does this too."""
    if trait.kind in REFUSED or trait in baseline:
        return trait in baseline
    if trait.kind in _SAME_DATA:
        return Trait("holds", trait.what) in baseline
    if trait == ("arithmetic", "fp32"):
        return Trait("arithmetic", "fp64") not in baseline
    if trait == ("arithmetic", "fp64") or trait.kind == "holds":
        return True
    if trait.kind in _SAME_THING:
        return False
    return any(t.kind == trait.kind for t in baseline)


def _permitted(trait: Trait, allowed: Precision | None) -> bool:
    if allowed is None:
        return False
    if trait.kind == "approximation":
        return True
    precise = trait.kind in ("matrix", "arithmetic", "rounding")
    return precise and trait.what in _COVERED[allowed]


def _finding_lines(
    texts: Mapping[TraitKind, str], found: set[Trait], shown: Callable[[str], str]
) -> tuple[str, ...]:
    lines = []
    for kind, text in texts.items():
        names = sorted(
            shown(t.what) if kind == "state" else t.what for t in found if t.kind == kind
        )
        if names:
            lines.append(text.format(", ".join(f"`{n}`" for n in names[:4])))
    return tuple(lines)
