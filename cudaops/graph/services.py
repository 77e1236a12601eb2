"""Builds what a run needs from its options and the settings' values."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from cudaops.cuda.architectures import microarchitecture
from cudaops.cuda.devices import device, plugged_devices
from cudaops.cuda.verdict import all_rules
from cudaops.domain.execution import Captured, Compiled, LaunchCount
from cudaops.domain.program import PLAIN, Compilation, Program
from cudaops.domain.run import RunOptions
from cudaops.errors import InputError
from cudaops.executors.base import Executor, close_executor
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.executors.cuda.toolchain import cutlass_includes
from cudaops.executors.isolation.level import enforce
from cudaops.executors.project.application import open_application
from cudaops.executors.untrusted_files import remove, temporary_folder
from cudaops.gates.domain import draw_inputs
from cudaops.gates.plugged import plugged_gates
from cudaops.gates.qualification import qualification_of
from cudaops.gates.reference import require_author
from cudaops.problem.host_program import problem_program
from cudaops.problem.reference import FIRST_SEED, Drawer, find_interpreter
from cudaops.problem.torch_extension import open_torch
from cudaops.program.compilation import read_compilation
from cudaops.program.launches import launches_in_a_loop
from cudaops.program.parse import load_program, require_kernels
from cudaops.prompts.hints import plugged_hints
from cudaops.recipes.registry import all_recipes
from cudaops.sandbox.anchors import anchors_of_run
from cudaops.sandbox.workbench import Workbench, open_workbench
from cudaops.settings import Settings
from cudaops.storage import sweep


def make_executor(options: RunOptions, settings: Settings) -> Executor:
    """The executor asked for, checked to work here, and what runs there confined as asked.

    Raises PrerequisiteError, InputError, SandboxUnavailable.
    """
    if options.executor == "remote":
        raise InputError(
            "--executor remote hands whole jobs to a service (run, profile, verify); for this work "
            "on the service's own machine, with --executor cpu or cuda"
        )
    confine(options, settings)
    _require_plugins()
    cache, where = settings.builds_folder, options.program_folder
    executor: CpuExecutor | CudaExecutor
    if options.executor == "cpu":
        microarchitecture(device(options.device).compute_capability)
        executor = CpuExecutor(options.device, cache, program_folder=where)
    else:
        executor = CudaExecutor(
            options.device or None,
            cache,
            driver=settings.gpu_driver,
            sm_arch=options.sm_arch or None,
            program_folder=where,
            clock_control=options.ncu_clock_control,
            capture_bytes=settings.capture_bytes,
        )
        executor.profile_soon(warm=_repeats(Path(options.source)))
    executor.check_available()
    sweep(cache, settings.builds_bytes)
    return executor


def _repeats(source: Path) -> bool:
    """Whether a launch may follow itself; read again, and refused, by whoever needs the program."""
    try:
        return launches_in_a_loop(source.read_text("utf-8", "replace"))
    except OSError:
        return False


def confine(options: RunOptions, settings: Settings) -> None:
    """Hold what runs from now on to the isolation asked for. Raises InputError where there is to be
    none and nobody has said that the source is trusted, SandboxUnavailable."""
    if settings.isolation == "off" and not options.trust_source:
        raise InputError(
            "CUDAOPS_ISOLATION=off runs the program and every candidate with your rights; add "
            "--trust-source if you trust them, or unset the variable"
        )
    enforce(settings.isolation)


def _require_plugins() -> None:
    """Load what packages add, before anything is spent on a run that they would stop. Raises
    InputError."""
    plugged_devices()
    all_rules()
    all_recipes()
    plugged_gates()
    plugged_hints()


def warm(bench: Workbench) -> None:
    """Start what will be needed and takes a while, in the background: on a GPU what every rewrite
    is compared with, which a processor makes for the most part, while ncu and the search work."""
    if isinstance(bench.executor, CudaExecutor):
        bench.executor.host.warm([bench.unit(bench.workloads[0], None, widened=True)])
        bench.ahead.begin(lambda: draw_inputs(bench))
        bench.ahead.begin(lambda: _prepare(bench))


def _prepare(bench: Workbench) -> None:
    qualification_of(bench)
    anchors_of_run(bench)
    if isinstance(author := bench.compile(None), Compiled):
        bench.executor.instructions(author)


def with_found_device(options: RunOptions, executor: Executor) -> RunOptions:
    """The options with the device and target that the executor found."""
    if not isinstance(executor, CudaExecutor):
        return options
    return options.model_copy(update={"device": executor.device, "sm_arch": executor.sm_arch})


def open_bench(options: RunOptions, executor: Executor, *, judged: bool = True) -> Workbench:
    """Intake and capture into the run folder `options.out`, which is made. `judged`:
    whether rewrites will be.

    Raises InputError where the program cannot be optimised as it is.
    """
    program = _opened(options, executor).model_copy(update={"exit_code": options.exit_code})
    if options.policy.allow_libraries:
        program = with_libraries(program)
    if options.kernel is not None and not program.kernels_named(options.kernel):
        known = ", ".join(k.full_names[1] for k in program.kernels)
        raise InputError(
            f"there is no kernel {options.kernel!r} in {program.main_path}; it has {known}"
        )
    bench = open_workbench(
        program,
        options.kernel,
        options.program_runs,
        executor,
        options.policy,
        Path(options.out),
        sm_arch=options.sm_arch,
        timeout_s=options.timeout_seconds,
        odd_sizes=options.odd_sizes,
        warm_ups=options.warm_ups,
        judged=judged,
    )
    if program.problem is not None:
        require_author(bench)
    return bench


def with_libraries(program: Program) -> Program:
    """The program compiled so that a rewrite may include CUTLASS, where that is installed."""
    folder = cutlass_includes()
    if folder is None:
        return program
    added = (("I", str(folder)), ("expt-relaxed-constexpr", None))
    build = program.build
    if build is not None:
        build = build.model_copy(update={"options": (*build.options, *added)})
        return program.model_copy(update={"build": build})
    return program.model_copy(update={"options": (*program.options, *added)})


def _opened(options: RunOptions, executor: Executor) -> Program:
    """The program as its author builds it."""
    source = Path(options.source)
    if options.compiles_itself:
        return _torch(options, executor)
    if options.kernel_source is not None:
        return _problem(options, executor)
    named = options.run_command
    if options.build_command is None:
        if named is not None:
            return _applied(options, executor, named)
        return load_program(source, compilation_of(options))
    program = executor.open_project(
        Path(options.working_folder),
        source,
        options.build_command,
        None if named is None else shlex.split(named)[0],
    )
    require_kernels(source, program)
    return program


class Survey(NamedTuple):
    """What a project's program launches."""

    counts: tuple[LaunchCount, ...]
    """The hottest first, of kernels in the project's files."""
    files: dict[str, str]
    """Kernel to the file that defines it, relative to the project's folder."""
    kernel: str
    """The one to work on."""


def survey(options: RunOptions, settings: Settings) -> Survey:
    """Build the project and run it once with every launch of its files recorded.

    Raises InputError where that cannot be done, or none of its kernels is launched.
    """
    assert options.build_command is not None
    executor = make_executor(options, settings)
    try:
        named = options.run_command
        program = executor.open_project(
            Path(options.working_folder),
            None,
            options.build_command,
            None if named is None else shlex.split(named)[0],
        ).model_copy(update={"exit_code": options.exit_code})
        argv = options.program_runs[0].argv
        with temporary_folder("cudaops-survey-") as folder:
            ran = executor.capture(
                program, options.kernel, argv, folder, options.timeout_seconds, whole=False,
                warm_ups=options.warm_ups,
            )  # fmt: skip
    finally:
        close_executor(executor)
    if not isinstance(ran, Captured):
        raise InputError(ran.message)
    files = {kernel.name: kernel.file for kernel in reversed(program.kernels)}
    return Survey(tuple(c for c in ran.counts if c.kernel in files), files, ran.kernel)


def compilation_of(options: RunOptions) -> Compilation:
    """What `--nvcc` says. Raises InputError where that is no line of nvcc's for this file."""
    if options.nvcc is None:
        return PLAIN
    found, named = read_compilation(options.nvcc, Path(options.working_folder))
    if named is not None and Path(named).resolve() != Path(options.source).resolve():
        raise InputError(f"--nvcc compiles {named}, and {options.source} was given")
    return found


def _applied(options: RunOptions, executor: Executor, command: str) -> Program:
    """Kernels of a file that a program of the author's launches."""
    if executor.name != "cuda":
        raise InputError(
            "--run without --build is for programs that launch kernels by CUDA's driver API; these "
            "run on a GPU alone: --executor cuda"
        )
    words = [word for run in options.program_runs for word in run.argv]
    (program,) = shlex.split(command)
    return open_application(options.program_folder, Path(options.source), program, words)


def _torch(options: RunOptions, executor: Executor) -> Program:
    """A program that compiles its CUDA itself, as a project."""
    new = options.kernel_source
    program = open_torch(
        executor,
        options.program_folder,
        Path(options.source),
        None if new is None else Path(new),
        options.kernel,
        [run.argv for run in options.program_runs],
        find_interpreter(options.python),
        options.timeout_seconds,
    )
    require_kernels(Path(options.source), program)
    return program


def _problem(options: RunOptions, executor: Executor) -> Program:
    """The author's kernels in a program that runs them on what the reference draws first."""
    assert options.kernel_source is not None
    drawer = Drawer(
        Path(options.source),
        find_interpreter(options.python),
        options.timeout_seconds,
        (executor.cache, Path(options.out)),
    )
    folder = Path(options.out) / "work" / "first"
    (first,) = drawer.draw((FIRST_SEED,), folder)
    program = problem_program(Path(options.kernel_source), first.problem)
    first.copy_inputs(options.program_folder)
    remove(folder)
    return program
