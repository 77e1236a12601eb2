"""The runs of the author's program that belong to one job, captured, and their workloads."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from cudaops.cuda.devices import device as device_named
from cudaops.cuda.nvcc_line import LIBRARY
from cudaops.domain.base import Record
from cudaops.domain.execution import (
    Captured,
    CaptureOutcome,
    CompileFailed,
    InLockstep,
    Misbehaved,
    UnorderedAccess,
)
from cudaops.domain.options import MOST_RUNS, ProgramRun, WarmUps
from cudaops.domain.program import Program
from cudaops.domain.workload import Workload
from cudaops.errors import InputError, PrerequisiteError
from cudaops.executors.base import Executor
from cudaops.executors.capture.recording import launched_here
from cudaops.executors.cpu.build import program_source
from cudaops.executors.cuda.build import refused_by_nvcc
from cudaops.executors.untrusted_files import remove
from cudaops.sandbox.hottest_kernel import hottest_by_model
from cudaops.storage import write_texts

LEAST_SIZE = 16
"""A whole number among a program's arguments that is not below may be a size. Chosen: counts of
repetitions and modes are mostly smaller, and of smaller sizes every remainder is met anyway."""


class CapturedRun(Record):
    """One run of the program and what was captured of it."""

    run: ProgramRun
    captured: Captured

    @property
    def is_judged(self) -> bool:
        """Whether a rewrite is compared with the author's kernel on its launches."""
        return self.run.role != "timed"

    @property
    def is_timed(self) -> bool:
        """Whether a rewrite is timed on its launches."""
        return self.run.role != "judged"

    def with_workloads(self, change: Callable[[Workload], Workload]) -> CapturedRun:
        """The same with every workload changed."""
        workloads = tuple(map(change, self.captured.workloads))
        captured = self.captured.model_copy(update={"workloads": workloads})
        return self.model_copy(update={"captured": captured})


class CapturedRuns(Record):
    """All of them, in the order in which they were given."""

    runs: tuple[CapturedRun, ...]
    notices: tuple[str, ...] = ()
    """Of runs with other sizes: which there are, and which could not be had."""

    @property
    def timed(self) -> CapturedRun:
        """The one that says which kernel matters: the first that is timed."""
        return next(one for one in self.runs if one.is_timed)

    @property
    def judged(self) -> CapturedRun:
        """The first that is judged: all of it was executed."""
        return next(one for one in self.runs if one.is_judged)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Of all runs: those that are timed first, the most expensive of them first, of what weighs
        the same the larger."""
        workloads = (w for one in self.runs for w in one.captured.workloads)
        return tuple(
            sorted(workloads, key=lambda w: (-w.time_share, -w.grid.volume * w.block.volume))
        )

    def of_instance(self, callee: str) -> CapturedRuns:
        """The same runs with the launches of one template instance alone."""
        runs = []
        for one in self.runs:
            own = tuple(w for w in one.captured.workloads if w.callee == callee)
            captured = one.captured.model_copy(update={"workloads": own})
            runs.append(one.model_copy(update={"captured": captured}))
        return self.model_copy(update={"runs": tuple(runs)})

    @property
    def lockstep(self) -> InLockstep | None:
        """How the author's kernel runs for reference, where any run needs it: most waits first."""
        found = [one.captured.lockstep for one in self.runs if one.captured.lockstep is not None]
        return min(found, key=lambda how: how.memory != "all", default=None)

    @property
    def unordered(self) -> tuple[UnorderedAccess, ...]:
        """Accesses in no order that decide something in any run."""
        return tuple(pair for one in self.runs for pair in one.captured.unordered)

    @property
    def undecided(self) -> str:
        """Why results of some run are no reference; empty where all are."""
        return next((one.captured.undecided for one in self.runs if one.captured.undecided), "")

    def with_workloads(self, change: Callable[[Workload], Workload]) -> CapturedRuns:
        """The same with every workload changed."""
        runs = tuple(one.with_workloads(change) for one in self.runs)
        return self.model_copy(update={"runs": runs})


def captured_of_author(
    executor: Executor,
    program: Program,
    kernel: str | None,
    argv: tuple[str, ...],
    folder: Path,
    timeout_s: float,
    *,
    whole: bool = True,
    judged: bool = True,
    warm_ups: WarmUps = "auto",
) -> CaptureOutcome:
    """See `Executor.capture`, of the author's program. Its results are what a rewrite is held
    against, so it is found out whether they are a reference; nobody's program else is asked that.
    `judged` False: no rewrite will be, and a program that takes long is captured in part.
    """
    capture = partial(executor.capture, program, kernel, argv, folder, warm_ups=warm_ups)
    if judged or not whole:
        found = capture(timeout_s, whole=whole)
    else:
        share_s, whole_s = PROFILED_SHARE * timeout_s, PROFILED_WHOLE_SHARE * timeout_s
        found = capture(share_s, whole=False, whole_s=whole_s, launch_s=timeout_s)
        again_s = 2 * found.seconds if isinstance(found, Captured) else 0.0
        timeout_s = min(timeout_s, max(share_s, again_s))  # of a second run
    if not whole or isinstance(found, CompileFailed):
        return found
    if not judged and isinstance(found, Captured) and (found.cut or found.stopped or found.beyond):
        return found
    if isinstance(found, Captured) and not found.workloads:
        return found
    return executor.as_reference(program, kernel, found, argv, folder, timeout_s, warm_ups=warm_ups)


PROFILED_SHARE, PROFILED_WHOLE_SHARE = 0.3, 0.2
"""Of the time limit: for so long a program runs from its first launch, of which no rewrite is
judged; and for so long each of its launches is executed whole. Chosen: with the usual limit of
120 s a program of 24 s is captured as if one were judged, and where the host prepares nothing for
long a profile takes less than two minutes."""
RIVAL = MOST_RUNS
"""Number of the folder for another kernel than the one with most seconds."""


class ProgramCapture:
    """Captures one program's runs on one executor."""

    def __init__(
        self,
        executor: Executor,
        program: Program,
        folder: Path,
        timeout_s: float,
        warm_ups: WarmUps = "auto",
        *,
        judged: bool = True,
    ) -> None:
        """`folder`: where workloads will be, each under its id. `timeout_s`: for each run.
        `judged`: whether rewrites will be, by what is captured."""
        self.judged = judged
        self.executor = executor
        self.program = program
        self.folder = folder
        self.timeout_s = timeout_s
        self.warm_ups = warm_ups

    def capture(
        self, kernel: str | None, runs: tuple[ProgramRun, ...], *, odd_sizes: bool = False
    ) -> CapturedRuns:
        """Every run; `kernel` None: the one with most time in the first that is timed.

        Where whole runs are executed and timed (a GPU), what is timed is judged as well.
        `odd_sizes` adds runs with primes in place of the sizes, as far as the program takes them.

        Raises InputError where the program does not compile, misbehaves, launches nothing that
        can be captured or launches what takes most time in no judged run: then there is nothing to
        optimise, and the message says what to do.
        """
        if self.executor.time_source != "modelled":
            runs = tuple(
                run if run.role == "judged" else run.model_copy(update={"role": "both"})
                for run in runs
            )
        leader = next(i for i, run in enumerate(runs) if run.role != "judged")
        found = {leader: self._captured(leader, kernel, runs[leader], alone=len(runs) == 1)}
        notices: list[str] = []
        if kernel is None:
            found[leader], notices = self._hottest(runs[leader], found[leader])
        target = found[leader].kernel
        for number, run in enumerate(runs):
            if number != leader:
                found[number] = self._captured(number, target, run)
        kept = [CapturedRun(run=run, captured=found[i]) for i, run in enumerate(runs)]
        notices += found[leader].passed_over
        notices += [_alike(found[i]) for i in found if found[i].alike]
        notices += [_beyond(one) for i in found for one in found[i].beyond]
        if odd_sizes:
            kept += self._odd(target, runs, notices)
        captured = CapturedRuns(runs=tuple(kept), notices=tuple(notices))
        _refuse_unjudged(captured)
        return self._unified(captured)

    def _hottest(self, run: ProgramRun, captured: Captured) -> tuple[Captured, list[str]]:
        """What was captured, or another kernel that takes more time on the device, where that is
        only modelled; and why it is not the kernel with most time here."""
        if self.executor.time_source == "modelled":
            chosen = hottest_by_model(
                self.executor, self.program, run, captured, self.folder / "rival",
                self.timeout_s, self.warm_ups,
            )  # fmt: skip
            if chosen is not None:
                try:
                    return self._captured(RIVAL, chosen.kernel, run), [chosen.notice]
                except InputError:
                    remove(self.folder / f"run{RIVAL}")
        return captured, _passed_over(self.program, captured)

    def _captured(
        self, number: int, kernel: str | None, run: ProgramRun, *, alone: bool = False
    ) -> Captured:
        try:
            outcome = captured_of_author(
                self.executor,
                self.program,
                kernel,
                run.argv,
                self.folder / f"run{number}",
                self.timeout_s,
                whole=run.role != "timed",
                judged=self.judged,
                warm_ups=self.warm_ups,
            )
        except InputError as error:
            raise error if alone else InputError(f"{_shown(run)}: {error}") from error
        if isinstance(outcome, CompileFailed):
            raise InputError(self._why_not_compiled(outcome))
        where = "" if alone else f"{_shown(run)}: "
        if isinstance(outcome, Misbehaved):
            hint = "; raise --timeout" if outcome.what == "timeout" else ""
            raise InputError(f"{where}{outcome.placed}{hint}")
        if not outcome.workloads:
            raise InputError(f"{where}no launch of {outcome.kernel} could be captured")
        return outcome

    def _why_not_compiled(self, failed: CompileFailed) -> str:
        """Whose fault it is: nvcc knows what CUDA is."""
        must = "; the program must compile before it can be optimised"
        hint = _elsewhere(self.executor, self.program, failed.message)
        if _STATED.search(failed.message):
            return failed.placed
        if hint or self.program.build is not None or self.executor.name != "cpu":
            return failed.placed + must + hint
        lacking = _UNKNOWN.search(failed.message)
        hint = "" if lacking is None else _only_nvcc_has(f"{lacking[2]}::{lacking[1]}")
        major, minor = device_named(self.executor.device).compute_capability
        try:
            refused = refused_by_nvcc(self.program, f"sm_{major}{minor}")
        except PrerequisiteError:
            return failed.placed + must + hint
        if refused is not None and _MISSING.search(refused.message):
            return failed.placed + must  # a toolkit without a header that we have knows less
        if refused is not None:
            return f"nvcc: {refused.placed}{must}"
        if hint:
            return failed.placed + must + hint
        kept = self.folder / "not-compiled"
        write_texts(kept, {**program_source(self.program).files, "log.txt": failed.log})
        return (
            f"nvcc takes this program, and g++ refuses what cudaops makes of it for a processor "
            f"({failed.placed}): a fault of cudaops; report it with {kept}, or use --executor cuda"
        )

    def _odd(
        self, kernel: str, runs: tuple[ProgramRun, ...], notices: list[str]
    ) -> Iterator[CapturedRun]:
        """One more judged run for each that is, as long as there is room for one."""
        number = len(runs)
        wanted = [run for run in runs if run.role != "timed"]
        for run in wanted[: MOST_RUNS - len(runs)]:
            tried = tuple(odd_sizes(run.argv))
            for argv in tried:
                odd = ProgramRun(argv=argv, role="judged", weight=0.0)
                try:
                    captured = self._captured(number, kernel, odd)
                except InputError:
                    remove(self.folder / f"run{number}")
                    continue
                number += 1
                notices.append(f"judged on odd sizes too: {_shown(odd)}")
                yield CapturedRun(run=odd, captured=captured)
                break
            else:
                why = "the program does not run with any other" if tried else "there is no size"
                notices.append(f"no odd sizes for {_shown(run)}: {why}")

    def _unified(self, found: CapturedRuns) -> CapturedRuns:
        """Workloads named and weighed over all runs, each in the folder of its name."""
        weights = sum(one.run.weight for one in found.runs if one.is_timed)
        weighed = found.model_copy(
            update={
                "runs": tuple(
                    one.with_workloads(partial(_weighed, number, one.run, weights))
                    for number, one in enumerate(found.runs)
                )
            }
        )
        names = {(w.run, w.id): f"w{place}" for place, w in enumerate(weighed.workloads)}
        placed = weighed.with_workloads(lambda w: self._placed(w, names[w.run, w.id]))
        for number in (*range(len(found.runs)), RIVAL):
            remove(self.folder / f"run{number}")
        return placed

    def _placed(self, workload: Workload, name: str) -> Workload:
        target = self.folder / name
        remove(target)  # of the program that was open here before
        Path(workload.folder).rename(target)
        return workload.model_copy(update={"id": name, "folder": str(target)})


_OF_THE_TOOLKIT = re.compile(
    rf"(?:(?:thrust|cub|cutlass|cute|cuda|nv)/[\w/]+(?:\.\w+)?|{LIBRARY}\.h)"
)
_MISSING = re.compile(r"([\w/.-]+): No such file")
_UNKNOWN = re.compile(
    r"`(\w+)` (?:in namespace|is not a member of) "
    r"`((?:thrust|cub|cutlass|cute|cuda|nvcuda|nv|cooperative_groups)(?:::\w+)*)`"
)
"""What g++ says of a name that a header of the toolkit has and ours of that name has not."""


_STATED = re.compile(r"on the cpu executor|use --executor cuda")
"""In what our headers say of what a processor has no meaning for."""


def _only_nvcc_has(what: str) -> str:
    return f": the `cpu` executor is without {what}, nvcc has it (--executor cuda, on a GPU)"


_UNLINKED = re.compile(r"undefined reference to [`'\"]?(\w*)")
_LIBRARIES = (
    (r"cu[A-Z]", "-lcuda"),
    (r"curand[A-Z]", "-lcurand"),
    (r"cublasLt", "-lcublasLt"),
    (r"cublas", "-lcublas"),
    (r"cufft", "-lcufft"),
    (r"cusparse", "-lcusparse"),
    (r"cusolver", "-lcusolver"),
    (r"cudnn", "-lcudnn"),
    (r"nvrtc", "-lnvrtc"),
    (r"nvml", "-lnvidia-ml"),
    (r"nccl", "-lnccl"),
    (r"GOMP_|omp_", "-Xcompiler -fopenmp"),
    (r"cuda[A-Z]\w*Device|__cudaRegisterLinkedBinary", "-rdc=true -lcudadevrt"),
)
"""How a name that is not linked begins, and nvcc's words that link it. Source: the libraries of
the CUDA toolkit, each by the prefix of its functions."""


def _elsewhere(executor: Executor, program: Program, message: str) -> str:
    """Where what a program lacks is found, and which option says so."""
    missing = _MISSING.search(message)
    if missing is not None and _OF_THE_TOOLKIT.fullmatch(missing[1]):
        return _only_nvcc_has(missing[1]) if executor.name == "cpu" else ""
    if program.build is not None:
        return ""
    if missing is not None:
        return f": say where {missing[1]} is, --nvcc -IFOLDER"
    unlinked = _UNLINKED.search(message)
    if unlinked is not None:
        libraries = (lib for begin, lib in _LIBRARIES if re.match(begin, unlinked[1]))
        if (library := next(libraries, None)) is not None:
            if executor.name == "cpu" and not library.startswith("-X"):
                return _only_nvcc_has(unlinked[1])
            return f': link it, --nvcc "{library}"'
        line = "nvcc FILE.cu OTHER.cpp -o app"
        return f': a program of several files is built with --build "{line}" --run ./app'
    return ""


def _passed_over(program: Program, captured: Captured) -> list[str]:
    """Why it is not the kernel with most time that is worked on, where it is not."""
    hottest = launched_here(program, [count.kernel for count in captured.counts])[0]
    told = any(f" of {hottest} cannot be captured: " in line for line in captured.passed_over)
    if told or hottest == captured.kernel:
        return []
    why = "takes more time, and no launch names it, so that none could be replaced"
    return [f"{hottest} {why}; {captured.kernel} is optimized"]


def _alike(captured: Captured) -> str:
    """What it means that not every large launch became a workload."""
    each = captured.workloads[0].size_bytes / 1e9
    launches = f"{captured.alike} further launches of {captured.kernel}"
    differ = "they differ in contents, offsets and counters alone"
    return f"{launches} are left out: {differ} ({each:.1f} GB each)"


def _beyond(access: str) -> str:
    """What an access outside of an allocation means to whoever has it profiled."""
    return f"{access}: let through for a profile; no rewrite is judged before that is corrected"


def _weighed(number: int, run: ProgramRun, weights: float, workload: Workload) -> Workload:
    """A workload as one of this run among several, whose weights are this together."""
    share = workload.time_share * run.weight / weights
    update = {"run": number, "role": run.role, "time_share": share}
    return workload.model_copy(update=update)


def _refuse_unjudged(captured: CapturedRuns) -> None:
    """Raises InputError where no judged run reaches the template instance with most time."""
    timed = max(captured.timed.captured.workloads, key=lambda w: w.time_share).callee
    judged = {w.callee for one in captured.runs if one.is_judged for w in one.captured.workloads}
    if timed not in judged:
        raise InputError(
            f"{_shown(captured.timed.run)} spends its time in {timed}, which no judged run "
            f"launches (they launch {', '.join(sorted(judged))}); give one that does: "
            '--args "judged: ..."'
        )


def _shown(run: ProgramRun) -> str:
    return f"run with {shlex.join(run.argv)!r}" if run.argv else "run without arguments"


def odd_sizes(argv: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Arguments with the largest prime below in place of every size, then of one after another.

    A size is a whole number of at least LEAST_SIZE, alone or behind a `=`. What the program makes
    of it is its own affair; where it refuses, the next is tried.
    """
    at = {i: odd for i, word in enumerate(argv) if (odd := _odd_word(word)) is not None}
    if at:
        yield tuple(at.get(i, word) for i, word in enumerate(argv))
    if len(at) > 1:
        for chosen, odd in at.items():
            yield tuple(odd if i == chosen else word for i, word in enumerate(argv))


def _odd_word(word: str) -> str | None:
    head, equals, number = word.rpartition("=")
    if not number.isascii() or not number.isdigit() or not LEAST_SIZE <= int(number) <= 2**40:
        return None
    return f"{head}{equals}{_prime_below(int(number))}"


def _prime_below(number: int) -> int:
    """The largest prime below a number of at least 3."""
    below = range(number - 1, 1, -1)
    return next(n for n in below if all(n % d for d in range(2, math.isqrt(n) + 1)))
