"""What a rewrite of a Triton kernel may hold, decided by its syntax tree before anything runs.

Imports of Triton, constants, and `@triton.jit` functions that name nothing but each other, the
constants, their own variables and a list of Triton's functions. In Triton's interpreter a kernel's
body is Python that runs: an attribute that is not listed could lead anywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cudaops.triton.source import (
    OPTIONS,
    TritonKernel,
    TritonProgram,
    bound_names,
    integer,
    is_docstring,
    is_jit,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TL = _words("""
abs advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas
atomic_max atomic_min atomic_or atomic_xchg atomic_xor bfloat16 bitonic_merge block_type broadcast
broadcast_to cast cat cdiv ceil clamp condition const constexpr cos cumprod cumsum debug_barrier
div_rn dot dot_scaled dtype erf exp exp2 expand_dims fdiv flip float16 float32 float64 float8e4b15
float8e4nv float8e5 floor fma full gather histogram int1 int16 int32 int64 int8 interleave join
load log log2 make_block_ptr make_tensor_descriptor max max_constancy max_contiguous maximum min
minimum multiple_of num_programs permute philox pointer_type program_id rand randint randn range
ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn static_assert
static_range store sum swizzle2d tensor topk trans uint16 uint32 uint64 uint8 umulhi view void
where xor_sum zeros zeros_like
""")
"""Names of `triton.language`. Source: its `__all__` in Triton 3.6, without inline assembly, calls
of foreign functions, prints, asserts of the device and submodules."""
MATH = _words("""
abs acos acosh asin asinh atan atan2 atanh ceil clamp cos cosh div_rn erf erfc exp exp2 expm1 fdiv
floor fma inf log log10 log1p log2 max min nan pi pow rsqrt sigmoid sin sinh sqrt sqrt_rn tan tanh
trunc umulhi
""")
"""Names of `tl.math`, `libdevice` and Python's `math`."""
VALUES = _words("""
T abs advance broadcast_to cast dtype element_ty expand_dims item load max min numel permute
primitive_bitwidth reshape shape store sum to trans type view
""")
"""Attributes of values in a kernel. Source: `tl.tensor` in Triton 3.6."""
BUILTINS = _words("abs bool float int len max min range tuple")
MODULES = {
    "triton": "triton", "triton.language": "tl", "math": "math", "triton.language.math": "math",
    "triton.language.extra.libdevice": "math", "triton.language.extra.cuda.libdevice": "math",
}  # fmt: skip
"""What may be imported, and which list its names are of."""
TRITON = frozenset(("jit", "cdiv", "next_power_of_2", "language"))
_NAMES = {"triton": TRITON, "tl": TL, "math": MATH}
_REFUSED = (
    ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Try, ast.With, ast.ClassDef,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom,
    ast.Delete, ast.Raise, ast.JoinedStr, ast.NamedExpr, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.Dict, ast.Set, ast.Match, ast.AsyncFor, ast.AsyncWith,
)  # fmt: skip


def why_refused(text: str, name: str, author: TritonProgram, kernel: TritonKernel) -> list[str]:
    """What of a rewrite may not be, a line each with its place; empty where all may.

    Raises InputError where it is no Python.
    """
    found = _Rewrite(TritonProgram(text, name), author, kernel)
    return [*found.problems()]


class _Rewrite:
    def __init__(self, rewrite: TritonProgram, author: TritonProgram, kernel: TritonKernel) -> None:
        self.rewrite, self.author, self.kernel = rewrite, author, kernel
        self.modules: dict[str, str] = {}
        self.functions: set[str] = set()
        self.constants: set[str] = set()

    def problems(self) -> Iterator[str]:
        for node in self.rewrite.tree.body:
            if (why := self._top(node)) is not None:
                yield f"{self.rewrite.name}:{node.lineno}: {why}"
        for one in self.rewrite.kernels.values():
            for line, why in self._inside(one.node):
                yield f"{self.rewrite.name}:{line}: {why}"
        yield from self._launchable()

    def _top(self, node: ast.stmt) -> str | None:
        """Why a statement at the top of the file may not be there."""
        taken = bound_names(node) & {*self.modules, *self.functions, *self.constants}
        taken -= self.modules.keys() if isinstance(node, ast.Import | ast.ImportFrom) else set()
        if taken:
            return f"{min(taken)} is bound twice"
        if is_docstring(node):
            return None
        if isinstance(node, ast.Import):
            return self._import(node)
        if isinstance(node, ast.ImportFrom):
            return self._import_from(node)
        if isinstance(node, ast.FunctionDef):
            self.functions.add(node.name)
            if node.name in (*MODULES, "tl", "jit", *BUILTINS):
                return f"a function may not be called {node.name}"
            if len(node.decorator_list) == 1 and is_jit(node.decorator_list[0]):
                return _signature(node)
            return f"{node.name} is no @triton.jit function; a rewrite has no host code"
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if targets and value is not None and all(isinstance(t, ast.Name) for t in targets):
            self.constants |= bound_names(node)
            if _is_literal(value):
                return None
        return (
            "a rewrite holds imports of triton, constants and @triton.jit functions, not "
            f"`{ast.unparse(node).splitlines()[0][:60]}`"
        )

    def _import(self, node: ast.Import) -> str | None:
        for alias in node.names:
            if alias.name not in MODULES:
                return f"a rewrite may not import {alias.name}"
            if alias.asname is None and alias.name not in ("triton", "math", "triton.language"):
                return f"import {alias.name} under a name of its own: `import ... as libdevice`"
            own = alias.asname or alias.name.partition(".")[0]
            self.modules[own] = MODULES[alias.name if alias.asname else own]
        return None

    def _import_from(self, node: ast.ImportFrom) -> str | None:
        if node.module == "__future__":
            return None
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            if whole == "triton.jit" and alias.asname is None:
                continue
            if whole not in MODULES or node.level:
                return f"a rewrite may not import {alias.name} from {node.module}"
            self.modules[alias.asname or alias.name] = MODULES[whole]
        return None

    def _inside(self, function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
        """What a kernel's body may not hold."""
        own = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
        own |= {n for s in function.body for n in bound_names(ast.If(ast.Constant(1), [s], []))}
        if clash := own & {*self.modules, *self.functions, *BUILTINS}:
            yield function.lineno, f"{min(clash)} is bound in {function.name}"
        roots = set[int]()
        for node in (n for s in function.body for n in ast.walk(s)):
            if isinstance(node, _REFUSED):
                yield node.lineno, f"{type(node).__name__} in a kernel"
            elif isinstance(node, ast.Attribute) and (why := self._attribute(node, roots)):
                yield node.lineno, why
        known = own | self.functions | self.constants | BUILTINS
        for node in (n for s in function.body for n in ast.walk(s)):
            if isinstance(node, ast.Name) and node.id not in known and id(node) not in roots:
                yield node.lineno, f"{node.id} is no constant, kernel or variable of the rewrite"

    def _attribute(self, node: ast.Attribute, roots: set[int]) -> str | None:
        """Why an attribute may not be read; notes the names of modules that it stands on."""
        base = node.value
        if not isinstance(node.ctx, ast.Load):
            return f"{ast.unparse(node)} is changed"
        if isinstance(base, ast.Name) and base.id in self.modules:
            roots.add(id(base))
            of = self.modules[base.id]
            allowed = _NAMES[of] | ({"math"} if of == "tl" else set())
            return None if node.attr in allowed else f"{ast.unparse(node)} may not be used"
        if isinstance(base, ast.Attribute) and base.attr in ("language", "math"):
            root = base.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in self.modules:
                allowed = MATH if base.attr == "math" else TL | {"math"}
                return None if node.attr in allowed else f"{ast.unparse(node)} may not be used"
        return None if node.attr in VALUES else f".{node.attr} may not be used"

    def _launchable(self) -> Iterator[str]:
        """Whether it can be launched in the author's place."""
        name, file = self.kernel.name, self.rewrite.name
        mine = self.rewrite.kernels.get(name)
        if mine is None:
            yield f"{file}:1: there is no @triton.jit function {name}"
            return
        tensors = [p for p in self.kernel.parameters if p not in self.kernel.constexpr]
        given = [p for p in mine.parameters if p not in mine.constexpr]
        if sorted(tensors) != sorted(given):
            yield (
                f"{file}:{mine.node.lineno}: {name} takes {', '.join(given)}; the author's takes "
                f"{', '.join(tensors)} beside its constexpr parameters"
            )
        for node, clash in added(self.rewrite, self.author, self.kernel):
            if clash:
                theirs = f"{clash} is a name of {self.author.name} too"
                yield f"{file}:{node.lineno}: {theirs}; call it something else"


def added(
    rewrite: TritonProgram, author: TritonProgram, kernel: TritonKernel
) -> list[tuple[ast.stmt, str]]:
    """Statements of a rewrite that the author's file has not, in order, without the values of
    meta-parameters; each with the author's name that it would replace, empty where it may be."""
    mine = rewrite.kernels[kernel.name]
    metas = {*kernel.constexpr, *mine.constexpr, *OPTIONS}
    known = {ast.dump(node) for node in author.tree.body}
    imported = {pair for node in author.tree.body for pair in _imported(node)}
    names = {n for node in author.tree.body for n in bound_names(node)} - {kernel.name}
    found = list[tuple[ast.stmt, str]]()
    for node in rewrite.tree.body:
        binds = bound_names(node)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        own_values = isinstance(node, ast.Assign) and binds <= metas
        imports = set(_imported(node))
        if is_docstring(node) or future or own_values or (imports and imports <= imported):
            continue
        if ast.dump(node) not in known:
            found.append((node, min(binds & names, default="")))
    return found


def _imported(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Name and what it stands for, of an import."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            own = alias.asname or alias.name.partition(".")[0]
            yield own, alias.name if alias.asname else own
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def spliced(rewrite: TritonProgram, author: TritonProgram, kernel: TritonKernel) -> str:
    """The author's file with a rewrite in it that `why_refused` has nothing against.

    Raises InputError where a value that it sets does not stand in the file as an integer.
    """
    first, last = author.span(kernel.node)
    more = [node for node, _ in added(rewrite, author, kernel)]
    parts = []
    if not any(kernel.name in bound_names(node) for node in more):
        more.append(rewrite.kernels[kernel.name].node)  # the author's: values alone are others
    for node in more:
        text = rewrite.source(node)
        if kernel.autotuned and isinstance(node, ast.FunctionDef) and node.name == kernel.name:
            tuning = [f"@{author.source(d)}" for d in kernel.node.decorator_list if not is_jit(d)]
            text = "\n".join([*tuning, text])
        parts.append(text)
    edits = author.with_values(kernel.name, values_set(rewrite, kernel), _more(rewrite, kernel))
    return author.edited([*edits, (first, last, "\n\n\n".join(parts))])


def _more(rewrite: TritonProgram, kernel: TritonKernel) -> frozenset[str]:
    """Meta-parameters that the rewrite's kernel takes and the author's does not."""
    return rewrite.kernels[kernel.name].constexpr - kernel.constexpr


def _signature(node: ast.FunctionDef) -> str | None:
    """Why a signature may not be: what stands in it is evaluated when the file is loaded."""
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs or arguments.kwonlyargs:
        return f"{node.name} takes parameters that are not plain"
    if any(not _is_literal(d) for d in arguments.defaults):
        return f"{node.name} has a default that is no literal"
    annotations = [*(a.annotation for a in arguments.args), node.returns]
    plain = ("tl.constexpr", "triton.language.constexpr", "constexpr")
    if any(a is not None and ast.unparse(a) not in plain for a in annotations):
        return f"{node.name} has an annotation that is not tl.constexpr"
    (decorator,) = node.decorator_list
    if isinstance(decorator, ast.Call):
        words = [k for k in decorator.keywords if k.arg in ("noinline", "do_not_specialize")]
        if decorator.args or len(words) != len(decorator.keywords):
            return f"{node.name} has options of triton.jit beside noinline"
        if not all(_is_literal(k.value) for k in words):
            return f"{node.name} has an option that is no literal"
    return None


def _is_literal(node: ast.AST) -> bool:
    """A number, a string, a tuple of them, or one in `tl.constexpr(...)`."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_literal(node.operand)
    if isinstance(node, ast.Tuple):
        return all(map(_is_literal, node.elts))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.constexpr":
        return len(node.args) == 1 and not node.keywords and _is_literal(node.args[0])
    return False


def values_set(rewrite: TritonProgram, kernel: TritonKernel) -> dict[str, int]:
    """Meta-parameters that a rewrite sets: integer constants with their names, and defaults of
    constexpr parameters that the author's kernel does not take."""
    mine = rewrite.kernels[kernel.name]
    metas = {*kernel.constexpr, *mine.constexpr, *OPTIONS}
    found = {n: v for n, v in mine.defaults.items() if n in mine.constexpr - kernel.constexpr}
    for node in rewrite.tree.body:
        value = integer(node.value) if isinstance(node, ast.Assign) else None
        if value is not None:
            found |= {n: value for n in bound_names(node) if n in metas}
    return found
