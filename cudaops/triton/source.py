"""An author's Python program with Triton kernels, read by its syntax tree and never imported.

What its kernels need (the kernel module), where they are launched, and which meta-parameters stand
there as integers, so that another value can be put in their place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cudaops.errors import InputError

OPTIONS = {"num_warps": 4, "num_stages": 3}
"""Options of a launch that are tuned, with Triton's defaults. Source: `CUDAOptions` in
triton/backends/nvidia/compiler.py, Triton 3.6."""

Edit = tuple[int, int, str]
"""First and last byte of what is replaced in the author's file, and by what."""


class TritonKernel(NamedTuple):
    """A `@triton.jit` function."""

    name: str
    parameters: tuple[str, ...]
    constexpr: frozenset[str]
    """Parameters that are `tl.constexpr`."""
    defaults: Mapping[str, int]
    """Integers that parameters have where nobody gives them."""
    node: ast.FunctionDef
    autotuned: bool
    """Whether `@triton.autotune` or `@triton.heuristics` chooses its meta-parameters."""


class MetaParameterSource(NamedTuple):
    """Where a launch takes the value of a meta-parameter from."""

    value: int
    edit: tuple[int, int]
    """Bytes of the integer; empty where the launch does not name it."""
    variable: str = ""
    """Name that holds it; empty where it stands in the launch itself."""
    inserts: bool = False


class TritonLaunchSite(NamedTuple):
    """A launch `kernel[grid](...)`."""

    first_line: int
    last_line: int
    grid: str
    derived: tuple[str, ...]
    """Statements between the meta-parameters and the grid, in order."""
    places: Mapping[str, MetaParameterSource]
    end: int
    """Byte behind its last argument."""
    fixed: Mapping[str, str]
    """Meta-parameters whose value cannot be replaced here, with the reason."""


class TritonProgram:
    """One author's file."""

    def __init__(self, text: str, name: str) -> None:
        """Raises InputError where it is no Python."""
        self.text, self.name = text, name
        self.tree = parsed(text, name)
        self.kernels = {k.name: k for k in map(_kernel, self.tree.body) if k is not None}
        self._starts = [0]
        for line in text.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """First and last byte of a node, its decorators included."""
        line, column = node.lineno, node.col_offset
        for decorator in getattr(node, "decorator_list", ()):
            line, column = min(line, decorator.lineno), node.col_offset
        end_line, end = node.end_lineno or line, node.end_col_offset or 0
        return self._starts[line - 1] + column, self._starts[end_line - 1] + end

    def source(self, node: ast.expr | ast.stmt) -> str:
        """The author's own text of a node."""
        first, last = self.span(node)
        return self.text.encode()[first:last].decode()

    def module(self, kernel: str) -> str:
        """What the kernel needs, as a file of its own, decorators that tune left out.

        Raises InputError where it needs what is neither an import of Triton, a constant nor a
        kernel of this file.
        """
        wanted, parts = _reached(self, kernel), list[str]()
        for node in self.tree.body:
            if is_docstring(node) or not bound_names(node) & wanted:
                continue
            if isinstance(node, ast.FunctionDef):
                lines = [f"@{ast.unparse(d)}" for d in node.decorator_list if is_jit(d)]
                text = self.text.splitlines()[node.lineno - 1 : node.end_lineno]
                parts.append("\n".join([*lines, *text]))
            else:
                parts.append(ast.unparse(node))
        return "\n\n".join(parts) + "\n"

    def sites(self, kernel: str) -> tuple[TritonLaunchSite, ...]:
        """Every launch of a kernel."""
        found = _Launches(self.tree, kernel).found
        return tuple(_site(self, self.kernels[kernel], call, around) for call, around in found)

    def values(self, kernel: str) -> tuple[dict[str, int], dict[str, str]]:
        """Meta-parameters that stand as the same integer in every launch, and why others do not."""
        sites = self.sites(kernel)
        fixed = {name: why for site in sites for name, why in site.fixed.items()}
        values: dict[str, int] = {}
        for site in sites:
            for name, place in site.places.items():
                if values.setdefault(name, place.value) != place.value:
                    fixed[name] = f"{self.name} launches {kernel} with several values of it"
        return {n: v for n, v in values.items() if n not in fixed}, fixed

    def with_values(
        self, kernel: str, values: Mapping[str, int], more: frozenset[str] = frozenset()
    ) -> list[Edit]:
        """Edits that launch a kernel with other meta-parameters; `more`: those that the author's
        kernel has not. Raises InputError for one that does not stand in the file as an integer."""
        edits: set[Edit] = set()
        for site in self.sites(kernel):
            inserted = ""
            for name, value in sorted(values.items()):
                place = site.places.get(name)
                if name in more or (place is not None and place.inserts):
                    inserted += f", {name}={value}"
                    continue
                if place is None:
                    why = site.fixed.get(name, f"{kernel} takes no {name}")
                    raise InputError(f"{name}={value} cannot be put into {self.name}: {why}")
                if place.value != value:
                    edits.add((*place.edit, str(value)))
            if inserted:
                edits.add((site.end, site.end, inserted))
        return sorted(edits)

    def edited(self, edits: Sequence[Edit]) -> str:
        """The author's file after edits that do not overlap."""
        data = self.text.encode()
        for first, last, text in sorted(edits, reverse=True):
            data = data[:first] + text.encode() + data[last:]
        return data.decode()


def parsed(text: str, name: str) -> ast.Module:
    """The syntax tree. Raises InputError with the line where there is none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InputError(f"{name}:{line}: no Python that can be read: {error}") from None


def is_triton(text: str) -> bool:
    """Whether a Python file has a `@triton.jit` function. Syntax errors say no."""
    if "triton" not in text:
        return False
    try:
        return any(_kernel(node) is not None for node in ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError):
        return False


def is_jit(decorator: ast.expr) -> bool:
    """`@triton.jit`, `@jit`, with or without arguments."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called) in ("triton.jit", "jit")


def is_docstring(node: ast.stmt) -> bool:
    """A string that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def bound_names(node: ast.stmt) -> set[str]:
    """Names that a statement at the top of a file binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).partition(".")[0] for a in node.names}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_stored(n)}


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def loaded_names(node: ast.AST) -> set[str]:
    """Names that a node reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not _is_stored(n)}


def touches_by_memory(node: ast.FunctionDef) -> bool:
    """Whether what a kernel loads may say where it loads or stores, or how often it loops: then a
    number that was not captured may be an index out of bounds, which the interpreter does not see.
    Assumed of calls of other functions, rather than not."""
    loaded: set[str] = set()

    def follows(one: ast.AST) -> bool:
        calls = (n for n in ast.walk(one) if isinstance(n, ast.Call))
        return bool(loaded_names(one) & loaded) or any(map(_may_load, calls))

    assigns = [n for n in ast.walk(node) if isinstance(n, ast.Assign | ast.AugAssign)]
    for _ in assigns:
        for made in assigns:
            if follows(made.value):
                targets = made.targets if isinstance(made, ast.Assign) else [made.target]
                loaded |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    for one in ast.walk(node):
        if isinstance(one, ast.For | ast.While | ast.If):
            asked = one.iter if isinstance(one, ast.For) else one.test
            if follows(asked):
                return True
        if isinstance(one, ast.Call) and any(map(follows, _places(one))):
            return True
    return False


def only_equated(node: ast.FunctionDef, name: str) -> bool:
    """Whether a kernel asks of a parameter only whether it equals something, or is true: a flag, or
    the one index that is skipped. Any value of it is as good as another then."""
    asked = {
        id(one)
        for test in ast.walk(node)
        for one in (
            [test.left, *test.comparators]
            if isinstance(test, ast.Compare)
            and all(isinstance(op, ast.Eq | ast.NotEq) for op in test.ops)
            else [test.test]
            if isinstance(test, ast.If | ast.IfExp)
            else []
        )
    }
    uses = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]
    return bool(uses) and all(id(one) in asked for one in uses)


def _places(call: ast.Call) -> list[ast.expr]:
    """What of a call's arguments may say where memory is touched."""
    name = ast.unparse(call.func)
    given = [*call.args, *(k.value for k in call.keywords if k.arg != "mask")]
    if _loads(call) or _last(name) == "store":
        return [*call.args[:1], *(k.value for k in call.keywords if k.arg == "pointer")]
    computes = name.startswith("tl.") and _last(name) not in ("make_block_ptr", "advance")
    return [] if computes or _last(name) in ("to", "float", "int") else given


def _loads(call: ast.Call) -> bool:
    name = _last(ast.unparse(call.func))
    return name == "load" or name.startswith("atomic")


def _may_load(call: ast.Call) -> bool:
    """Functions of the program's own may, too."""
    name = ast.unparse(call.func)
    return _loads(call) or ("." not in name and name not in ("range", "min", "max", "int", "float"))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _kernel(node: ast.stmt) -> TritonKernel | None:
    if not isinstance(node, ast.FunctionDef) or not any(map(is_jit, node.decorator_list)):
        return None
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    given = [*node.args.posonlyargs, *node.args.args]
    pairs = [
        *zip(reversed(given), reversed(node.args.defaults), strict=False),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    return TritonKernel(
        node.name,
        tuple(a.arg for a in arguments),
        frozenset(
            a.arg
            for a in arguments
            if a.annotation is not None and "constexpr" in ast.unparse(a.annotation)
        ),
        {a.arg: value for a, d in pairs if (value := integer(d)) is not None},
        node,
        autotuned=not all(map(is_jit, node.decorator_list)),
    )


def integer(node: ast.AST | None) -> int | None:
    """The value of an integer literal; None of anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None


def _reached(program: TritonProgram, kernel: str) -> set[str]:
    """Names at the top of the file that a kernel needs, directly or by others."""
    binding = {name: node for node in program.tree.body for name in bound_names(node)}
    wanted, left = {kernel}, [kernel]
    while left:
        node = binding[left.pop()]
        if isinstance(node, ast.FunctionDef):
            if _kernel(node) is None:
                raise InputError(
                    f"{program.name}:{node.lineno}: {kernel} needs {node.name}, which is no "
                    "@triton.jit function"
                )
            inside = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
            needs = (loaded_names(node) - inside - bound_inside(node)) & binding.keys()
            tuning = [d for d in node.decorator_list if not is_jit(d)]
            body = set[str]().union(*map(loaded_names, [*node.body, node.args]))
            needs -= set[str]().union(*map(loaded_names, tuning)) - body
        else:
            needs = loaded_names(node) & binding.keys()
        left += needs - wanted
        wanted |= needs
    return wanted


def bound_inside(node: ast.FunctionDef) -> set[str]:
    """Names that a function's body assigns."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_stored(n)}


Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


class _Launches(ast.NodeVisitor):
    """Launches of one kernel with the scopes around each, the innermost last."""

    def __init__(self, tree: ast.Module, kernel: str) -> None:
        self.kernel = kernel
        self.found: list[tuple[ast.Call, tuple[Scope, ...]]] = []
        self._around: tuple[Scope, ...] = (tree,)
        self.visit(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self._around = self._around, (*self._around, node)
        self.generic_visit(node)
        self._around = outer

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Subscript) and ast.unparse(called.value) == self.kernel:
            self.found.append((node, self._around))
        self.generic_visit(node)


def _site(
    program: TritonProgram, kernel: TritonKernel, call: ast.Call, around: tuple[Scope, ...]
) -> TritonLaunchSite:
    assert isinstance(call.func, ast.Subscript)
    grid, scope = call.func.slice, around[-1]
    given = dict(zip(kernel.parameters, call.args, strict=False))
    given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
    starred = any(k.arg is None for k in call.keywords)
    starred |= any(isinstance(a, ast.Starred) for a in call.args)
    places, fixed = dict[str, MetaParameterSource](), dict[str, str]()
    written = program.text.encode()[: program.span(call)[1] - 1].rstrip()
    end = len(written) - written.endswith(b",")
    for name in sorted(kernel.constexpr | OPTIONS.keys()):
        where = f"line {call.lineno}"
        if kernel.autotuned:
            fixed[name] = f"the decorators of {kernel.name} choose it"
        elif starred:
            fixed[name] = f"{where} launches with * or **"
        elif name not in given:
            value = kernel.defaults.get(name, OPTIONS.get(name))
            if value is not None:
                places[name] = MetaParameterSource(value, (end, end), inserts=True)
        else:
            found = _place(program, given[name], grid, around)
            if isinstance(found, str):
                fixed[name] = f"{where}: {found}"
            else:
                places[name] = found
    variables = {p.variable for p in places.values() if p.variable}
    derived = _derived(scope, variables)
    why = _other_use(program, kernel, around, variables, derived)
    if why:
        fixed |= {name: why for name, p in places.items() if p.variable}
        places = {name: p for name, p in places.items() if not p.variable}
    return TritonLaunchSite(
        call.lineno,
        call.end_lineno or call.lineno,
        ast.unparse(grid),
        tuple(ast.unparse(node) for node in derived),
        places,
        end,
        fixed,
    )


def _place(
    program: TritonProgram, value: ast.expr, grid: ast.expr, around: tuple[Scope, ...]
) -> MetaParameterSource | str:
    """Where the value of an argument stands as an integer, or why it does not."""
    if (number := integer(value)) is not None:
        if any(integer(n) == number for n in ast.walk(grid)):
            return f"{number} stands in the grid as a number too"
        return MetaParameterSource(number, program.span(value))
    if not isinstance(value, ast.Name):
        return f"{ast.unparse(value)} is not an integer"
    for scope in reversed(around):
        bindings = [b for b in _own(scope) if _binds(b, value.id)]
        if not bindings:
            continue
        only = bindings[0]
        number = integer(only.value) if isinstance(only, ast.Assign) else None
        if len(bindings) > 1 or not isinstance(only, ast.Assign) or number is None:
            return f"{value.id} is not set once, to an integer"
        return MetaParameterSource(number, program.span(only.value), value.id)
    return f"{value.id} is set nowhere in this file"


def _own(scope: Scope) -> Iterator[ast.AST]:
    """Everything in a scope, not what is inside of functions in it."""
    left: list[ast.AST] = list(scope.body)
    if not isinstance(scope, ast.Module):
        left.append(scope.args)
    while left:
        node = left.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            left += list(ast.iter_child_nodes(node))


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(name in bound_names(ast.Expr(target)) for target in node.targets)
    if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr):
        return name in bound_names(ast.Expr(node.target))
    if isinstance(node, ast.With | ast.Import | ast.ImportFrom):
        return name in bound_names(node)
    return isinstance(node, ast.arg) and node.arg == name


def _derived(scope: Scope, variables: set[str]) -> list[ast.stmt]:
    """Statements of the launching function that make something of the variables, in order."""
    known, found = set(variables), list[ast.stmt]()
    for node in sorted(
        (n for n in _own(scope) if isinstance(n, ast.Assign | ast.FunctionDef)),
        key=lambda n: n.lineno,
    ):
        named = isinstance(node, ast.FunctionDef) and _kernel(node) is None
        simple = isinstance(node, ast.Assign) and all(
            isinstance(t, ast.Name | ast.Tuple) for t in node.targets
        )
        if (named or simple) and loaded_names(node) & known:
            found.append(node)
            known |= bound_names(node)
    return found


def _other_use(
    program: TritonProgram,
    kernel: TritonKernel,
    around: tuple[Scope, ...],
    variables: set[str],
    derived: Sequence[ast.stmt],
) -> str:
    """Why the variables may not change: where they are used for more than launches and grids."""
    made = [name for node in derived for name in bound_names(node)]
    if len(made) != len(set(made)):
        return "what is made of it for the grid is set more than once"
    in_grid = {id(n) for statement in derived for n in ast.walk(statement)}
    as_meta = set[int]()
    for call, _ in _Launches(program.tree, kernel.name).found:
        assert isinstance(call.func, ast.Subscript)
        in_grid |= {id(n) for n in ast.walk(call.func)}
        given = zip(kernel.parameters, call.args, strict=False)
        named = ((k.arg, k.value) for k in call.keywords)
        metas = kernel.constexpr | OPTIONS.keys()
        as_meta |= {id(value) for name, value in (*given, *named) if name in metas}
    whole = program.tree
    inner = around[1] if len(around) > 1 else whole
    own = {n.id for n in ast.walk(inner) if isinstance(n, ast.Name) and _is_stored(n)}
    for place, names in ((inner, {*variables, *made}), (whole, variables - own)):
        for node in ast.walk(place):
            if not isinstance(node, ast.Name) or _is_stored(node) or node.id not in names:
                continue
            if id(node) not in in_grid and not (node.id in variables and id(node) in as_meta):
                return f"line {node.lineno} uses {node.id} for more than launch and grid"
    return ""
