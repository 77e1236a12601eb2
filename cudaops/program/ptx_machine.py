"""Instructions of PTX beyond arithmetic and global memory, as C++: all of them for an author's own
program, and for a rewrite those of tensor cores, of the warp and of asynchronous copies.

The others read registers of the machine, reach shared memory, wait. What is not here is refused by
the `cpu` executor in words: asynchronous bulk copies and their barriers, `wgmma`, `tcgen05`, named
barriers, calls. Source of names, operands and corner cases: PTX ISA 9.0, chapters 9 and 10. The
functions are `executors/cpu/include/cudaops/ptx_machine.h`.

An operand in `PtxOperation.reads` is a kind; `int`, of any width, without a sign; `u32*4`, as many
between braces; `[global]` or `[shared]`, an address in brackets; `!pred`, which `!` may negate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import cast

from cudaops.program.ptx_instructions import BITS, Kind, PtxOperation, unsigned

_P = "::cudaops_ptx::"
REGISTERS = {**BITS, "f16": 16, "f16x2": 32, "bf16": 16, "bf16x2": 32}
"""Types of registers that a statement may declare, and their widths."""
NARROW = {"u8": 8, "s8": 8, "b8": 8, "s16": 16, **REGISTERS, "int": 64}
"""Widths of what is read."""


def _axes(name: str, value: str) -> dict[str, tuple[Kind, str]]:
    return {f"{name}.{axis}": ("u32", f"(::cudaops_ptx::u32){value}.{axis}") for axis in "xyz"}


SPECIAL: dict[str, tuple[Kind, str]] = {
    **_axes("tid", "::threadIdx"), **_axes("ntid", "::blockDim"), **_axes("ctaid", "::blockIdx"),
    **_axes("nctaid", "::gridDim"),
    "laneid": ("u32", "::cudaops::lane()"),
    "warpid": ("u32", f"({_P}thread_of_block() / 32)"),
    "nwarpid": ("u32", f"{_P}warps()"),
    "smid": ("u32", f"({_P}block_of_grid() % ::cudaops::multiprocessors)"),
    "nsmid": ("u32", f"({_P}u32)::cudaops::multiprocessors"),
    "gridid": ("u64", f"({_P}u64)1"),
    "clock": ("u32", f"({_P}u32)::clock64()"),
    "clock_hi": ("u32", f"({_P}u32)(({_P}u64)::clock64() >> 32)"),
    "clock64": ("u64", f"({_P}u64)::clock64()"),
    "globaltimer": ("u64", "::cudaops_nanoseconds()"),
    "globaltimer_lo": ("u32", f"({_P}u32)::cudaops_nanoseconds()"),
    "globaltimer_hi": ("u32", f"({_P}u32)(::cudaops_nanoseconds() >> 32)"),
    "lanemask_eq": ("u32", "(1u << ::cudaops::lane())"),
    "lanemask_lt": ("u32", "((1u << ::cudaops::lane()) - 1)"),
    "lanemask_le": ("u32", "(~0u >> (31 - ::cudaops::lane()))"),
    "lanemask_gt": ("u32", "(~1u << ::cudaops::lane())"),
    "lanemask_ge": ("u32", "(~0u << ::cudaops::lane())"),
    "dynamic_smem_size": ("u32", f"({_P}u32)::cudaops::dynamic_shared_bytes()"),
    "cluster_ctarank": ("u32", "::cudaops::cluster_place().rank"),
    "cluster_nctarank": ("u32", "::cudaops::cluster_place().size"),
    **_axes("cluster_ctaid", "::cudaops::cluster_place().block"),
    **_axes("cluster_nctaid", "::cudaops::cluster_place().blocks"),
}  # fmt: skip
"""Registers of the machine by their names behind `%%`."""

_REWRITES = re.compile(
    r"(?:mma\.sync|ldmatrix|stmatrix|cp\.async|shfl\.sync|vote\.sync|match|redux|cvta)\..*"
    r"|cvt\.rna\..*tf32\.f32|(?:cvt|add|sub|mul|fma|min|max|neg|abs)\..*f16.*"
)
"""Names of what a rewrite may hold: for each CUDA has an intrinsic or a header that it may use."""

_Parts = dict[str, str]
_Maker = Callable[[_Parts], PtxOperation | None]


@cache
def machine_operation(opcode: str) -> PtxOperation | None:
    """The instruction of this name; None where it is none that the author may hold."""
    for pattern, make in _TABLE:
        if found := pattern.fullmatch(opcode):
            made = make({k: v or "" for k, v in found.groupdict().items()})
            if made is not None:
                return made
    return None


def warp_operation(opcode: str) -> PtxOperation | None:
    """The instruction of this name where a rewrite may hold it as well."""
    return machine_operation(opcode) if _REWRITES.fullmatch(opcode) else None


def _call(name: str, count: int, first: int = 0) -> str:
    return f"{_P}{name}({', '.join(f'{{{i}}}' for i in range(first, first + count))})"


def _plain(kind: str) -> Kind:
    """The kind that holds a result of this type."""
    if kind in ("f32", "f64", "s32", "s64"):
        return cast("Kind", kind)
    return unsigned(REGISTERS[kind])


_COMPARED = {
    "eq": "({0} == {1})", "ne": "({0} != {1})", "lt": "({0} < {1})", "le": "({0} <= {1})",
    "gt": "({0} > {1})", "ge": "({0} >= {1})", "lo": "({0} < {1})", "ls": "({0} <= {1})",
    "hi": "({0} > {1})", "hs": "({0} >= {1})",
    "equ": "!({0} < {1} || {0} > {1})", "neu": "({0} != {1})", "ltu": "!({0} >= {1})",
    "leu": "!({0} > {1})", "gtu": "!({0} <= {1})", "geu": "!({0} < {1})",
    "num": "({0} == {0} && {1} == {1})", "nan": "({0} != {0} || {1} != {1})",
}  # fmt: skip
_COMBINED = {"and": "&&", "or": "||", "xor": "!="}


def _setp(p: _Parts) -> PtxOperation | None:
    kind = p["type"]
    compared = _COMPARED[p["how"]]
    if kind.startswith("f") and p["how"] == "ne":
        compared = "({0} < {1} || {0} > {1})"
    if p["ftz"]:
        compared = compared.replace("{0}", f"{_P}ftz({{0}})").replace("{1}", f"{_P}ftz({{1}})")
    read = kind if kind[0] in "usf" else unsigned(REGISTERS[kind])
    reads: tuple[str, ...] = (read, read)
    other = f"!({compared})"
    if p["with"]:
        reads = (*reads, "!pred")
        sign = _COMBINED[p["with"]]
        compared, other = f"(({compared}) {sign} {{2}})", f"(({other}) {sign} {{2}})"
    return PtxOperation("pred", reads, f"({{p}} = {other}, {compared})", beside=True)


def _order(words: str) -> str:
    found = next((word for word in words.split(".") if word in _ORDERS), "")
    return "" if found == "weak" else found


def _access(p: _Parts) -> PtxOperation | None:
    is_load, kind, vector = p["what"] == "ld", p["type"], int(p["vector"][2:] or 1)
    bits = NARROW[kind]
    if bits * vector > 128:
        return None
    held = kind if bits < 32 else unsigned(bits)
    order = _order(p["words"])
    if order in ("acq_rel", "release" if is_load else "acquire"):
        return None
    found = PtxOperation(
        unsigned(max(bits, 16)) if is_load else None,
        () if is_load else (unsigned(max(bits, 16)),),
        memory="load" if is_load else "store",
        vector=vector,
        space="shared" if ".shared" in p["words"] else "global",
        stands_as=held.replace("b8", "u8").replace("b16", "u16"),
        optional=int(".L2::cache_hint" in p["hints"]),
    )
    return found._replace(order=f"_{order}" if order else "")  # type: ignore[arg-type]


_ATOMIC = {
    "add": "atomicAdd", "min": "atomicMin", "max": "atomicMax", "and": "atomicAnd",
    "or": "atomicOr", "xor": "atomicXor", "exch": "atomicExch", "cas": "atomicCAS",
    "inc": "atomicInc", "dec": "atomicDec",
}  # fmt: skip
_ATOMIC_TYPES = {
    "u32": "unsigned", "b32": "unsigned", "s32": "int", "u64": "unsigned long long",
    "b64": "unsigned long long", "s64": "long long", "f32": "float", "f64": "double",
}  # fmt: skip
_ATOMIC_KINDS = {
    "add": ("u32", "s32", "u64", "f32", "f64"), "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"), "and": ("b32", "b64"), "or": ("b32", "b64"),
    "xor": ("b32", "b64"), "exch": ("b32", "b64"), "cas": ("b32", "b64"), "inc": ("u32",),
    "dec": ("u32",),
}  # fmt: skip


def _atomic(p: _Parts) -> PtxOperation | None:
    name, kind = p["do"], p["type"]
    if kind not in _ATOMIC_KINDS[name] or (p["what"] == "red" and name in ("exch", "cas")):
        return None
    count = 2 if name == "cas" else 1
    read = _plain(kind)
    values = "".join(f", {{{i}}}" for i in range(1, 1 + count))
    # f32 stands for `float`, so that a widened build does not reach past what the author adds to.
    cpp = {"f32": f"{_P}f32", "f64": f"{_P}f64"}.get(kind, _ATOMIC_TYPES[kind])
    call = f"::{_ATOMIC[name]}(({cpp}*){{0}}{values})"
    order = _order(p["words"])
    before = "__threadfence(), " if order in ("release", "acq_rel") else ""
    space = "[shared]" if "shared" in p["words"] else "[global]"
    reads = (space, *(read,) * count)
    if p["what"] == "red":
        return PtxOperation(None, reads, f"{before}{call}")
    fenced = f"{_P}fenced({call})" if order in ("acquire", "acq_rel") else call
    return PtxOperation(read, reads, f"({before}{fenced})")


def _copy(p: _Parts) -> PtxOperation | None:
    # Bytes, bytes that are read (the rest is zeros), and what the second cache is to do with them.
    hint = bool(p["hint"])
    expression = f"{_P}copy_async({{0}}, {{1}}, {{2}}, {{3}})"
    reads = ("[shared]", "[global]", "u32", "u32")
    return PtxOperation(None, (*reads, "u64") if hint else reads, expression, optional=1 + hint)


def _statement(text: str, *reads: str, optional: int = 0) -> _Maker:
    return lambda _: PtxOperation(None, reads, text, optional=optional)


def _shuffle(p: _Parts) -> PtxOperation | None:
    reads = ("u32",) * (4 if p["sync"] else 3)
    members = "{3}" if p["sync"] else "0u"
    call = f"{_P}shuffle<{_P}Shuffle::{p['way']}>({{0}}, {{1}}, {{2}}, {members}, {{p}})"
    return PtxOperation("u32", reads, call, beside=True)


def _vote(p: _Parts) -> PtxOperation | None:
    kind: Kind = "u32" if p["how"] == "ballot.b32" else "pred"
    name = p["how"].partition(".")[0]
    return PtxOperation(kind, ("!pred", "u32"), f"(::__{name}_sync({{1}}, {{0}}) != 0)"
                     if kind == "pred" else "::__ballot_sync({1}, {0})")  # fmt: skip


def _match(p: _Parts) -> PtxOperation | None:
    read = unsigned(BITS[p["type"]])
    if p["how"] == "all":
        return PtxOperation(
            "u32", (read, "u32"), f"{_P}match_all({{1}}, {{0}}, {{p}})", beside=True
        )
    return PtxOperation("u32", (read, "u32"), "::__match_any_sync({1}, {0})")


def _reduction(p: _Parts) -> PtxOperation | None:
    kind, name = p["type"], p["do"]
    if (kind == "b32") != (name in ("and", "or", "xor")):
        return None
    cast_to = "(int)" if kind == "s32" else ""
    read = _plain(kind)
    return PtxOperation(read, (read, "u32"), f"::__reduce_{name}_sync({{1}}, {cast_to}{{0}})")


_BYTES = ((8, 16), (16, 16), (16, 32))
_TENSOR = {
    ("f16", 16, 8): "f16", ("f16", 16, 16): "f16", ("bf16", 16, 8): "bf16",
    ("bf16", 16, 16): "bf16", ("tf32", 16, 4): "tf32_in", ("tf32", 16, 8): "tf32_in",
    ("f64", 8, 4): "f64_in", ("f64", 16, 4): "f64_in", ("f64", 16, 8): "f64_in",
    ("f64", 16, 16): "f64_in",
    **{(kind, m, k): f"{kind}_in" for kind in ("s8", "u8") for m, k in _BYTES},
}  # fmt: skip
"""What an element of the first two matrices is, rows of the first, columns of it."""
_SUM = {"f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",),
        "s8": ("s32",), "u8": ("s32",)}  # fmt: skip


def _mma(p: _Parts) -> PtxOperation | None:
    m, k, a, b, d = int(p["m"]), int(p["k"]), p["a"], p["b"], p["d"]
    left, right = _TENSOR.get((a, m, k)), _TENSOR.get((b, m, k))
    mixed = a != b and not {a, b} <= {"s8", "u8"}
    if left is None or right is None or mixed or d != p["c"] or d not in _SUM[a]:
        return None
    if bool(p["sat"]) and d != "s32":
        return None
    width = 64 if a == "f64" else 32
    of_word = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4}.get(a, 1)
    word = unsigned(width)
    sizes = [m * k // 32 // of_word, 8 * k // 32 // of_word, m * 8 // 32]
    held = (f"{word}*{sizes[0]}", f"{word}*{sizes[1]}", f"{d}*{sizes[2]}")
    call = f"{_P}tile_{m * 8 * k}<{_P}{left}, {_P}{right}, {k}>({{0}}, {{1}}, %)"
    if d == "f16":
        whole = f"{_P}halves_of({call.replace('%', f'{_P}sums_of({{2}})')})"
        return PtxOperation("u32", (*held[:2], "u32*2"), whole, vector=2)
    if d == "s32":
        saturates = "true" if p["sat"] else "false"
        whole = f"{_P}integers_of<{saturates}>({call.replace('%', f'{_P}wide_of({{2}})')})"
        return PtxOperation("s32", held, whole, vector=sizes[2])
    return PtxOperation(cast("Kind", d), held, call.replace("%", "{2}"), vector=sizes[2])


def _matrix(p: _Parts) -> PtxOperation | None:
    if not p["x"]:
        return None
    count, turned = int(p["x"]), "true" if p["trans"] else "false"
    if p["what"] == "ldmatrix":
        call = f"{_P}load_matrix<{count}, {turned}>({{0}}){'.at[0]' if count == 1 else ''}"
        return PtxOperation("u32", ("[shared]",), call, vector=count)
    call = f"{_P}store_matrix<{count}, {turned}>({{0}}, {{1}})"
    return PtxOperation(None, ("[shared]", f"u32*{count}"), call)


_CARRY = "::cudaops_carry"
"""CC.CF, which goes on from statement to statement."""


def _carried(p: _Parts) -> PtxOperation | None:
    name, with_carry, sets = p["do"], bool(p["c"]), bool(p["cc"])
    if not with_carry and not sets:
        return None
    kind, part = p["type"], p["part"]
    word = unsigned(BITS[kind])
    carry_in = _CARRY if with_carry else "false"
    out = _CARRY if sets else "{unused}"
    how = "sub_borrow" if name == "sub" else "add_carry"
    if (name == "mad") != bool(part):
        return None
    reads: tuple[str, ...] = (word, word)
    values = "{0}, {1}"
    if name == "mad":
        read = kind if part == "hi" else word
        reads = (read, read, word)
        product = f"(::cudaops_ptx::{word}){_P}mul_hi({{0}}, {{1}})"
        values = f"{product if part == 'hi' else '{0} * {1}'}, {{2}}"
    expression = f"{_P}{how}<{_P}{word}>({values}, {carry_in}, {out})"
    return PtxOperation(word, reads, expression)


def _short(p: _Parts) -> PtxOperation | None:
    """Integers of 16 bits."""
    kind, name = p["type"], p["do"]
    signs = {"add": "+", "sub": "-", "mul.lo": "*"}
    if name in signs:
        return PtxOperation("u16", (kind, kind), f"({_P}u16)({{0}} {signs[name]} {{1}})")
    if name == "mad.lo":
        return PtxOperation("u16", (kind,) * 3, f"({_P}u16)({{0}} * {{1}} + {{2}})")
    double: Kind = "u32" if kind == "u16" else "s32"
    if name == "mul.wide":
        return PtxOperation(double, (kind, kind), f"(({_P}{double}){{0}} * ({_P}{double}){{1}})")
    if name == "mad.wide":
        return PtxOperation("u32", (kind, kind, "u32"), "((unsigned)((int){0} * (int){1}) + {2})")
    sign = "<" if name == "min" else ">"
    return PtxOperation("u16", (kind, kind), f"({_P}u16)({{0}} {sign} {{1}} ? {{0}} : {{1}})")


def _bits16(p: _Parts) -> PtxOperation | None:
    signs = {"and": "&", "or": "|", "xor": "^"}
    if p["do"] == "not":
        return PtxOperation("u16", ("u16",), f"({_P}u16)~{{0}}")
    if p["do"] in signs:
        return PtxOperation("u16", ("u16", "u16"), f"({_P}u16)({{0}} {signs[p['do']]} {{1}})")
    return PtxOperation("u16", ("u16", "u32"), _call(p["do"], 2))


def _bfind(p: _Parts) -> PtxOperation | None:
    shift = "true" if p["shift"] else "false"
    return PtxOperation("u32", (p["type"],), f"{_P}bfind({{0}}, {shift})")


def _saturated(p: _Parts) -> PtxOperation | None:
    wide, sign = f"({_P}s64)", {"add": "+", "sub": "-"}[p["do"]]
    return PtxOperation("s32", ("s32", "s32"), f"{_P}saturated({wide}{{0}} {sign} {wide}{{1}})")


def _absdiff(p: _Parts) -> PtxOperation | None:
    """Whole registers; of four bytes or two halves each by itself, or their sum and a third."""
    lanes, a, added = p["lanes"], p["a"], bool(p["add"])
    if lanes:
        one = "s" if a == "s32" else "u"
        call = f"({_P}u32)::__v{'sad' if added else 'absdiff'}{one}{lanes}({{0}}, {{1}})"
        reads: tuple[str, ...] = ("u32", "u32", "u32")
        return PtxOperation("u32", reads, f"({call} + {{2}})" if added else call)
    size = "({0} > {1} ? (unsigned){0} - (unsigned){1} : (unsigned){1} - (unsigned){0})"
    if added:
        return PtxOperation("u32", (a, a, "u32"), f"({size} + {{2}})")
    return PtxOperation("u32", (a, a), size)


def _video(p: _Parts) -> PtxOperation | None:
    """On four bytes or two halves each by itself; `.add`: the sum of these and a third register."""
    bits, then = 32 // int(p["lanes"] or 4), p["then"]
    d, a, b = (f"{_P}{kind[0]}{bits}" for kind in (p.get("d") or "u32", p["a"], p["b"]))
    found = f"{{0}}, {{1}}, {_P}video_{p['do']}()"
    if then == ".add":
        found = f"({_P}video_sum<{a}, {b}>({found}) + {{2}})"
    else:
        found = f"{_P}video<{d}, {a}, {b}, {str(then == '.sat').lower()}>({found})"
    return PtxOperation("u32", ("u32", "u32", "u32"), found)


def _converted(p: _Parts) -> PtxOperation | None:
    """Among integers of every width, and to and from floats where one of these is narrow."""
    to, of, sat = p["to"], p["of"], bool(p["sat"])
    integers = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    if to in integers and of in integers:
        if p["round"]:
            return None
        call = f"{_P}clamped<{_P}{to}>({{0}})" if sat else f"({_P}{to}){{0}}"
        return PtxOperation(cast("Kind", to), (of,), call)
    if of in ("f32", "f64") and to in integers and p["round"] in (".rni", ".rzi", ".rmi", ".rpi"):
        value = f"{_P}ftz({{0}})" if p["ftz"] else "{0}"
        return PtxOperation(cast("Kind", to), (of,), f"{_P}{p['round'][1:]}<{_P}{to}>({value})")
    if of in integers and to in ("f32", "f64") and p["round"] == ".rn":
        return PtxOperation(cast("Kind", to), (of,), f"({_P}{to}){{0}}")
    if of == to and of in ("f32", "f64") and p["round"] in ("", ".rni", ".rzi", ".rmi", ".rpi"):
        name = {".rni": "nearbyint", ".rzi": "trunc", ".rmi": "floor", ".rpi": "ceil", "": ""}
        value = f"::{name[p['round']]}({{0}})" if p["round"] else "{0}"
        value = f"{_P}ftz({value})" if p["ftz"] else value
        return PtxOperation(cast("Kind", to), (of,), f"{_P}sat({value})" if sat else value)
    return None


_FORMATS = {"f16": "half", "bf16": "brain"}


def _narrowed(p: _Parts) -> PtxOperation | None:
    """To and from numbers of 16 bits."""
    to, of, relu = p["to"], p["of"], bool(p["relu"])
    if to in ("f32", "f64"):
        return PtxOperation(
            cast("Kind", to), ("u16",), f"({_P}{to}){_P}{_FORMATS[of]}::value({{0}})"
        )
    name = _FORMATS[to.removesuffix("x2")]
    value = [f"{_P}relu({{{i}}})" if relu else f"{{{i}}}" for i in range(2)]
    bits = [f"{_P}{name}::bits({one})" for one in value]
    if to.endswith("x2"):  # the first operand is the upper half
        return PtxOperation("u32", ("f32", "f32"), f"{_P}paired({bits[1]}, {bits[0]})")
    return PtxOperation("u16", ("f32",), bits[0])


_COUNTS = {"fma": 3, "neg": 1, "abs": 1, "ex2": 1, "tanh": 1}


def _halves(p: _Parts) -> PtxOperation | None:
    name, kind = p["do"], p["type"]
    count = _COUNTS.get(name, 2)
    form = f"{_P}{_FORMATS[kind.removesuffix('x2')]}"
    if kind.endswith("x2"):
        return PtxOperation("u32", ("u32",) * count, _call(f"{name}_pair<{form}>", count))
    return PtxOperation("u16", ("u16",) * count, _call(f"narrow<{form}>::{name}", count))


def _moved(p: _Parts) -> PtxOperation | None:
    kind = p["type"]
    if kind == "pred":
        return PtxOperation("pred", ("!pred",), "{0}")
    plain = unsigned(REGISTERS[kind])
    if p["do"] == "mov":
        return PtxOperation(plain, (plain,), "{0}")
    return PtxOperation(plain, (plain, plain, "pred"), "({2} ? {0} : {1})")


def _address(p: _Parts) -> PtxOperation | None:
    kind: Kind = "u64" if p["bits"] == "64" else "u32"
    if p["space"] == "global":
        return PtxOperation(kind, (kind,), "{0}")
    call = f"{_P}to_shared({{0}})" if p["to"] else f"{_P}shared_at({{0}})"
    return PtxOperation(kind, ("u64",), call) if kind == "u64" else None


def _value(writes: Kind, text: str, *reads: str) -> _Maker:
    return lambda _: PtxOperation(writes, reads, text)


def _dp2a(p: _Parts) -> PtxOperation | None:
    flags = ", ".join(str(int(p[side] == "s32")) for side in "ab")
    high = "true" if p["half"] == "hi" else "false"
    return PtxOperation("u32", ("u32",) * 3, _call(f"dp2a<{high}, {flags}>", 3))


def _mul24(p: _Parts) -> PtxOperation | None:
    kind = p["type"]
    product = f"{_P}mul24({{0}}, {{1}})"
    if p["do"] == "mad24":
        return PtxOperation("u32", (kind, kind, "u32"), f"({product} + {{2}})")
    return PtxOperation("u32", (kind, kind), product)


_SHARED = r"\.shared(?:::cta)?"
_ORDERS = ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel")
_WORDS = rf"(?:\.(?:{'|'.join(_ORDERS)}|cta|cluster|gpu|sys|global)|{_SHARED})*"
"""Order, scope and space, which ptxas takes in any order."""
_HINTS = (
    r"(?P<hints>(?:\.nc)?(?:\.(?:ca|cg|cs|cv|lu|wb|wt)|\.L1::\w+|\.L2::evict_\w+)*"
    r"(?:\.L2::cache_hint)?(?:\.L2::(?:64B|128B|256B))?(?:\.L2::cache_hint)?)"
)
_FENCES = {"cta": "__threadfence_block()", "gl": "__threadfence()", "sys": "__threadfence_system()",
           "gpu": "__threadfence()", "cluster": "__threadfence()"}  # fmt: skip
_INTEGER = "[us](?:32|64)"
_TABLE: tuple[tuple[re.Pattern[str], _Maker], ...] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        ((rf"setp\.(?P<how>{'|'.join(_COMPARED)})(?:\.(?P<with>and|or|xor))?(?P<ftz>\.ftz)?"
         r"\.(?P<type>[bus](?:16|32|64)|f32|f64)"), _setp),
        ((rf"(?P<what>ld|st)(?P<words>{_WORDS}){_HINTS}(?P<vector>\.v[24])?"
         r"\.(?P<type>[bus](?:8|16|32|64)|f32|f64)"), _access),
        ((rf"(?P<what>atom|red)(?P<words>{_WORDS})\.(?P<do>{'|'.join(_ATOMIC)})"
         r"\.(?P<type>[bus](?:32|64)|f32|f64)"), _atomic),
        (rf"cp\.async\.c[ag]{_SHARED}\.global(?P<hint>\.L2::cache_hint)?(?:\.L2::(?:64|128|256)B)?",
         _copy),
        (r"cp\.async\.commit_group", _statement("::cudaops::async_commit()")),
        (r"cp\.async\.wait_group", _statement("::cudaops::wait_for_copies({0})", "u32")),
        (r"cp\.async\.wait_all", _statement(f"{_P}wait_all_copies()")),
        (r"bar(?:rier)?(?:\.cta)?\.sync(?:\.aligned)?", _statement("__syncthreads()", "0")),
        (r"bar\.warp\.sync", _statement("__syncwarp({0})", "u32")),
        (r"bar(?:rier)?(?:\.cta)?\.red\.popc(?:\.aligned)?\.u32",
         _value("u32", f"({_P}u32)__syncthreads_count({{1}})", "0", "!pred")),
        (r"bar(?:rier)?(?:\.cta)?\.red\.and(?:\.aligned)?\.pred",
         _value("pred", "(__syncthreads_and({1}) != 0)", "0", "!pred")),
        (r"bar(?:rier)?(?:\.cta)?\.red\.or(?:\.aligned)?\.pred",
         _value("pred", "(__syncthreads_or({1}) != 0)", "0", "!pred")),
        (r"shfl(?P<sync>\.sync)?\.(?P<way>idx|up|down|bfly)\.b32", _shuffle),
        (r"vote\.sync\.(?P<how>(?:all|any|uni)\.pred|ballot\.b32)", _vote),
        (r"match\.(?P<how>any|all)\.sync\.(?P<type>b32|b64)", _match),
        (r"redux\.sync\.(?P<do>add|min|max|and|or|xor)\.(?P<type>[bus]32)", _reduction),
        (r"activemask\.b32", _value("u32", "::__activemask()")),
        (r"elect\.sync", lambda _: PtxOperation("u32", ("u32",), f"{_P}elected({{0}}, {{p}})",
                                             beside=True)),
        ((r"mma\.sync\.aligned\.m(?P<m>8|16)n8k(?P<k>4|8|16|32)\.row\.col(?P<sat>\.satfinite)?"
         r"\.(?P<d>f16|f32|f64|s32)\.(?P<a>\w+)\.(?P<b>\w+)\.(?P<c>f16|f32|f64|s32)"), _mma),
        ((rf"(?P<what>ldmatrix|stmatrix)\.sync\.aligned(?:\.m8n8|\.x(?P<x>[124])"
         rf"|(?P<trans>\.trans)|{_SHARED})+\.b16"), _matrix),
        ((r"membar\.(?P<scope>cta|gl|sys)|fence(?:\.(?:sc|acq_rel|acquire|release))?"
         r"\.(?P<fenced>cta|cluster|gpu|sys)"),
         lambda p: PtxOperation(None, (), f"::{_FENCES[p['scope'] or p['fenced']]}")),
        (rf"(?P<do>add|sub|mad)(?P<c>c)?(?:\.(?P<part>lo|hi))?(?P<cc>\.cc)?\.(?P<type>{_INTEGER})",
         _carried),
        (r"(?P<do>add|sub|mul\.lo|mad\.lo|mul\.wide|mad\.wide|min|max)\.(?P<type>[us]16)", _short),
        (r"(?P<do>and|or|xor|not|shl|shr)\.b16", _bits16),
        (r"(?P<do>add|sub)\.sat\.s32", _saturated),
        (r"(?P<do>mul24|mad24)\.lo\.(?P<type>[us]32)", _mul24),
        (rf"bfind(?P<shift>\.shiftamt)?\.(?P<type>{_INTEGER})", _bfind),
        (r"vabsdiff(?P<lanes>[24])?\.(?:[us]32)\.(?P<a>[us]32)\.(?P=a)(?P<add>\.add)?", _absdiff),
        ((r"v(?P<do>add|sub|avrg|min|max)(?P<lanes>[24])\.(?P<d>[us]32)\.(?P<a>[us]32)"
         r"\.(?P<b>[us]32)(?P<then>\.sat|\.add)?"), _video),
        ((r"vset(?P<lanes>[24])\.(?P<a>[us]32)\.(?P<b>[us]32)\.(?P<do>eq|ne|lt|le|gt|ge)"
         r"(?P<then>\.add)?"), _video),
        (r"dp2a\.(?P<half>lo|hi)\.(?P<a>[us]32)\.(?P<b>[us]32)", _dp2a),
        (r"cnot\.b(?P<bits>32)", _value("u32", "({0} == 0 ? 1u : 0u)", "u32")),
        ((r"cvt(?P<round>\.r\w+)?(?P<ftz>\.ftz)?(?P<sat>\.sat)?\.(?P<to>[us](?:8|16|32|64)|f32|f64)"
         r"\.(?P<of>[us](?:8|16|32|64)|f32|f64)"), _converted),
        (r"cvt\.rn(?P<relu>\.relu)?\.(?P<to>b?f16(?:x2)?)\.(?P<of>f32)", _narrowed),
        (r"cvt(?:\.ftz)?(?P<relu>)\.(?P<to>f32|f64)\.(?P<of>b?f16)", _narrowed),
        (r"cvt\.rna(?:\.satfinite)?\.tf32\.f32", _value("u32", _call("tf32", 1), "f32")),
        (r"(?P<do>add|sub|mul)(?:\.rn)?\.(?P<type>b?f16(?:x2)?)", _halves),
        (r"(?P<do>fma)\.rn\.(?P<type>b?f16(?:x2)?)", _halves),
        (r"(?P<do>min|max|neg|abs)\.(?P<type>b?f16(?:x2)?)", _halves),
        (r"(?P<do>ex2|tanh)\.approx\.(?P<type>f16(?:x2)?)", _halves),
        (r"(?P<do>mov|selp)\.(?P<type>pred|b16|f16|f16x2|bf16|bf16x2)", _moved),
        (r"cvta(?P<to>\.to)?\.(?P<space>shared|global)\.u(?P<bits>32|64)", _address),
        (r"isspacep\.shared(?:::cta)?", _value("pred", _call("is_shared", 1), "u64")),
        (r"isspacep\.global", _value("pred", f"(!{_call('is_shared', 1)})", "u64")),
        (r"nanosleep\.u32", _statement("::__nanosleep({0})", "u32")),
        (r"griddepcontrol\.(?:wait|launch_dependents)", _statement("")),
        (r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32", _statement("", "u32")),
        (r"prefetch(?:u|\.global)?\.(?:L1|L2(?:::evict_\w+)?)", _statement("", "[global]")),
        (r"createpolicy\.fractional\.L2::\w+(?:\.L2::\w+)?\.b64",
         lambda _: PtxOperation("u64", ("f32",), f"({_P}u64)0", optional=1)),
        (r"trap", _statement("::__trap()")),
        (r"exit", _statement(f"{_P}end_thread()")),
    )
)  # fmt: skip
"""Names, tried in order, and what makes an operation of one. A read of `0` is that number."""
