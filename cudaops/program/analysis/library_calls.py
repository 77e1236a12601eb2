"""What functions of CUDA and of C do, by their names."""

LOADS = frozenset({"__ldg", "__ldca", "__ldcg", "__ldcs", "__ldcv", "__ldlu"})
STORES = frozenset({"__stwb", "__stcg", "__stcs", "__stwt"})
ATOMICS = frozenset(
    f"atomic{name}{scope}"
    for name in ("Add", "Sub", "Exch", "Min", "Max", "Inc", "Dec", "CAS", "And", "Or", "Xor")
    for scope in ("", "_block", "_system")
)
BARRIERS = frozenset({
    "__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or", "__syncwarp",
    "__threadfence", "__threadfence_block", "__threadfence_system", "sync",
})  # fmt: skip
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
EFFECTS = frozenset({"printf", "assert", "__assert_fail", "__trap", "malloc", "free", "memcpy"})
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
    return not _PURE.isdisjoint((name, name.rstrip("fl"))) or name.startswith(_PURE_STARTS)


def leaves_memory(name: str) -> bool:
    """Whether memory holds what it held behind a call of CUDA's or C's function, but for what it is
    given the address of."""
    acts = BARRIERS | STORES | ATOMICS | EFFECTS
    return name not in acts and not name.startswith(LANE_STARTS) and is_pure(name)
