"""Looking at trees and changing them: untouched parts stay the same objects (see `text`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cudaops.program import syntax as s

PURE = frozenset({
    "abs", "fabs", "fabsf", "sqrt", "sqrtf", "rsqrtf", "rsqrt", "exp", "expf", "exp2", "exp2f",
    "log", "logf", "log2", "log2f", "log10", "log10f", "log1p", "log1pf", "expm1", "expm1f",
    "pow", "powf", "sin", "sinf", "cos", "cosf", "tan", "tanf", "asin", "asinf", "acos",
    "acosf", "atan", "atanf", "atan2", "atan2f", "sinh", "sinhf", "cosh", "coshf", "tanh",
    "tanhf", "erf", "erff", "erfc", "erfcf", "floor", "floorf", "ceil", "ceilf", "round",
    "roundf", "rint", "rintf", "trunc", "truncf", "fmod", "fmodf", "fma", "fmaf", "min", "max",
    "fmin", "fminf", "fmax", "fmaxf", "cbrt", "cbrtf", "hypot", "hypotf", "__ldg", "__popc",
    "__popcll", "__clz", "__clzll", "__ffs", "__ffsll", "__brev", "__mul24", "__umul24",
    "__mulhi", "__umulhi", "__fdividef", "__expf", "__logf", "__sinf", "__cosf", "__powf",
    "__int_as_float", "__float_as_int", "__uint_as_float", "__float_as_uint", "__float2int_rn",
    "__fmul_rn", "__fadd_rn", "__fsub_rn", "__fmaf_rn", "__fsqrt_rn", "__frcp_rn", "__fdiv_rn",
    "make_float2", "make_float3", "make_float4", "make_int2", "make_int3", "make_int4",
    "make_uint2", "make_uint4", "make_double2", "isnan", "isinf", "isfinite", "signbit",
    "copysign", "copysignf", "ldexp", "ldexpf", "float", "double", "int", "unsigned", "float2",
    "float3", "float4", "int2", "int3", "int4", "double2", "__builtin_inff", "__builtin_inf",
    "__builtin_huge_valf", "__builtin_huge_val", "__half2float", "__float2half",
    "__bfloat162float", "fdividef", "rhypot", "norm3df", "rnorm3df", "norm3d", "exp10",
    "exp10f", "sinpi", "sinpif", "cospi", "cospif", "erfcinv", "normcdf", "normcdff", "lgamma",
    "lgammaf", "tgamma", "tgammaf", "umin", "umax", "llabs", "labs", "__sad", "__usad",
    "__dp4a", "__fma_rn", "__dadd_rn", "__dmul_rn", "__saturatef", "make_short2", "make_short4",
    "make_ushort2", "make_uchar2", "make_uchar3", "make_uchar4", "__log2f", "__log10f",
    "__exp10f", "__tanf", "__uint2float_rn", "__int2float_rn", "__ll2float_rn",
    "__float2uint_rn", "__float2int_rz", "__double2int_rn", "__int2double_rn", "__hadd",
    "__hsub", "__hmul", "__hfma", "__hdiv", "__half22float2", "__low2float", "__high2float",
    "__bfloat1622float2", "__byte_perm", "__funnelshift_l", "__funnelshift_r", "__dsub_rn",
    "__ddiv_rn", "__dsqrt_rn", "__drcp_rn", "__hiloint2double", "__double2hiint",
    "__double2loint", "__longlong_as_double", "__double_as_longlong", "__vabsdiffu4",
    "__float22half2_rn", "__float2bfloat16", "__float2half2_rn", "__floats2half2_rn",
    "__halves2half2", "__half2half2", "__hadd2", "__hsub2", "__hmul2", "__hfma2", "__hgt2",
    "__hge2", "__hlt2", "__hle2", "__hmax", "__hmin", "__hmax2", "__hmin2", "__hneg", "__hgt",
    "__hge", "__hlt", "__hle", "__heq", "h2exp", "hexp", "lroundf", "lround", "llroundf",
    "lrintf", "lrint", "remainderf", "fdimf", "fdim", "make_char4", "make_uint3",
    "make_double3", "make_double4", "nearbyintf", "nearbyint", "rcbrtf", "rcbrt", "erfcinvf",
    "erfinvf", "erfinv", "__dadd_rz", "__fadd_rz", "__fmul_rz", "__fdiv_rz", "__frsqrt_rn",
    "__hmul_rn", "__float2ll_rn", "__float2uint_rz", "__double2int_rz", "__double2float_rn",
    "__double2ll_rn", "__uint2double_rn", "__ll2double_rn", "__ull2float_rn", "__ull2double_rn",
    "__dmul_rz", "__fma_rz", "__rhadd", "__urhadd", "__hadd_sat", "__dp2a_lo", "__dp2a_hi",
    "make_short3", "make_ushort3", "make_ushort4", "make_char2", "make_char3",
    "make_ulonglong2", "make_longlong2", "make_cuComplex", "make_cuFloatComplex",
    "make_cuDoubleComplex", "cuCrealf", "cuCimagf", "cuConjf", "cuCaddf", "cuCsubf", "cuCmulf",
    "cuCdivf", "cuCabsf", "cuCfmaf", "cuCreal", "cuCimag", "cuConj", "cuCadd", "cuCsub", "cuCmul",
    "cuCdiv", "cuCabs", "cuCfma", "cuComplexFloatToDouble", "cuComplexDoubleToFloat",
})  # fmt: skip
"""Functions of CUDA and C that give a value and do nothing else, of their arguments alone."""
BARRIERS = frozenset({"__syncthreads", "__syncthreads_count", "__syncthreads_and",
                      "__syncthreads_or", "__syncwarp"})  # fmt: skip
BLOCK_BARRIER = frozenset({"__syncthreads"})
COLLECTIVES = frozenset({
    "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync",
    "__any_sync", "__all_sync", "__activemask", "__match_any_sync", "__match_all_sync",
    "__reduce_add_sync", "__reduce_max_sync", "__reduce_min_sync", "__shfl", "__shfl_up",
    "__shfl_down", "__shfl_xor", "__ballot", "__any", "__all",
})  # fmt: skip
"""What talks to other lanes of the warp."""


def changed(node: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with `change` applied to every node from the leaves up.

    `change` gives the node itself, another one or, for a statement in a list, a tuple of several.
    Nodes below which nothing changed stay the same objects; a changed one keeps its `where`.
    """
    if isinstance(node, tuple) and not isinstance(node, s.Range):
        return _changed_items(node, change)
    names = s.field_names(type(node))
    if names is None:
        return node
    updates = {}
    for name in names:
        old = getattr(node, name)
        if (kind := type(old)) is not s.Range and (
            kind is tuple or s.field_names(kind) is not None
        ):
            new = changed(old, change)
            if new is not old:
                updates[name] = new
    return change(replace(node, **updates) if updates else node)


def _changed_items(items: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for item in items:
        new = changed(item, change)
        found += new if isinstance(new, tuple) and not isinstance(item, tuple) else (new,)
    same = len(found) == len(items) and all(a is b for a, b in zip(found, items, strict=True))
    return items if same else tuple(found)


def renamed(node: Any, names: Mapping[str, Any]) -> Any:
    """With other expressions in place of variables. Declarations of them are not touched."""

    def change(x: Any) -> Any:
        return names[x.text] if isinstance(x, s.Name) and x.text in names else x

    return changed(node, change)


def names_in(node: Any) -> set[str]:
    """Variables that stand anywhere in it, and constants that are known by their values."""
    found: set[str] = set()
    for x in s.below(node):
        if isinstance(x, s.Name):
            found.add(x.text)
        elif isinstance(x, s.Number) and x.constant:
            found.add(x.constant)
    return found


def declarations_in(node: Any) -> Iterator[s.Declare]:
    """Declarations anywhere in it, in the text's order."""
    return (x for x in s.below(node) if isinstance(x, s.Declare))


def declared_in(node: Any) -> set[str]:
    """Variables that are declared anywhere in it."""
    return {x.name for x in s.below(node) if isinstance(x, s.Declare | s.Refer)}


def targets_in(node: Any) -> Iterator[s.Expression]:
    """Places that it writes: of assignments, `++` and `--`; not those of calls."""
    for x in s.below(node):
        if isinstance(x, s.Assign | s.Step):
            yield x.target


def root_of(place: s.Expression) -> str | None:
    """The variable that a place is reached through: `a` of `a[i].x`; None for any other."""
    while True:
        match place:
            case s.Name(text):
                return text
            case s.Member(base) | s.Index(base):
                place = base
            case s.Unary("*", operand) | s.Cast(_, operand):
                place = operand
            case s.Binary("+" | "-", left):
                place = left
            case _:
                return None


def is_pointed_at(place: Any) -> bool:
    """Whether a place is reached through a pointer that a variable holds: `row.data[i]`."""
    for x in s.below(place):
        if isinstance(x, s.Index) or (isinstance(x, s.Unary) and x.operator == "*"):
            base = x.base if isinstance(x, s.Index) else x.operand
            if isinstance(base, s.Member) and base.type.endswith("*"):
                return True
    return False


def written_in(node: Any) -> set[str] | None:
    """Variables that it assigns, steps, or takes the address of, and the names that memory is
    written through; None where that cannot be told."""
    found = set()
    for place in targets_in(node):
        root = root_of(place)
        if root is None:
            return None
        found.add(root)
    for x in s.below(node):
        if isinstance(x, s.Unary) and x.operator == "&":
            root = root_of(x.operand)
            if root is None:
                return None
            found.add(root)
        elif isinstance(x, s.Refer):
            root = root_of(x.target)
            if root is None:
                return None
            found.add(root)
    return found


def _copies_group(call: s.Call) -> bool:
    return call.function == call.type and call.type.startswith("cooperative_groups::")


def is_pure(node: Any, functions: Collection[str] = ()) -> bool:
    """Whether an expression gives a value and does nothing else: it may read memory.

    `functions`: further ones that are known to be pure.
    """
    for x in s.below(node):
        if isinstance(x, s.Assign | s.Step | s.Unmodelled | s.Opaque):
            return False
        if isinstance(x, s.Call) and not (
            x.function in PURE or x.function in functions or _copies_group(x)
        ):
            return False
    return True


def reads_memory(node: Any) -> bool:
    """Whether an expression goes through a pointer or an array."""
    return any(
        isinstance(x, s.Index) or (isinstance(x, s.Unary) and x.operator == "*")
        or (isinstance(x, s.Call) and x.function == "__ldg")
        for x in s.below(node)
    )  # fmt: skip


def calls_in(node: Any) -> set[str]:
    """Functions that it calls."""
    return {x.function for x in s.below(node) if isinstance(x, s.Call)}


def is_barrier(node: Any, functions: Collection[str] = BLOCK_BARRIER) -> bool:
    """Whether a statement is a barrier and nothing else; of the block, or one of these."""
    match node:
        case s.Evaluate(s.Call(function)):
            return function in functions
    return False


def swapped(root: Any, old: Any, new: Any) -> Any:
    """The tree with one node, found by identity, in place of another; `new` may be a tuple of
    statements."""
    return changed(root, lambda x: new if x is old else x)


def statements(body: Sequence[Any]) -> Iterator[Any]:
    """Every statement of a body, outer ones first."""
    for x in s.below(tuple(body)):
        if isinstance(x, s.Statement):
            yield x


def bodies_of(statement: Any) -> tuple[tuple[Any, ...], ...]:
    """Lists of statements directly within one; not the begin of a loop."""
    match statement:
        case s.If(_, yes, no):
            return yes, no
        case s.For() | s.Do() | s.Block() | s.Switch():
            return (statement.body,)
    return ()


def lists_changed(
    body: tuple[Any, ...], change: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> tuple[Any, ...]:
    """The body with `change` applied to every list of statements in it, inner ones first, and to
    itself; a list that comes back as it is stays the same object."""

    def inside(x: Any) -> Any:
        updates = {}
        for name in ("body", "yes", "no"):
            inner = getattr(x, name, None)
            if isinstance(inner, tuple) and (new := change(inner)) is not inner:
                updates[name] = new
        return replace(x, **updates) if updates else x

    return change(changed(body, inside))


def may_write(node: Any, names: Collection[str], functions: Collection[str] = ()) -> bool:
    """Whether it may change a variable of these names, or declares one: by assignment, through a
    pointer or reference made here, or by handing it to a function that is not known.

    `functions`: those that are known to take no references.
    """
    written = written_in(node)
    if written is None or not declared_in(node).isdisjoint(names):
        return True
    for x in s.below(node):
        if isinstance(x, s.Call) and x.function not in PURE and x.function not in functions:
            written |= {root for a in x.arguments if (root := root_of(a)) is not None}
        elif isinstance(x, s.Opaque | s.Unmodelled):
            written |= names_in(x)
    return not written.isdisjoint(names)


def plain_variables(function: s.Function) -> frozenset[str]:
    """Variables and parameters that are the thread's own and reached by their names alone: no
    arrays, pointers, references or shared ones, and none whose address is taken.

    A function with statements that are not modelled has none.
    """
    if any(isinstance(x, s.Opaque) for x in s.below(function.body)):
        return frozenset()
    found = {p.name for p in function.parameters if not p.is_pointer}
    reached: set[str | None] = set()
    for x in s.below(function.body):
        match x:
            case s.Declare(pointer=False, shared=False, extents=()):
                found.add(x.name)
            case s.Refer(_, _, target) | s.Unary("&", target):
                reached.add(root_of(target))
            case s.Unmodelled():
                reached |= names_in(x)
    return frozenset(found - reached)
