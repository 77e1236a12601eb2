"""What the MCP servers are handed for another agent host: how to open a program, run the whole
loop, and keep what was accepted as a run.

The graph is imported by the first call that needs it: a host waits for a server to come up, some
for five seconds only, and the graph is two fifths of what is read.
"""

from __future__ import annotations

import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cudaops.domain.judgement import Policy
from cudaops.domain.options import KernelOptions
from cudaops.domain.run import Event, RunOptions, RunRecord
from cudaops.errors import InputError
from cudaops.executors.base import Executor, close_executor
from cudaops.executors.isolation.level import level_of
from cudaops.executors.untrusted_files import remove
from cudaops.graph.resolve_options import Proposer, Target, choose, new_folder, place, resolve
from cudaops.mcp_servers.opening import OpenOptions
from cudaops.mcp_servers.optimize import OptimizeCall, ToolOptions
from cudaops.mcp_servers.sessions import JudgedRewrite, Session
from cudaops.program.given import check_arguments
from cudaops.sandbox.stripping import CONFINED
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings

if TYPE_CHECKING:
    from cudaops.graph.opening import OpenRun
    from cudaops.models.mcp_sampling import HostModel


@dataclass(frozen=True, kw_only=True)
class Hosting:
    """How a server for other hosts works."""

    settings: Settings
    where: Target
    policy: Policy = field(default_factory=Policy)
    timeout_s: float = 120.0
    trust_source: bool = False
    _open_runs: WeakKeyDictionary[Workbench, Callable[[Workbench], OpenRun]] = field(
        default_factory=WeakKeyDictionary, repr=False
    )
    """What began with a bench, for whoever holds it."""
    strangers: bool = False
    """Whether callers are somebody else: nothing of theirs outlives their session, their programs
    run confined or not at all, in a folder of their own, and memory is neither read nor written."""

    def session(self) -> Session:
        """The session of the one host that this server runs for; its runs are the user's."""
        texts = Path(tempfile.mkdtemp(prefix="cudaops-mcp-"))
        programs = _OpenPrograms(texts, only_read=False)
        return Session(
            self._opener(self._users_runs, programs),
            folder=texts,
            runs=self._users_runs,
            on_close=programs.close,
        )

    def strangers_session(self, closed_before: str | None) -> Session:
        """The session of one of many hosts: all it leaves lies in a folder that goes with it."""
        folder = Path(tempfile.mkdtemp(prefix="cudaops-mcp-")).resolve()
        programs = _OpenPrograms(folder, only_read=True)
        return Session(
            self._opener(folder / "runs", programs),
            folder=folder,
            runs=folder / "runs",
            paths=not self.strangers,
            on_close=programs.close,
            closed_before=closed_before,
        )

    def optimize(
        self,
        request: OptimizeCall,
        on_event: Callable[[Event], None],
        model: HostModel | None,
    ) -> RunRecord:
        """The whole loop, with the host's model where one is given.

        Raises what `graph.run.start` does, and Stopped.
        """
        from cudaops.graph.run import start
        from cudaops.models.mcp_sampling import lending

        asked = request.options
        if model is not None:
            proposer = Proposer("llm", model.name_text)
        elif asked.optimizer == "host":
            proposer = Proposer(no_model=request.no_model)
        else:
            proposer = choose(asked.optimizer, None, self.settings)
        policy, wanted = self.policy, asked.min_speedup
        if wanted is not None:
            policy = policy.model_copy(update={"min_speedup": max(wanted, policy.min_speedup)})
        options = self._options(
            request.path,
            request.runs,
            asked,
            where=self._where(asked),
            policy=policy,
            timeout_seconds=asked.timeout_seconds or self.timeout_s,
            proposer=proposer,
            use_memory=not self.strangers,
        )
        try:
            with lending(model):
                return start(options, on_event, self.settings)
        finally:
            if request.runs != self._users_runs:
                _tidy(Path(options.out), only_read=True)

    def write_run(self, bench: Workbench, decision: JudgedRewrite) -> RunRecord:
        """Keep an accepted rewrite as a run in the bench's folder, with its certificate."""
        from cudaops.agents.supervisor import attempt_of
        from cudaops.graph.finishing import finish
        from cudaops.graph.verify_files import decided_state

        started = time.monotonic()
        open_run = self._open_runs[bench](bench)
        evaluation, judgement = decision
        attempt = attempt_of(evaluation, judgement, 1)
        state = decided_state(bench, evaluation, judgement, attempt, 0.0)
        # This record's seconds are not those that the host's tools used the GPU for.
        unpriced = self.settings.model_copy(update={"gpu_price": None})
        return finish(open_run, state, started, unpriced, goes_on=True)

    def _opener(
        self, runs: Path, programs: _OpenPrograms
    ) -> Callable[[Path, KernelOptions], Workbench]:
        def open_program(path: Path, asked: KernelOptions) -> Workbench:
            from cudaops.graph.opening import begin

            where = self._where(asked) if isinstance(asked, OpenOptions) else self.where
            options = self._options(path, runs, asked, where=where, policy=self.policy)
            open_run = begin(options, lambda _: None, self.settings)
            self._open_runs[open_run.bench] = _but_its_bench(open_run)
            programs.add(open_run.bench)
            return open_run.bench

        return open_program

    @property
    def _users_runs(self) -> Path:
        return self.settings.runs.resolve()

    def _options(
        self, path: Path, runs: Path, asked: KernelOptions, *, where: Target, **fixed: Any
    ) -> RunOptions:
        if not path.is_file():
            raise InputError(
                f"{path}: no such file; give an absolute path, or the program's text in `source`"
            )
        if self.strangers and (level := level_of("program")) not in CONFINED:
            raise InputError(
                f"this server runs programs of others only at isolation {' or '.join(CONFINED)}, "
                f"here it is {level}: use a server on another machine"
            )
        if self.strangers:
            check_arguments(asked.program_words)
            fixed["working_folder"] = str(path.resolve().parent)
        path = path.resolve()
        return resolve(
            asked,
            path,
            new_folder(None, runs, path, asked.kernel),
            where,
            self.settings,
            **{
                "timeout_seconds": self.timeout_s,
                "trust_source": self.trust_source and not self.strangers,
                **fixed,
            },
        )

    def _where(self, asked: OpenOptions | ToolOptions) -> Target:
        if asked.executor is None and asked.device is None and asked.arch is None:
            return self.where
        if asked.executor == "remote":
            # It would act there with the token of whoever started this server.
            raise InputError("this server forwards no jobs: omit `executor`")
        return place(asked.executor or self.where.executor, asked.device, asked.arch)


class _OpenPrograms:
    """The programs that one session opened. One that another took the place of goes when the last
    call that is at work on it has ended: nothing but calls holds its bench then."""

    def __init__(self, folder: Path, *, only_read: bool) -> None:
        """`folder` goes with the session. `only_read`: its runs are read, and nothing else."""
        self._folder = folder
        self._only_read = only_read
        self._lock = threading.Lock()
        self._closed = False
        self._ends: list[weakref.finalize[..., Workbench]] = []

    def add(self, bench: Workbench) -> None:
        """Raises InputError where the session has ended while it was opened; it is gone then."""
        with self._lock:
            self._ends = [end for end in self._ends if end.alive]
            self._ends.append(
                weakref.finalize(bench, _end, bench.executor, bench.folder, self._only_read)
            )
            closed = self._closed
        if closed:
            self.close()
            raise InputError("the session ended while the program was opened; open it again")

    def close(self) -> None:
        """End all that is left, at work or not."""
        with self._lock:
            self._closed = True
            ends = list(self._ends)
        with ExitStack() as every:
            every.callback(remove, self._folder)
            for end in ends:
                every.callback(end)


def _end(executor: Executor, folder: Path, only_read: bool) -> None:
    try:
        close_executor(executor)
    finally:
        _tidy(folder, only_read=only_read)


def _but_its_bench(open_run: OpenRun) -> Callable[[Workbench], OpenRun]:
    """`open_run` for whoever has its bench: kept as it is, it would keep that for ever."""
    options, _, events, date, seconds = open_run
    of = type(open_run)
    return lambda bench: of(options, bench, events, date, seconds)


def _tidy(folder: Path, *, only_read: bool) -> None:
    """Of a run keep all but what can be made again, and no captured buffers where it will only be
    read; of a program that led to none, nothing."""
    if not (folder / "run.json").is_file():
        remove(folder)
        return
    for name in ("work", "workloads") if only_read else ("work",):
        remove(folder / name)
