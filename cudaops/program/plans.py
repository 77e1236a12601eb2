"""Launch plans: from directives to numbers for one workload."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cudaops.domain.base import Dim3
from cudaops.domain.program import Kernel
from cudaops.domain.rewrite import (
    BufferValue,
    LaunchPlan,
    LaunchStep,
    NullValue,
    NumberValue,
    PlacedPointer,
    RawValue,
    ResolvedLaunch,
    ResolvedPlan,
    Rewrite,
    Scratch,
    Tune,
    Value,
)
from cudaops.domain.workload import (
    ELEMENT_BYTES,
    Argument,
    NullArgument,
    OpaqueArgument,
    PointerArgument,
    ScalarArgument,
    Workload,
)
from cudaops.errors import PlanError
from cudaops.program.clusters import kernel_clusters, unfit
from cudaops.program.constants import integer_constants
from cudaops.program.device_text import KernelSignature, kernel_signatures
from cudaops.program.directives import Directives, LaunchDirective, read_directives, unknown_name
from cudaops.program.expressions import (
    Expression,
    ExpressionValue,
    NullPointer,
    OpaqueValue,
    PointerValue,
)
from cudaops.program.grammar import SIZES
from cudaops.program.instances import plain_name
from cudaops.program.serving import own_names, template_values

MAX_SMEM_BYTES = 227 * 1024
"""Dynamic shared memory of one block, opt-in. Source: CUDA C++ Programming Guide, compute
capability 9.0, the largest of all; smaller devices refuse on their own."""
MAX_SCRATCH_BYTES = 8 * 2**30
"""All scratch buffers together."""
MAX_THREADS = 1024
GRID_MOST = (2**31 - 1, 65_535, 65_535)
BLOCK_MOST = (1024, 1024, 64)
"""Of one block, and of grid and block along x, y, z. Source: CUDA C++ Programming Guide, compute
capabilities."""

Environment = dict[str, ExpressionValue]


def parse_plan(source: str) -> LaunchPlan:
    """The plan that a rewrite's directives spell. Raises PlanError with line and column."""
    found = read_directives(source)
    if not found.launches:
        raise PlanError("no `// @launch kernel grid=(..) block=(..) args=(..)` directive", 1, 1)
    signatures = kernel_signatures(source)
    for launch in found.launches:
        _check_launch(launch, signatures)
    _check_tune_names(found, signatures)
    return LaunchPlan(
        launches=tuple(_step(launch) for launch in found.launches),
        scratch=tuple(Scratch(name=s.name.text, size_bytes=s.size.text) for s in found.scratch),
        tune=tuple(Tune(name=t.name.text, values=t.values) for t in found.tune),
        requires=tuple(r.text for r in found.requires),
    )


def make_rewrite(source: str, proposer: str, title: str, why: str) -> Rewrite:
    """A Rewrite from its text. Raises PlanError where a directive is wrong."""
    return Rewrite(source=source, plan=parse_plan(source), proposer=proposer, title=title, why=why)


def resolve(rewrite: Rewrite, kernel: Kernel, workload: Workload) -> ResolvedPlan:
    """Evaluate a rewrite's plan for one workload of the baseline `kernel`.

    Where a `@requires` does not hold the plan is not applicable and holds the baseline's launch.
    Raises PlanError for an unknown name or a value no device takes.
    """
    found = read_directives(rewrite.source)
    env = environment(rewrite, kernel, workload)
    _check_names(found, env)
    for condition in found.requires:
        if not _integer(condition, env):
            baseline = baseline_plan(workload)
            return baseline.model_copy(update={"applicable": False, "unmet": condition.text})
    return _resolved_plan(found, env, kernel_clusters(rewrite.source, rewrite.values()))


def resolve_in(source: str, env: Mapping[str, ExpressionValue]) -> ResolvedPlan:
    """The launches of a text on their own, with these names and the integers that it defines.
    Raises PlanError as `parse_plan` and `resolve` do."""
    plan = parse_plan(source)
    found = read_directives(source)
    known = {**integer_constants(source, {}), **env, "nullptr": NullPointer()}
    known |= {s.name.text: PointerValue(scratch=s.name.text) for s in found.scratch}
    _check_names(found, known)
    tuned = {t.name: t.values[0] for t in plan.tune}
    return _resolved_plan(found, known, kernel_clusters(source, tuned))


def _resolved_plan(
    found: Directives, env: Environment, clusters: Mapping[str, Dim3]
) -> ResolvedPlan:
    scratch = {
        s.name.text: _in_range(s.size, env, 1, MAX_SCRATCH_BYTES, "scratch size")
        for s in found.scratch
    }
    if sum(scratch.values()) > MAX_SCRATCH_BYTES:
        found.scratch[0].name.fail("scratch buffers exceed 8 GiB together")
    launches = tuple(
        _resolved(i, launch, env, clusters.get(plain_name(launch.callee.text)))
        for i, launch in enumerate(found.launches)
    )
    return ResolvedPlan(launches=launches, scratch_bytes=scratch)


def baseline_plan(workload: Workload) -> ResolvedPlan:
    """The launch that was captured, as a plan."""
    launch = ResolvedLaunch(
        step=0,
        grid=workload.grid,
        block=workload.block,
        dynamic_smem_bytes=workload.dynamic_smem_bytes,
        values=tuple(captured_value(a) for a in workload.arguments),
    )
    return ResolvedPlan(launches=(launch,))


def instance(rewrite: Rewrite, step: LaunchStep, bound: Mapping[str, str] | None = None) -> str:
    """The launched kernel with tune names and constants in its template arguments as numbers.

    `tile_matmul<TILE>` becomes `tile_matmul<32>`, which means the same where the macros are gone.
    `bound`: what the author's template parameters are (`instances.bound_arguments`); without it
    their names stay, for code in which they mean something.
    """
    constants = integer_constants(rewrite.source, rewrite.values())
    hidden = own_names(rewrite) if bound else frozenset()
    authors = {name: argument for name, argument in (bound or {}).items() if name not in hidden}
    known: dict[str, int | str] = {**authors, **constants, **rewrite.values()}
    name, bracket, arguments = step.kernel.partition("<")
    return (
        name.strip()
        + bracket
        + re.sub(r"[A-Za-z_]\w*", lambda m: str(known.get(m.group(), m.group())), arguments)
    )


def environment(rewrite: Rewrite, kernel: Kernel, workload: Workload) -> Environment:
    """Every name a plan may use on this workload, with its value."""
    sizes = {p.name: pointee_bytes(p.type_text) for p in kernel.parameters}
    env: Environment = dict(template_values(rewrite, kernel, workload.callee))
    env |= integer_constants(rewrite.source, rewrite.values())
    env |= {s.name: PointerValue(scratch=s.name) for s in rewrite.plan.scratch}
    env |= rewrite.values()
    env |= {a.name: _argument(a, sizes.get(a.name)) for a in workload.arguments}
    env |= {name: value for name, (_, value) in workload.numbers().items()}
    for root, extent in (("gridDim", workload.grid), ("blockDim", workload.block)):
        env |= {f"{root}.x": extent.x, f"{root}.y": extent.y, f"{root}.z": extent.z}
    return env | {"smem": workload.dynamic_smem_bytes, "nullptr": NullPointer()}


def _step(launch: LaunchDirective) -> LaunchStep:
    return LaunchStep(
        kernel=launch.callee.text,
        grid=tuple(e.text for e in launch.grid),
        block=tuple(e.text for e in launch.block),
        smem=launch.smem.text,
        args=tuple(e.text for e in launch.args),
        line=launch.line,
    )


def _check_launch(launch: LaunchDirective, signatures: Mapping[str, KernelSignature]) -> None:
    name = plain_name(launch.callee.text)
    signature = signatures.get(name)
    if signature is None:
        if signatures:
            launch.callee.fail(unknown_name(name, signatures).replace("name", "kernel", 1))
        launch.callee.fail(f"the text defines no kernel `{name}`")
    if len(launch.args) not in signature.counts:
        wanted = " or ".join(str(c) for c in sorted(signature.counts))
        launch.callee.fail(f"`{name}` takes {wanted} arguments, `args=` has {len(launch.args)}")


def _check_tune_names(found: Directives, signatures: Mapping[str, KernelSignature]) -> None:
    """A tune name is a macro: as a template parameter of the text it would be a number."""
    for name, signature in signatures.items():
        for tuned in found.tune:
            if tuned.name.text in signature.template_parameters:
                tuned.name.fail(
                    f"`{tuned.name.text}` is also a template parameter of `{name}`, where it would "
                    "be replaced by its value; call one of them otherwise"
                )


def _all_expressions(found: Directives) -> list[Expression]:
    listed = [*found.requires, *(s.size for s in found.scratch)]
    for launch in found.launches:
        listed += [*launch.grid, *launch.block, launch.smem, *launch.args]
    return listed


def _check_names(found: Directives, env: Mapping[str, ExpressionValue]) -> None:
    for expression in _all_expressions(found):
        for name, column in expression.name_columns().items():
            if name not in env:
                raise PlanError(unknown_name(name, env), expression.line, column)


def _integer(expression: Expression, env: Environment) -> int:
    value = expression.evaluate(env)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int):
        raise PlanError(
            f"`{expression.text}` is {_spelled(value)}, not an integer",
            expression.line,
            expression.column,
        )
    return value


def _spelled(value: ExpressionValue) -> str:
    return str(value) if isinstance(value, float) else "a pointer or a structure"


def _in_range(expression: Expression, env: Environment, least: int, most: int, what: str) -> int:
    value = _integer(expression, env)
    if not least <= value <= most:
        raise PlanError(
            f"{what} `{expression.text}` is {value}; it must be {least} to {most}",
            expression.line, expression.column,
        )  # fmt: skip
    return value


def _resolved(
    step: int, launch: LaunchDirective, env: Environment, cluster: Dim3 | None
) -> ResolvedLaunch:
    grid = _dim3(launch.grid, env, GRID_MOST, "grid")
    block = _dim3(launch.block, env, BLOCK_MOST, "block")
    if block.volume > MAX_THREADS:
        launch.callee.fail(
            f"block {block} has {block.volume} threads; a device takes {MAX_THREADS}"
        )
    if cluster is not None and (why := unfit(grid, cluster)):
        launch.callee.fail(f"{why} that `{plain_name(launch.callee.text)}` has")
    return ResolvedLaunch(
        step=step,
        grid=grid,
        block=block,
        dynamic_smem_bytes=_in_range(launch.smem, env, 0, MAX_SMEM_BYTES, "smem"),
        values=tuple(_value(e.evaluate(env)) for e in launch.args),
        cluster=cluster,
    )


def _dim3(
    extent: tuple[Expression, ...], env: Environment, most: tuple[int, ...], what: str
) -> Dim3:
    axes = [
        _in_range(e, env, 1, m, f"{what}.{axis}")
        for e, m, axis in zip(extent, most, "xyz", strict=False)
    ]
    return Dim3(**dict(zip("xyz", axes, strict=False)))


def _value(value: ExpressionValue) -> Value:
    match value:
        case PointerValue(allocation=allocation, scratch=scratch, offset_bytes=offset):
            return BufferValue(allocation=allocation, scratch=scratch, offset_bytes=offset)
        case NullPointer():
            return NullValue()
        case OpaqueValue(argument=argument):
            return RawValue(
                raw_hex=argument.raw_hex,
                pointers=tuple(
                    PlacedPointer(
                        at_bytes=p.at_bytes,
                        to=BufferValue(allocation=p.allocation, offset_bytes=p.offset_bytes),
                    )
                    for p in argument.pointers
                ),
            )
        case int() | float():
            return NumberValue(value=value)


def _argument(argument: Argument, pointee_bytes: int | None) -> ExpressionValue:
    match argument:
        case PointerArgument():
            size = argument.structure_bytes or pointee_bytes or ELEMENT_BYTES[argument.element]
            return PointerValue(argument.allocation, None, argument.offset_bytes, size)
        case NullArgument():
            return NullPointer()
        case ScalarArgument():
            return argument.value
        case OpaqueArgument():
            return OpaqueValue(argument)


def captured_value(argument: Argument) -> Value:
    """What a captured launch gave its kernel, as a resolved launch has it."""
    return _value(_argument(argument, None))


def pointee_bytes(type_text: str) -> int | None:
    """Bytes that `pointer + 1` moves; None where the type is a template's or the program's own."""
    words, stars = pointee(type_text)
    return SIZES.get(words) if stars == 1 else None


def pointee(type_text: str) -> tuple[str, int]:
    """What a parameter points to, without qualifiers, and through how many pointers."""
    words = re.sub(r"\b(const|volatile|__restrict__|__restrict)\b", " ", type_text).split("*")
    return " ".join(words[0].split()), len(words) - 1
