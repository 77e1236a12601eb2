"""What the MCP servers are handed for another agent host: how to open a program, run the whole
loop, and keep what was accepted as a run."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cudaops.agents.verify import attempt_of
from cudaops.domain.judgement import Policy
from cudaops.domain.run import Event, ExecutorChoice, RunOptions, RunRecord
from cudaops.errors import InputError
from cudaops.graph.certificate import CERTIFICATE_NAME
from cudaops.graph.placing import Proposing, Target, choose, new_folder, place, run_options
from cudaops.graph.run import Begun, begin, finish, start
from cudaops.graph.verify_files import decided_state
from cudaops.mcp_servers.accepting import WrittenRun
from cudaops.mcp_servers.optimize import OptimizeRequest
from cudaops.mcp_servers.session import Decision, Session
from cudaops.models.host import lending
from cudaops.program.given import check_arguments
from cudaops.sandbox.isolation.level import level_of
from cudaops.sandbox.stripping import CONFINED
from cudaops.sandbox.workbench import Workbench
from cudaops.settings import Settings

if TYPE_CHECKING:
    from cudaops.models.host import HostModel


@dataclass(frozen=True, kw_only=True)
class Hosting:
    """How a server for other hosts works."""

    settings: Settings
    where: Target
    policy: Policy = field(default_factory=Policy)
    timeout_s: float = 120.0
    trust_source: bool = False
    _begun: dict[Path, Begun] = field(default_factory=dict, repr=False)
    """Programs that are open, by run folder."""
    strangers: bool = False
    """Whether callers are somebody else: nothing of theirs outlives their session, their programs
    run confined or not at all, in a folder of their own, and memory is neither read nor written."""

    def session(self) -> Session:
        """The session of the one host that this server runs for; its runs are the user's."""
        made: list[Path] = []
        runs = self.settings.runs.resolve()
        texts = tempfile.mkdtemp(prefix="cudaops-mcp-")

        def clear() -> None:
            shutil.rmtree(texts, ignore_errors=True)
            for opened in made:
                _tidy(opened)
            self._forget(made)

        return Session(self._opener(runs, made), folder=Path(texts), runs=runs, on_close=clear)

    def strangers_session(self, closed_before: str | None) -> Session:
        """The session of one of many hosts: all it leaves lies in a folder that goes with it."""
        folder = Path(tempfile.mkdtemp(prefix="cudaops-mcp-")).resolve()
        made: list[Path] = []

        def clear() -> None:
            shutil.rmtree(folder, ignore_errors=True)
            self._forget(made)

        return Session(
            self._opener(folder / "runs", made),
            folder=folder,
            runs=folder / "runs",
            paths=not self.strangers,
            on_close=clear,
            closed_before=closed_before,
        )

    def optimize(
        self,
        request: OptimizeRequest,
        on_event: Callable[[Event], None],
        model: HostModel | None,
    ) -> RunRecord:
        """The whole loop, with the host's model where one is given.

        Raises what `graph.run.start` does, and Stopped.
        """
        if model is None:
            proposing = choose(request.optimizer, None, self.settings)
        else:
            proposing = Proposing("llm", model.name_text)
        if request.no_model is not None:
            proposing = proposing._replace(no_model=request.no_model)
        policy, wanted = self.policy, request.min_speedup
        if wanted is not None:
            policy = policy.model_copy(update={"min_speedup": max(wanted, policy.min_speedup)})
        options = self._options(
            request.path,
            request.runs,
            request.kernel,
            request.arguments,
            where=self._where(request.executor, request.device),
            policy=policy,
            max_iterations=request.max_iterations,
            proposing=proposing._replace(
                search=proposing.search.model_copy(update={"strategy": request.strategy}),
                budget_minutes=request.budget_minutes,
                use_memory=not self.strangers,
            ),
        )
        with lending(model):
            return start(options, on_event, self.settings)

    def write_run(self, bench: Workbench, decision: Decision) -> WrittenRun:
        """Keep an accepted rewrite as a run in the bench's folder, with its certificate."""
        started = time.monotonic()
        begun = self._begun[bench.folder]
        evaluation, judgement = decision
        attempt = attempt_of(evaluation, judgement, 1)
        state = decided_state(bench, evaluation, judgement, attempt, 0.0)
        record = finish(begun, state, started, self.settings.signing_key, goes_on=True)
        certificate = bench.folder / CERTIFICATE_NAME
        return WrittenRun(record, certificate.read_text("utf-8") if certificate.is_file() else None)

    def _opener(
        self, runs: Path, made: list[Path]
    ) -> Callable[[Path, str | None, tuple[str, ...]], Workbench]:
        def open_program(path: Path, kernel: str | None, argv: tuple[str, ...]) -> Workbench:
            options = self._options(path, runs, kernel, argv, where=self.where, policy=self.policy)
            begun = begin(options, lambda _: None, self.settings)
            made.append(begun.folder)
            self._begun[begun.folder] = begun
            return begun.bench

        return open_program

    def _forget(self, made: list[Path]) -> None:
        for folder in made:
            self._begun.pop(folder, None)

    def _options(
        self,
        path: Path,
        runs: Path,
        kernel: str | None,
        argv: tuple[str, ...],
        *,
        where: Target,
        policy: Policy,
        max_iterations: int = 3,
        proposing: Proposing | None = None,
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
            check_arguments(argv)
        path = path.resolve()
        return run_options(
            path,
            new_folder(None, runs, path, kernel),
            where,
            argv=argv,
            kernel=kernel,
            proposing=proposing,
            max_iterations=max_iterations,
            timeout_s=self.timeout_s,
            policy=policy,
            trust_source=self.trust_source and not self.strangers,
            working_folder=path.parent if self.strangers else None,
        )

    def _where(self, executor: ExecutorChoice | None, device: str | None) -> Target:
        if executor is None and device is None:
            return self.where
        return place(executor or self.where.executor, device, None)


def _tidy(folder: Path) -> None:
    """Of a run keep all but what can be made again; of a program that led to none, nothing."""
    if not (folder / "run.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        return
    shutil.rmtree(folder / "work", ignore_errors=True)
