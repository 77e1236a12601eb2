"""Runs of whole programs that belong to one job, each made once: the author's, a rewrite's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from itertools import pairwise

from cudaops.domain.execution import Misbehaved, ProgramOutcome, ProgramRan
from cudaops.domain.program import Program
from cudaops.errors import InputError
from cudaops.executors.base import Executor
from cudaops.executors.stopping import Once, in_background
from cudaops.program.lexing import byte_text, lex
from cudaops.sandbox.captures import CapturedRun

LITTLE_BYTES = 2 * 1024**3
"""Of one launch's buffers; a program has them more than once. Chosen: beside what the gates keep on
a GPU of 24 GB."""

CLOCK_RATES = (1000.0, 0.001)
"""Of the clocks that the author's program reads in its further runs, where they can be set: what
changes with them says how fast it was. Chosen: a time of 1 us is printed to the third digit of a
millisecond by the one, a rate that is printed as 0.00 becomes a number by the other."""
FURTHER_RUNS = 6
FURTHER_S = 20.0
"""Further runs of the author's program where they are measured, and the seconds that they may take
together; one is made in any case. Chosen: another of its kernels, with a race or atomics in it,
may print another number in one run of three or four."""
LATE_FACTOR, LATE_S = 3.0, 5.0
"""A run whose clocks go slowly may take so many times as long, and as many seconds more: a program
may wait for them."""
OTHER_CLOCKS = frozenset({
    "omp_get_wtime", "getrusage", "times", "ftime", "time", "timespec_get", "__rdtsc", "_rdtsc",
    "__builtin_ia32_rdtsc", "clock64", "globaltimer", "MPI_Wtime",
})  # fmt: skip
"""Whose rate is not set."""


def runs_ahead(run: CapturedRun, size_bytes: int) -> bool:
    """Whether it goes on for long after its last launch, or leaves the GPU room for what is run
    meanwhile. `size_bytes`: the most that one launch has in buffers."""
    return run.captured.paused or size_bytes < LITTLE_BYTES


class ProgramRuns:
    """What a program prints and how long it takes, for the judged runs of a job."""

    def __init__(
        self, executor: Executor, program: Program, timeout_s: float, *, models_time: bool
    ) -> None:
        """`timeout_s`: for each run. `models_time`: times are computed, so that the captured run
        says what another would."""
        self._executor = executor
        self._program = program
        self._timeout_s = timeout_s
        self._models_time = models_time
        self._once = Once()

    @cached_property
    def sets_clocks(self) -> bool:
        """Whether every clock that the author's program reads can be made to go at another rate."""
        called = {
            name.text
            for file in self._program.files
            for name, after in pairwise(lex(byte_text(file.text)).tokens)
            if after.text == "("
        }
        return self._models_time and not called & OTHER_CLOCKS

    def author(self, run: CapturedRun) -> ProgramRan:
        """The author's program as it is: its outputs and how long it takes. One that paused when it
        was captured and does not end in time stands as far as that (`ProgramRan.paused`).

        Raises InputError where it does not run to its end otherwise.
        """
        return self._once.get(("author", *run.run.argv), lambda: self._author(run))

    def known(self, run: CapturedRun) -> ProgramRan | None:
        """What `author` gives, where that costs no run of a program that paused: its end is a long
        time off."""
        if run.captured.paused and not self._once.has(("author", *run.run.argv)):
            return None
        return self.author(run)

    def rewritten(self, name: str, program: Program, run: CapturedRun) -> ProgramOutcome:
        """The program with a rewrite in it, as far as the author's comes. `name`: the rewrite's."""
        return self._rewritten(name, program, run, until_pause=self.author(run).paused)

    def ahead(self, runs: Iterable[CapturedRun]) -> None:
        """Begin what `author` gives of these, in the background: while nothing is timed, or where a
        program is at work on the processor for long."""
        if not self._models_time:
            wanted = list(runs)
            in_background(lambda: [self.author(one) for one in wanted])

    def rewritten_ahead(self, name: str, program: Program, runs: Iterable[CapturedRun]) -> None:
        """Begin what `rewritten` gives of these: it takes as long as the author's, which may not
        have ended either."""
        for one in runs:
            in_background(lambda one=one: self._rewritten(name, program, one))  # type: ignore[misc]

    def unfused(self, run: CapturedRun) -> str | None:
        """What the author's program prints without fused multiply-adds: what rounding alone changes
        in its numbers. None where it cannot be built so, or does not run to its end."""
        if self._program.build is not None or self._program.application is not None:
            return None
        return self._once.get(("unfused", *run.run.argv), lambda: self._unfused(run))

    def others(self, run: CapturedRun) -> Iterator[str]:
        """What further runs of the author's program print, one after the other: with its clocks at
        another rate where time is modelled, else some as it is. None of one that paused."""
        rates: tuple[float, ...] = CLOCK_RATES
        if not self._models_time:
            several = int(FURTHER_S / max(run.captured.seconds, 0.1))
            rates = (1.0,) * max(1, min(FURTHER_RUNS, several))
        for n, rate in enumerate(() if run.captured.paused else rates):
            key = ("other", n, *run.run.argv)
            printed = self._once.get(key, partial(self._other, run, rate))
            if printed:
                yield printed

    def _other(self, run: CapturedRun, rate: float) -> str:
        """Empty where it does not run to its end."""
        timeout_s = self._timeout_s
        if rate < 1.0:
            timeout_s = min(timeout_s, LATE_FACTOR * run.captured.seconds + LATE_S)
        ran = self._executor.run_program(
            self._program,
            run.run.argv,
            timeout_s,
            lockstep=run.captured.lockstep,
            clock_rate=rate,
        )
        return ran.stdout if isinstance(ran, ProgramRan) else ""

    def _author(self, run: CapturedRun) -> ProgramRan:
        if self._models_time:
            return _captured(run)
        ran = self._executor.run_program(self._program, run.run.argv, self._timeout_s)
        if isinstance(ran, Misbehaved) and ran.what == "timeout" and run.captured.paused:
            return _captured(run)
        if not isinstance(ran, ProgramRan):
            raise InputError(f"the author's program does not run: {ran.placed}")
        return ran

    def _rewritten(
        self, name: str, program: Program, run: CapturedRun, *, until_pause: bool = False
    ) -> ProgramOutcome:
        def ran() -> ProgramOutcome:
            return self._executor.run_program(
                program,
                run.run.argv,
                self._timeout_s,
                lockstep=run.captured.lockstep,
                until_pause=until_pause,
            )

        return self._once.get((name, until_pause, *run.run.argv), ran)

    def _unfused(self, run: CapturedRun) -> str | None:
        program = self._program.model_copy(update={"fused": False})
        ran = self._executor.run_program(
            program,
            run.run.argv,
            self._timeout_s,
            lockstep=run.captured.lockstep,
            until_pause=self.author(run).paused,
        )
        return ran.stdout if isinstance(ran, ProgramRan) else None


def _captured(run: CapturedRun) -> ProgramRan:
    captured = run.captured
    return ProgramRan(
        stdout=captured.stdout,
        stderr=captured.stderr,
        exit_code=captured.exit_code,
        seconds=captured.seconds,
        kernel_ms=captured.kernel_ms,
        paused=captured.paused,
    )
