"""What functions of CUDA and of C do, by their names."""

import re

LOADS = frozenset({"__ldg", "__ldca", "__ldcg", "__ldcs", "__ldcv", "__ldlu"})
STORES = frozenset({"__stwb", "__stcg", "__stcs", "__stwt"})
ATOMICS = frozenset(
    f"atomic{name}{scope}"
    for name in ("Add", "Sub", "Exch", "Min", "Max", "Inc", "Dec", "CAS", "And", "Or", "Xor")
    for scope in ("", "_block", "_system")
)
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
FENCES = frozenset({"__threadfence", "__threadfence_block", "__threadfence_system"})
ORDERING = BARRIERS | FENCES | {"sync"}
"""What orders what is before it and behind it."""
LANE_STARTS = (
    "__shfl",
    "__ballot",
    "__any",
    "__all",
    "__activemask",
    "__reduce",
    "__match",
    "shfl",
)
_QUIET = frozenset({
    "sync", "thread_rank", "num_threads", "size", "thread_index", "group_index", "meta_group_rank",
    "meta_group_size", "__nanosleep", "clock", "clock64", "__isShared", "__isGlobal",
})  # fmt: skip
EFFECTS = frozenset({"printf", "assert", "__assert_fail", "__trap", "malloc", "free", "memcpy"})
TEXTURES = frozenset(
    f"tex{shape}" for shape in (
        "1Dfetch", "1D", "2D", "3D", "1DLod", "2DLod", "3DLod", "1DGrad", "2DGrad", "3DGrad",
        "1DLayered", "2DLayered", "1DLayeredLod", "2DLayeredLod", "2Dgather", "Cubemap",
        "CubemapLod", "CubemapLayered",
    )
)  # fmt: skip
"""Reads of a texture that give its element. What the kernel itself stores behind one it may not
read: CUDA gives no value for that. The overloads that store the element through a pointer are not
among them (`clang_bodies`)."""
PURE = TEXTURES | frozenset({
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
"""Functions of CUDA and C that give a value and do nothing else, of their arguments and of what
memory holds there."""
MEMORY_READS = TEXTURES | {"__ldg"}
"""Of these, the ones that read memory."""
_INTRINSIC = re.compile(
    r"__(h|half|float|double|int|uint|ll|ull|short|ushort|low|high|lows|highs|dadd|dmul|dsub|dfma"
    r"|drcp|dsqrt|ddiv|bfloat|byte|dp2a|dp4a|funnelshift|v)\w*|make_\w+"
    r"|__[fd](add|sub|mul|div|fma|rcp|sqrt|max|min|eq|ne|lt|le|gt|ge)\w*|h(exp|log|sqrt|rsqrt|sin"
    r"|cos|rcp|exp2|log2|floor|ceil|rint|trunc)2?|__saturatef|l?l(round|rint)f?|nearbyintf?|__?half2?|__nv_\w+"
    r"|half2?|operator ?(float|half|double|int|bool|[-+*/<>]|[<>=!]=)"
)
"""Functions of CUDA's headers that give a value and do nothing else."""
_PURE = frozenset({
    "abs", "labs", "llabs", "min", "max", "umin", "umax", "fmin", "fmax", "fminf", "fmaxf",
    "fma", "fmaf", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "pow",
    "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh",
    "cosh", "tanh", "erf", "erfc", "tgamma", "lgamma", "floor", "ceil", "round", "trunc",
    "rint", "nearbyint", "fabs", "fmod", "remainder", "hypot", "copysign", "ldexp", "frexp",
    "isnan", "isinf", "isfinite", "signbit", "sincos", "saturate", "norm3d", "rnorm3d", "popc",
    "clz", "ffs", "brev", "mul24", "umul24", "dp4a",
})  # fmt: skip
_PURE_STARTS = (
    "__", "make_", "half", "float", "double", "int", "uint", "cuC", "operator", "std::",
    "__nv_bfloat16", "real", "imag",
)  # fmt: skip


def is_pure(name: str) -> bool:
    """Whether a function of CUDA's or C's leaves everything but its result alone."""
    if name in TEXTURES or name.startswith(_PURE_STARTS):
        return True
    return not _PURE.isdisjoint((name, name.rstrip("fl")))


def leaves_memory(name: str) -> bool:
    """Whether memory holds what it held behind a call of CUDA's or C's function, but for what it is
    given the address of."""
    acts = ORDERING | STORES | ATOMICS | EFFECTS
    return name not in acts and not name.startswith(LANE_STARTS) and is_pure(name)


def gives_value(name: str) -> bool:
    """Whether a function of CUDA's headers gives a value and does nothing else; `is_pure` knows
    more names, and less of them."""
    return name in PURE or _INTRINSIC.fullmatch(name) is not None


def leaves_names(name: str) -> bool:
    """Whether a function of CUDA's or C's takes all its arguments by value: what it changes, it
    is given the address of."""
    known = BARRIERS | COLLECTIVES | FENCES | LOADS | EFFECTS | _QUIET
    return gives_value(name) or name in known or name.startswith((*LANE_STARTS, "atomic"))
