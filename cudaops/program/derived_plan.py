"""The launch plan that somebody's program spells: which of its launches stand for the author's one.

Derived from recordings of both programs. The launches that write what the baseline kernel writes
are found by the contents of memory, by the names of the host code and of the parameters; then those
before them whose results they read. Where a value is the one that was seen, and does not follow
from the author's launch, `@requires` holds the plan to the sizes it was seen with. A wrong match is
no danger: whatever is derived is judged like any other rewrite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cudaops.domain.execution import Captured, RecordedLaunch
from cudaops.domain.program import Kernel, Program
from cudaops.domain.workload import ScalarArgument, Workload
from cudaops.errors import InputError
from cudaops.program.buffers import History, Pointing, calls_of, host_copies, memory_sets
from cudaops.program.lexing import byte_text, lex
from cudaops.program.plan_text import PlanLaunch, PlanText, closeness, plan_text, seen_as

_HIDDEN_LAUNCHES = frozenset({
    "cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchCooperativeKernelMultiDevice",
})  # fmt: skip
"""Launches that no recorder sees. Source: CUDA Runtime API and Driver API, execution control."""


class RecordedProgram(NamedTuple):
    """A program and what a run of it showed."""

    program: Program
    captured: Captured


def derived_plan(
    baseline: RecordedProgram,
    kernel: Kernel,
    workloads: Sequence[Workload],
    candidate: RecordedProgram,
    *,
    same_inputs: bool = True,
    general: bool = False,
) -> PlanText:
    """The candidate's launches in the place of one launch of the baseline's `kernel`.

    `general`: for launches of every size, where `plan_text` can say so.

    `same_inputs`: both host codes make the same inputs ready, so that memory with other contents is
    other memory. Else names decide.
    For the most expensive workload, and for every other one that its launches can be found for.
    Raises InputError, one line that names what cannot be taken over.
    """
    found = Derivation(baseline, kernel, candidate, same_inputs)
    first = found.steps(workloads[0])
    known = [(workloads[0], first)]
    for workload in workloads[1:]:
        try:
            steps = found.steps(workload)
        except InputError:
            continue
        if len(steps) == len(first) and all(map(PlanLaunch.agrees, first, steps)):
            known.append((workload, steps))
    try:
        return plan_text(kernel, known, general=general)
    except InputError:
        if len(known) == 1:
            raise
        return plan_text(kernel, known[:1], general=general)


class _Wanted(NamedTuple):
    """An allocation of the baseline's launch."""

    number: int
    size_bytes: int
    before: str
    after: str
    is_output: bool
    """The baseline changes it."""
    may_write: bool
    pointings: tuple[Pointing, ...]


class _Held(NamedTuple):
    """A buffer of the candidate as a run of its launches takes and leaves it."""

    buffer: int
    size_bytes: int
    before: str
    after: str
    is_written: bool
    read_first: bool
    """Only read by the first of the launches that has it."""
    pointings: tuple[Pointing, ...]


class _Window(NamedTuple):
    """Launches of the candidate, in order, and what their memory is to the baseline."""

    launches: tuple[int, ...]
    matched: dict[int, int]
    """Buffer to allocation."""


class Derivation:
    """The search for launches, over one recording of each program."""

    def __init__(
        self,
        baseline: RecordedProgram,
        kernel: Kernel,
        candidate: RecordedProgram,
        same_inputs: bool = True,
    ) -> None:
        self.baseline, self.kernel, self.candidate = baseline, kernel, candidate
        self.history = History(candidate.program, candidate.captured.recorded)
        self.author = History(baseline.program, baseline.captured.recorded)
        self.same = _unchanged(baseline.program, candidate.program) - {kernel.name}
        launches = self.history.launches
        self.new = [i for i, one in enumerate(launches) if one.kernel not in self.same]
        theirs = {c.kernel for c in baseline.captured.counts} - {kernel.name}
        self.stands_alone = theirs <= {c.kernel for c in candidate.captured.counts}
        """Whether every other kernel of the author is still launched: then all new ones stand for
        the one that is judged."""
        self.same_inputs = same_inputs
        self.sets = memory_sets(candidate.program)
        self.author_sets = {call.memory for call in memory_sets(baseline.program)}
        self.copied = {call.memory for call in host_copies(candidate.program)}

    def steps(self, workload: Workload) -> tuple[PlanLaunch, ...]:
        """Raises InputError."""
        if not self.new:
            raise InputError(self._nothing_new())
        wanted = self._wanted(workload)
        windows = [w for j in self.new if (w := self._window(j, wanted)) is not None]
        if not windows:
            raise InputError(self._no_window(workload, wanted))
        window = max(windows, key=lambda w: self._rank(w, wanted, workload))
        self._check_inputs(window, wanted)
        self._check_symbols(window)
        return tuple(self._emit(window, wanted, workload))

    def _wanted(self, workload: Workload) -> tuple[_Wanted, ...]:
        launches = self.author.launches
        seen = next((i for i, one in enumerate(launches) if _is_of(one, workload)), None)
        if seen is None:
            raise InputError("the author's program was recorded by an older cudaops; open it again")
        launch = launches[seen]
        changed = {n for n, m in enumerate(launch.memory) if m.before != m.after}
        changed = changed or {a.index for a in workload.allocations if a.role != "in"}
        return tuple(
            _Wanted(
                number=a.index,
                size_bytes=a.size_bytes,
                before=launch.memory[a.index].before,
                after=launch.memory[a.index].after,
                is_output=a.index in changed,
                may_write=a.role != "in",
                pointings=tuple(p for p in self.author.pointings[seen] if p.memory == a.index),
            )
            for a in workload.allocations
        )

    def _window(self, last: int, wanted: Sequence[_Wanted]) -> _Window | None:
        """The launches that end with `last`, where they write all that the baseline writes."""
        if self.history.launches[last].problem:
            return None
        launches = self._chain(last, wanted)
        matched = self._matched(launches, wanted)
        written = {b for i in launches for b in self.history.written(i)}
        outputs = {w.number for w in wanted if w.is_output}
        if not outputs <= {matched[b] for b in written if b in matched}:
            return None
        if not outputs & {matched.get(b) for b in self.history.written(last)}:
            return None  # whatever it is for, the results are there before it
        return _Window(tuple(launches), matched)

    def _chain(self, last: int, wanted: Sequence[_Wanted]) -> list[int]:
        """`last` and the launches before it whose results it needs."""
        history = self.history
        launches = [last]
        kernels = {history.launches[last].kernel}
        must, may = self._needs(last, self._matched([last], wanted), wanted)
        for i in sorted((n for n in self.new if n < last), reverse=True):
            written = history.written(i)
            by_name = history.launches[i].kernel not in kernels and bool(written & may)
            if history.launches[i].problem or not (written & must or by_name):
                continue
            launches.insert(0, i)
            kernels.add(history.launches[i].kernel)
            more, perhaps = self._needs(i, self._matched(launches, wanted), wanted)
            must, may = (must - written) | more, may | perhaps
        return launches

    def _needs(
        self, launch: int, matched: dict[int, int], wanted: Sequence[_Wanted]
    ) -> tuple[set[int], set[int]]:
        """Buffers that a launch before must have written, and those that one may have."""
        history = self.history
        must: set[int] = set()
        may: set[int] = set()
        for buffer in history.reached(launch):
            target = next((w for w in wanted if w.number == matched.get(buffer)), None)
            before = history.before(launch, buffer)
            if target is None:
                (may if buffer in history.written(launch) else must).add(buffer)
            elif (
                target.is_output and before != target.before and self._leads(launch, buffer, target)
            ):
                must.add(buffer)
            elif target.is_output and self.stands_alone:
                may.add(buffer)
        return must, may

    def _leads(self, launch: int, buffer: int, target: _Wanted) -> bool:
        """Whether an earlier launch found what the baseline finds, and this one what that left."""
        history = self.history
        if history.before(launch, buffer) == target.before:
            return False
        earlier = [i for i in self.new if i < launch and buffer in history.written(i)]
        return any(history.before(i, buffer) == target.before for i in earlier)

    def _held(self, launches: Sequence[int]) -> Iterator[_Held]:
        history = self.history
        for buffer in sorted({b for i in launches for b in history.reached(i)}):
            having = [i for i in launches if buffer in history.reached(i)]
            first, last = having[0], having[-1]
            yield _Held(
                buffer=buffer,
                size_bytes=history.buffers[buffer].size_bytes,
                before=history.before(first, buffer),
                after=history.after(last, buffer),
                is_written=any(buffer in history.written(i) for i in having),
                read_first=buffer not in history.written(first),
                pointings=tuple(
                    p
                    for i in having
                    for p in history.pointings[i]
                    if history.of[i][p.memory] == buffer
                ),
            )

    def _matched(self, launches: Sequence[int], wanted: Sequence[_Wanted]) -> dict[int, int]:
        """Buffer to allocation, the clearest pairs first."""
        held = list(self._held(launches))
        pairs = sorted(
            (
                (_likeness(h, w), -h.buffer, -w.number)
                for h in held
                for w in wanted
                if _may_be(h, w, not self.same_inputs or self._computed(h, launches))
                and (self._stands(launches[-1]) or not w.is_output or _says_so(h, w))
            ),
            reverse=True,
        )
        matched: dict[int, int] = {}
        for _, buffer, allocation in pairs:
            if -buffer not in matched and -allocation not in matched.values():
                matched[-buffer] = -allocation
        return matched

    def _stands(self, launch: int) -> bool:
        """Whether this launch is of the kernel's name, or can stand for no other kernel."""
        return self.stands_alone or self.history.launches[launch].kernel == self.kernel.name

    def _computed(self, held: _Held, launches: Sequence[int]) -> bool:
        """Whether an earlier launch wrote it: then its numbers may differ in the last place."""
        return any(held.buffer in self.history.written(i) for i in range(launches[0]))

    def _rank(
        self, window: _Window, wanted: Sequence[_Wanted], workload: Workload
    ) -> tuple[object, ...]:
        by_index = {w.number: w for w in wanted}
        held = {h.buffer: h for h in self._held(window.launches)}
        pairs = [(held[b], by_index[a]) for b, a in window.matched.items()]
        exact = sum(w.is_output and h.after == w.after != w.before for h, w in pairs)
        lost = sum(h.buffer not in window.matched and h.read_first for h in held.values())
        apart = sum(len(_other_sizes(self.history.launches[i], workload)) for i in window.launches)
        last = self.history.launches[window.launches[-1]].kernel
        # Where several of the author's kernels were replaced, names tell which by which.
        named = (0, 0.0) if self.stands_alone else closeness(last, self.kernel.name)
        likeness = sum(_likeness(h, w) for h, w in pairs)
        same = last == self.kernel.name
        return exact, same, -lost, -apart, likeness, named, window.launches[-1]

    def _check_inputs(self, window: _Window, wanted: Sequence[_Wanted]) -> None:
        """What the launches read must be the baseline's, or written by one of them."""
        done: set[int] = set()
        for i in window.launches:
            launch = self.history.launches[i]
            taken = self.candidate.program.kernel(launch.kernel).parameters
            if len(taken) != len(launch.arguments):
                raise InputError(
                    f"`{launch.kernel}` takes a pack of {len(launch.arguments) - len(taken) + 1} "
                    f"parameters as `{taken[-1].name}`, which a plan cannot spell"
                )
            for buffer in self.history.of[i]:
                written = buffer in self.history.written(i)
                if buffer in window.matched or buffer in done:
                    continue
                pointing = next(
                    p for p in self.history.pointings[i] if self.history.of[i][p.memory] == buffer
                )
                if not written or pointing.spelled in self.copied:
                    raise InputError(self._foreign(i, pointing, buffer, wanted))
            done |= self.history.written(i)

    def _foreign(
        self, launch: int, pointing: Pointing, buffer: int, wanted: Sequence[_Wanted]
    ) -> str:
        kernel = self.history.launches[launch].kernel
        what = f"parameter `{pointing.name}` of `{kernel}`"
        size = self.history.buffers[buffer].size_bytes
        alike = next((w for w in wanted if _share_a_name(pointing, w)), None)
        if alike is not None and alike.size_bytes != size:
            return f"{what} has {size} bytes, where `{self.kernel.name}` has {alike.size_bytes}"
        writers = [
            self.history.launches[i].kernel
            for i in range(launch)
            if buffer in self.history.written(i)
        ]
        if alike is not None and not alike.is_output and not writers:
            return (
                f"{what} holds other bytes than `{alike.pointings[0].name}` of "
                f"`{self.kernel.name}`: host code makes them ready in another way, and the rest of "
                "the author's program does not"
            )
        source = f"`{writers[-1]}` wrote" if writers else "host code filled"
        return (
            f"{what} reads {size} bytes that {source}, and `{self.kernel.name}` is given no such "
            "memory: only kernels are taken over, and what is launched in place of "
            f"`{self.kernel.name}` must compute it"
        )

    def _check_symbols(self, window: _Window) -> None:
        """A variable that host code fills has nobody to fill it in a rewrite."""
        program = self.candidate.program
        theirs = {(v.name, v.type_text) for v in self.baseline.program.global_variables}
        known = {v.name for v in program.global_variables if (v.name, v.type_text) in theirs}
        used = {
            token.text
            for i in window.launches
            for token in lex(byte_text(program.kernel(self.history.launches[i].kernel).text)).tokens
        }
        for _, arguments in calls_of(program, frozenset({"cudaMemcpyToSymbol"})):
            name = arguments[0].strip().rpartition("::")[2] if arguments else ""
            if name in used and name not in known:
                raise InputError(
                    f"`{name}` is filled by host code (cudaMemcpyToSymbol), and the author's "
                    "program has no such variable: only kernels are taken over"
                )

    def _emit(
        self, window: _Window, wanted: Sequence[_Wanted], workload: Workload
    ) -> Iterator[PlanLaunch]:
        scratch = {
            b: f"scratch{n}"
            for n, b in enumerate(
                b
                for b in dict.fromkeys(b for i in window.launches for b in self.history.of[i])
                if b not in window.matched
            )
        }
        cleared: set[int] = set()
        for i in window.launches:
            for pointing in self.history.pointings[i]:
                buffer = self.history.of[i][pointing.memory]
                value = self._set_to(pointing, self._target(window, buffer, wanted))
                if value is not None and buffer not in cleared:
                    yield PlanLaunch.setting(
                        scratch.get(buffer), window.matched.get(buffer),
                        self.history.buffers[buffer].size_bytes, value, workload,
                    )  # fmt: skip
                cleared.add(buffer)
            yield seen_as(
                self.history.launches[i],
                self.kernel,
                workload,
                {
                    n: (window.matched.get(b), scratch.get(b), self.history.buffers[b].size_bytes)
                    for n, b in enumerate(self.history.of[i])
                },
                self.same_inputs,
            )

    def _target(self, window: _Window, buffer: int, wanted: Sequence[_Wanted]) -> _Wanted | None:
        return next((w for w in wanted if w.number == window.matched.get(buffer)), None)

    def _set_to(self, pointing: Pointing, target: _Wanted | None) -> int | None:
        """The byte that host code fills this memory with, and the author's does not."""
        if pointing.read_only or not pointing.spelled:
            return None
        call = next((c for c in self.sets if c.memory == pointing.spelled), None)
        if call is None:
            return None
        if target is not None and _spelled(target.pointings) & self.author_sets:
            return None  # it is part of what the kernel finds
        try:
            return int(call.arguments[1], 0) & 0xFF
        except ValueError:
            raise InputError(
                f"cudaMemset fills `{pointing.spelled}` with `{call.arguments[1]}`; only a "
                "literal can be taken over"
            ) from None

    def _nothing_new(self) -> str:
        recorded = {one.kernel for one in self.history.launches}
        counted = {c.kernel for c in self.candidate.captured.counts}
        lost = sorted(counted - recorded - self.same)
        if lost:
            return f"the buffers of `{lost[0]}` exceed what is recorded; run a smaller problem"
        return self._hidden_launch() or (
            f"it launches nothing instead of `{self.kernel.name}`: a library call or host "
            "code in its place cannot be judged"
        )

    def _no_window(self, workload: Workload, wanted: Sequence[_Wanted]) -> str:
        launches = [self.history.launches[i] for i in self.new]
        for one in launches:
            if one.problem:
                return f"a launch of `{one.kernel}` cannot be followed: {one.problem}"
        sizes = [_other_sizes(one, workload) for one in launches]
        if all(sizes):
            name, value = sizes[0][0]
            return f"it launches its kernel for other sizes: {name} == {value} does not hold here"
        for i in self.new:
            for pointing in self.history.pointings[i]:
                buffer = self.history.of[i][pointing.memory]
                size = self.history.buffers[buffer].size_bytes
                alike = next((w for w in wanted if _share_a_name(pointing, w)), None)
                if alike is not None and alike.size_bytes != size:
                    return self._foreign(i, pointing, buffer, wanted)
        names = ", ".join(f"`{n}`" for n in dict.fromkeys(one.kernel for one in launches))
        outputs = ", ".join(
            f"`{w.pointings[0].name}` ({w.size_bytes} bytes)" for w in wanted if w.is_output
        )
        return self._hidden_launch() or (
            f"none of its new kernels ({names}) writes what `{self.kernel.name}` writes, "
            f"{outputs}: memory is matched by its size, its contents and its names"
        )

    def _hidden_launch(self) -> str:
        hidden = next((n for n, _ in calls_of(self.candidate.program, _HIDDEN_LAUNCHES)), None)
        if hidden is None:
            return ""
        return f"it launches by `{hidden}`, which is not seen; write `kernel<<<grid, block>>>(..)`"


def _is_of(launch: RecordedLaunch, workload: Workload) -> bool:
    return (
        launch.kernel == workload.kernel
        and launch.site == workload.site
        and (launch.callee, launch.grid, launch.block) == (
            workload.callee, workload.grid, workload.block
        )
        and launch.dynamic_smem_bytes == workload.dynamic_smem_bytes
        and launch.arguments == workload.arguments
    )  # fmt: skip


def _likeness(held: _Held, wanted: _Wanted) -> int:
    """How much speaks for a pair; contents most, then names."""
    points = 4 * (held.before == wanted.before)
    points += 4 * (wanted.after != wanted.before and held.after == wanted.after)
    points += 3 * bool(_spelled(held.pointings) & _spelled(wanted.pointings))
    points += 3 * bool(_names(held.pointings) & _names(wanted.pointings))
    points += bool({p.element for p in held.pointings} & {p.element for p in wanted.pointings})
    points += held.is_written == wanted.is_output
    points += bool({p.position for p in held.pointings} & {p.position for p in wanted.pointings})
    return points


def _may_be(held: _Held, wanted: _Wanted, inexact: bool) -> bool:
    if held.size_bytes != wanted.size_bytes:
        return False
    if held.before != held.after and not wanted.may_write:
        return False
    if held.before == wanted.before:
        return True
    if wanted.is_output:
        return _says_so(held, wanted)
    return _named_alike(held, wanted) and inexact


def _says_so(held: _Held, wanted: _Wanted) -> bool:
    """Whether its name or its result says that it is this output: memory that nobody wrote yet is
    alike wherever it has the same size."""
    return _named_alike(held, wanted) or held.after == wanted.after != wanted.before


def _named_alike(held: _Held, wanted: _Wanted) -> bool:
    return bool(
        _spelled(held.pointings) & _spelled(wanted.pointings)
        or _names(held.pointings) & _names(wanted.pointings)
    )


def _spelled(pointings: Iterable[Pointing]) -> set[str]:
    return {p.spelled for p in pointings if p.spelled}


def _names(pointings: Iterable[Pointing]) -> set[str]:
    return {p.name for p in pointings}


def _share_a_name(pointing: Pointing, wanted: _Wanted) -> bool:
    return pointing.name in _names(wanted.pointings) or pointing.spelled in _spelled(
        wanted.pointings
    )


def _other_sizes(launch: RecordedLaunch, workload: Workload) -> list[tuple[str, int]]:
    """Integers that the launch and the workload have under one name with different values."""
    here = {a.name: a.value for a in workload.arguments if isinstance(a, ScalarArgument)}
    return [
        (a.name, a.value)
        for a in launch.arguments
        if isinstance(a, ScalarArgument)
        and isinstance(a.value, int)
        and here.get(a.name, a.value) != a.value
    ]


def _unchanged(baseline: Program, candidate: Program) -> set[str]:
    """Kernels that both programs define with the same words."""
    words = {k.name: _words(k) for k in baseline.kernels}
    return {k.name for k in candidate.kernels if words.get(k.name) == _words(k)}


def _words(kernel: Kernel) -> list[str]:
    return [t.text for t in lex(byte_text(kernel.text)).tokens]
