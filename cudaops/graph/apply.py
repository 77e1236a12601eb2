"""`cudaops apply`: a run's rewrite in its author's files, out of them again, and checked there.

RUN/state/applied/        what the files held, whole before the first of them changes
RUN/apply-check.json      the last `--check`: both builds, what they print, how long they take
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from cudaops import __version__
from cudaops.domain.base import Record
from cudaops.domain.execution import CompileFailed, ProgramOutcome, ProgramRan, TimeSource
from cudaops.domain.judge import median_interval
from cudaops.domain.judgement import Gate
from cudaops.domain.program import Program
from cudaops.domain.run import RunOptions, RunRecord
from cudaops.errors import InputError, SandboxUnavailable
from cudaops.executors.base import Executor, close_executor
from cudaops.executors.project.tree import take_snapshot
from cudaops.graph.events import utc_now
from cudaops.graph.folder import best_name, write_json
from cudaops.graph.services import make_executor, with_found_device
from cudaops.problem.host_program import authored
from cudaops.problem.torch_extension import as_author_has, is_torch, require_own_text
from cudaops.program.parse import load_program, read_source
from cudaops.program.splice import with_texts
from cudaops.sandbox.bench_state import read_state
from cudaops.sandbox.captures import CapturedRun, CapturedRuns
from cudaops.sandbox.whole_program import run_gate
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings

CHECK_NAME = "apply-check.json"
_KEPT = "state/applied"
_NAMES = "names.json"
ROUNDS = 11
"""Pairs of runs that are timed. Chosen: at a confidence of 99 % the interval of their median ratio
leaves one outlier out on either side."""
LEAST_ROUNDS = 7
"""Fewer pairs bound no median at 99 % (`domain.judge.median_interval`)."""
ENOUGH_S = 300.0
"""After so many seconds of timed runs LEAST_ROUNDS are enough. Chosen."""
EMULATED_ROUNDS = 3
"""Where times decide nothing."""

Say = Callable[[str], None]


class WholeJob(Record):
    """One build of the program in the author's tree: what was built and how long its runs take."""

    tree_sha256: str
    """Digest of the tree, of a program of one file over its texts."""
    seconds: tuple[float, ...] = ()
    """Of the whole program, all timed runs of it one after the other; in order, a pair with those
    of the other build. Empty: never timed."""

    @property
    def shown(self) -> str:
        """Median and spread in one phrase."""
        low, high = min(self.seconds), max(self.seconds)
        return f"{median(self.seconds):.4g} s ({low:.4g} to {high:.4g})"


class ApplyCheck(Record):
    """`apply-check.json`."""

    run_id: str
    date: str
    cudaops_version: str
    result: Literal["kept", "taken_out"]
    code: Literal["kept", "build_failed", "differs", "slower"]
    reason: str
    """One line."""
    executor: str
    device: str
    time_source: TimeSource
    times_decide: bool
    """False where times are an emulation's: build and output decide alone."""
    build: str
    """The project's own command; empty for a program of one file."""
    runs: tuple[tuple[str, ...], ...]
    """Arguments of the runs that were timed."""
    files: tuple[str, ...]
    """What the rewrite changes, absolute."""
    before: WholeJob
    after: WholeJob
    ratio: float | None = None
    """Seconds after over seconds before, median over the pairs; None: never timed."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    """Bounds of that median at the run's confidence; None where there are too few pairs."""
    output: Gate | None = None
    """The comparison of what both print, as the gate `whole_program` makes it; None: no build."""


class ApplyTarget(NamedTuple):
    """A run's rewrite and the files that it belongs into."""

    folder: Path
    record: RunRecord
    program: Program
    """As the run found it."""
    captured: CapturedRuns
    root: Path
    """Where the program's paths begin."""


def open_target(folder: Path, record: RunRecord) -> ApplyTarget:
    """What `apply` works on. Raises InputError where a rewrite in a file would never run, or the
    folder holds no run."""
    state = read_state(folder)
    program = authored(state.program)
    if is_torch(program):
        program = as_author_has(program)
        require_own_text(program)
    if program.application is not None:
        raise InputError(
            f"{program.main_path} launches no kernel, so a rewrite in it would never run; load it "
            f"into the program that does: cudaops preload {folder}"
        )
    if program.build is not None:
        root = Path(record.options.working_folder)
    else:
        main = Path(record.options.kernel_source or record.options.source)
        root = main.parents[len(Path(program.main_path).parts) - 1]
    return ApplyTarget(folder, record, program, state.captured, root)


class _Change(NamedTuple):
    """One file of the author's."""

    path: Path
    name: str
    """In the program."""
    author: bytes
    rewritten: bytes


def put_in(target: ApplyTarget) -> tuple[Path, ...]:
    """Put the rewrite into the author's files; those that changed.

    What they held is kept first: whenever this is killed, `take_out` gives it back. Raises
    InputError, and changes nothing, where the run kept no rewrite or a file is not as it found it;
    SandboxUnavailable where a folder cannot be written.
    """
    changes: list[_Change] = []
    best = _best_of(target)
    for file in target.program.files:
        if (text := best[file.path]) == file.text:
            continue
        path = target.root / file.path
        data = _content(path)
        coding = next((c for c in ("utf-8", "latin-1") if data == _encoded(file.text, c)), None)
        if coding is None and data == _encoded(text, "utf-8"):
            raise InputError(
                f"{path} already has the rewrite; nothing was changed (--revert removes it)"
            )
        if coding is None:
            by_hand = f"patch -p1 < {target.folder / 'best.patch'}"
            raise InputError(
                f"{path} was changed since the run; nothing was changed. By hand: {by_hand}"
            )
        changes.append(_Change(path, file.path, data, text.encode(coding, "replace")))
    with _writing():
        _keep(target.folder / _KEPT, changes)
        for one in changes:
            _write(one.path, one.rewritten)
    return tuple(one.path for one in changes)


def take_out(target: ApplyTarget) -> tuple[Path, ...]:
    """Give the author's files back byte for byte, also after a `put_in` that was killed; those that
    changed.

    Raises InputError, and changes nothing, where a file is neither as the run left it nor as the
    author had it; SandboxUnavailable where a folder cannot be written.
    """
    kept = target.folder / _KEPT
    changes = _kept(target) or _from_texts(target)
    changed: list[_Change] = []
    for one in changes:
        data = _content(one.path)
        if data not in (one.author, one.rewritten):
            by_hand = f"patch -p1 -R < {target.folder / 'best.patch'}"
            raise InputError(
                f"{one.path} was changed since apply; nothing was changed. By hand: {by_hand}"
            )
        changed += [one] if data != one.author else []
    with _writing():
        for one in changes:
            _part(one.path).unlink(missing_ok=True)
        for one in changed:
            _write(one.path, one.author)
        _forget(kept)
    if not changed:
        raise InputError(f"{changes[0].path} is already as it was; nothing was changed")
    return tuple(one.path for one in changed)


def _keep(folder: Path, changes: Sequence[_Change]) -> None:
    """All of it is there, or none."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for number, one in enumerate(changes):
        (part / f"{number}.author").write_bytes(one.author)
        (part / f"{number}.rewritten").write_bytes(one.rewritten)
    (part / _NAMES).write_text(json.dumps([one.name for one in changes]), "utf-8")
    _forget(folder)
    part.rename(folder)


def _forget(folder: Path) -> None:
    """All of it is gone, or none."""
    gone = folder.with_name(f"{folder.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)
    if folder.is_dir():
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _kept(target: ApplyTarget) -> list[_Change]:
    folder = target.folder / _KEPT
    if not folder.is_dir():
        return []
    names = json.loads((folder / _NAMES).read_text("utf-8"))
    return [
        _Change(
            target.root / name,
            name,
            (folder / f"{number}.author").read_bytes(),
            (folder / f"{number}.rewritten").read_bytes(),
        )
        for number, name in enumerate(names)
    ]


def _from_texts(target: ApplyTarget) -> list[_Change]:
    """Of a rewrite that was put in otherwise: by hand, or from a copy of the run."""
    best = _best_of(target)
    changes: list[_Change] = []
    for file in target.program.files:
        if (text := best[file.path]) != file.text:
            data = _content(target.root / file.path)
            coding = "utf-8" if data in (text.encode(), file.text.encode()) else "latin-1"
            author, rewritten = (x.encode(coding, "replace") for x in (file.text, text))
            changes.append(_Change(target.root / file.path, file.path, author, rewritten))
    return changes


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SandboxUnavailable(
            f"{error.filename} cannot be written: {error.strerror}",
            "make it writable; `cudaops apply RUN --revert` restores every file",
        ) from error


def _part(path: Path) -> Path:
    real = path.resolve()
    return real.with_name(f".{real.name}.cudaops-part")


def _write(path: Path, data: bytes) -> None:
    """The old file or the new one, whenever this is killed; a link stays one."""
    real, part = path.resolve(), _part(path)
    part.write_bytes(data)
    shutil.copymode(real, part)
    part.replace(real)


def _best_of(target: ApplyTarget) -> dict[str, str]:
    """Path in the program to text, as `folder.write_best` left it."""
    folder, found = target.folder, {}
    apart = (folder / "best").is_dir()
    for file in target.program.files:
        is_main = file.path == target.program.main_path
        beside = best_name(target.program) if is_main else file.path
        path = folder / "best" / file.path if apart else folder / beside
        try:
            found[file.path] = path.read_bytes().decode("utf-8")
        except OSError:
            raise InputError(
                f"{folder} holds no accepted rewrite ({path.name} is missing)"
            ) from None
    return found


def _encoded(text: str, coding: str) -> bytes | None:
    try:
        return text.encode(coding)
    except UnicodeEncodeError:
        return None


def apply_checked(
    target: ApplyTarget, options: RunOptions, settings: Settings, say: Say
) -> ApplyCheck:
    """Put the rewrite in, build and run the program as it was and as it is, and take the rewrite
    out again where it does not build, runs otherwise or slower; writes `apply-check.json`.

    Args:
        options: Where to run: executor, device, architecture, working folder.
        say: Takes each line of progress.

    Raises InputError if the program does not build or run without the rewrite, or a file is not as
    the run found it, EnvironmentFailure if this machine cannot run it: the author's files are then
    unchanged, as they are after an interruption.
    """
    if target.program.problem is not None:
        raise InputError(
            "--check runs a whole program before and after, and these kernels were judged against "
            "a reference in Python; apply without --check, and run your own program"
        )
    if is_torch(target.program):
        raise InputError(
            "--check builds by the project's own command, and this program compiles its CUDA while "
            "it runs; apply without --check, and run it"
        )
    executor = make_executor(options, settings)
    try:
        check = _Check(target, with_found_device(options, executor), executor, say)
        files = put_in(target)
        try:
            found = check.judged(files)
        except BaseException:
            take_out(target)
            raise
        if found.result == "taken_out":
            take_out(target)
    finally:
        close_executor(executor)
    write_json(target.folder / CHECK_NAME, found.model_dump(mode="json"))
    return found


class _Outcome(NamedTuple):
    code: Literal["kept", "build_failed", "differs", "slower"]
    reason: str
    output: Gate | None = None


class _Check:
    """One `--check`: the program without the rewrite is built and run when this is made."""

    def __init__(
        self, target: ApplyTarget, options: RunOptions, executor: Executor, say: Say
    ) -> None:
        self.target = target
        self.executor = executor
        self.options = options
        self.say = say
        self.times_decide = executor.time_source != "modelled"
        self.before = self._standing()
        say("building and running the program without the rewrite")
        whole = [self._run_again(one) for one in target.captured.runs if self._runs_whole(one)]
        self.timed = [one for one in whole if one.is_timed] or whole
        # The first that is timed says which kernel it is about, also where it is not run whole.
        others = (one for one in target.captured.runs if not self._runs_whole(one))
        runs = (*whole, *others)
        self.bench = Workbench(
            self.before,
            target.captured.model_copy(update={"runs": runs}),
            executor,
            options.policy,
            target.folder,
            sm_arch=options.sm_arch,
            timeout_s=options.timeout_seconds,
        )

    def _runs_whole(self, one: CapturedRun) -> bool:
        """On a processor a run that is timed alone may have a size that only a GPU is made for."""
        return self.times_decide or one.is_judged

    def judged(self, files: Sequence[Path]) -> ApplyCheck:
        """Of the author's tree with the rewrite in it."""
        after = self._standing()
        self.say("building and running it with the rewrite")
        seconds = _no_seconds()
        outcome = self._built_and_run(after)
        if outcome.code == "kept":
            outcome, seconds = self._timed(after, outcome)
        before, then = (
            WholeJob(tree_sha256=_digest(program), seconds=tuple(seconds[name]))
            for name, program in (("before", self.before), ("after", after))
        )
        ratios = [math.log(b / a) for a, b in zip(before.seconds, then.seconds, strict=True)]
        low, high = self._bounds(ratios)
        if ratios:
            outcome = self._compared(outcome, before, then, (low, high))
        record = self.target.record
        return ApplyCheck(
            run_id=record.run_id,
            date=utc_now(),
            cudaops_version=__version__,
            result="kept" if outcome.code == "kept" else "taken_out",
            code=outcome.code,
            reason=outcome.reason,
            executor=self.executor.name,
            device=self.executor.device,
            time_source=self.executor.time_source,
            times_decide=self.times_decide,
            build=self.before.build.command if self.before.build else "",
            runs=tuple(one.run.argv for one in self.timed),
            files=tuple(map(str, files)),
            before=before,
            after=then,
            ratio=math.exp(median(ratios)) if ratios else None,
            ratio_low=low,
            ratio_high=high,
            output=outcome.output,
        )

    def _standing(self) -> Program:
        """The program as its author's files stand now."""
        target, program = self.target, self.target.program
        if program.build is None:
            found = load_program(target.root / program.main_path, program.compilation)
            return found.model_copy(update={"exit_code": program.exit_code})
        texts = {
            f.path: read_source(target.root / f.path, may_be_empty=True) for f in program.files
        }
        found = with_texts(program, texts)
        taken = take_snapshot(self.executor.cache, target.root)
        tree = {"tree_sha256": taken.sha256, "snapshot": str(taken.archive)}
        return found.model_copy(update={"build": program.build.model_copy(update=tree)})

    def _run_again(self, one: CapturedRun) -> CapturedRun:
        """With what the program prints today, which may be another than when it was captured."""
        ran = self._ran(self.before, one)
        if not isinstance(ran, ProgramRan):
            raise InputError(f"the program fails without the rewrite: {ran.placed}")
        new = {"stdout": ran.stdout, "stderr": ran.stderr, "exit_code": ran.exit_code,
               "seconds": ran.seconds}  # fmt: skip
        role = one.run if one.is_judged else one.run.model_copy(update={"role": "both"})
        captured = one.captured.model_copy(update=new)
        return one.model_copy(update={"run": role, "captured": captured})

    def _ran(self, program: Program, one: CapturedRun) -> ProgramOutcome:
        return self.executor.run_program(
            program, one.run.argv, self.options.timeout_seconds, lockstep=one.captured.lockstep
        )

    def _built_and_run(self, after: Program) -> _Outcome:
        bench = self.bench
        first = bench.program_runs.rewritten("applied", after, bench.captured.runs[0])
        if isinstance(first, CompileFailed):
            return _Outcome("build_failed", first.placed)
        gate = run_gate(bench, "applied", after)
        return _Outcome("kept" if gate.passed else "differs", gate.summary, gate)

    def _timed(self, after: Program, outcome: _Outcome) -> tuple[_Outcome, dict[str, list[float]]]:
        """Both programs alternately, each first in every other pair."""
        programs = {"before": self.before, "after": after}
        seconds = _no_seconds()
        rounds = ROUNDS if self.times_decide else EMULATED_ROUNDS
        for turn in range(rounds):
            spent = sum(map(sum, seconds.values()))
            if turn >= LEAST_ROUNDS and spent > ENOUGH_S:
                break
            self.say(f"timing both programs alternately, {turn + 1} of {rounds}")
            for name in ("before", "after") if turn % 2 == 0 else ("after", "before"):
                took = 0.0
                for one in self.timed:
                    ran = self._ran(programs[name], one)
                    if not isinstance(ran, ProgramRan):
                        return self._failed(name, ran.placed, outcome), _no_seconds()
                    took += ran.seconds
                seconds[name].append(took)
        return outcome, seconds

    def _failed(self, name: str, why: str, outcome: _Outcome) -> _Outcome:
        if name == "before":
            raise InputError(f"the program without the rewrite does not run every time: {why}")
        return _Outcome("differs", f"does not run every time: {why}", outcome.output)

    def _bounds(self, ratios: Sequence[float]) -> tuple[float | None, float | None]:
        if not ratios:
            return None, None
        found = median_interval(ratios, (1.0 - self.options.policy.confidence) / 2)
        return tuple(math.exp(x) if math.isfinite(x) else None for x in found)  # type: ignore[return-value]

    def _compared(
        self, outcome: _Outcome, before: WholeJob, after: WholeJob,
        bounds: tuple[float | None, float | None],
    ) -> _Outcome:  # fmt: skip
        rounds = len(before.seconds)
        took = f"{after.shown} with the rewrite, {before.shown} without; medians of {rounds} runs"
        same = f"it builds; {outcome.reason}"
        if not self.times_decide:
            return outcome._replace(reason=f"{same}; emulated times decide nothing: {took}")
        low, high = bounds
        if low is not None and low > 1.0:
            return _Outcome("slower", f"the program is slower: {took}", outcome.output)
        faster = high is not None and high < 1.0
        word = "faster" if faster else "as fast as before within its noise"
        return outcome._replace(reason=f"{same}; the program is {word}: {took}")


def _no_seconds() -> dict[str, list[float]]:
    return {"before": [], "after": []}


def _digest(program: Program) -> str:
    return program.sha256 if program.build is None else program.build.tree_sha256
