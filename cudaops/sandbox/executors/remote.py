"""The `remote` executor: kernels compile and run where a service of cudaops is (docs/remote.md).

Calls are stateless: what a call is about goes with it, so any worker of the service can do it.
Files go by the hash of their contents, once. Where files land here is decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from cudaops.cuda import devices
from cudaops.domain.execution import (
    Captured,
    CaptureOutcome,
    Compiled,
    CompileFailed,
    Image,
    Measurement,
    Misbehaved,
    ProgramOutcome,
    ProgramRan,
    Ran,
    TimeSource,
    Unit,
)
from cudaops.domain.judgement import IsolationLevel, Precision
from cudaops.domain.profile import Profile
from cudaops.domain.program import Program
from cudaops.domain.rewrite import ResolvedPlan
from cudaops.domain.workload import Workload
from cudaops.errors import InputError
from cudaops.sandbox import wire
from cudaops.sandbox.executors.base import Check, InputSet
from cudaops.sandbox.executors.cpu_unit import check_series, launch_folder
from cudaops.sandbox.executors.elsewhere import (
    CannotLook,
    Machinery,
    NotPreprocessed,
    ObjectLook,
    PreprocessorRefused,
    TextView,
)
from cudaops.sandbox.executors.remote_calls import Parcel, RemoteCalls, expect
from cudaops.sandbox.executors.remote_place import choose_place
from cudaops.sandbox.executors.remote_transport import PATIENCE_S, Transport
from cudaops.sandbox.wire_checks import check_argument

FACTS = "remote.json"
"""What is kept here of a build that was made elsewhere."""


class RemoteExecutor:
    """Implements `Executor` and `LooksElsewhere` on the workers of a service."""

    name: Literal["cpu", "cuda", "remote"] = "remote"

    def __init__(
        self,
        server: str,
        token: str | None,
        cache_folder: Path,
        *,
        device: str | None = None,
        sm_arch: str | None = None,
        behind: Machinery | None = None,
        program_folder: Path | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`device`: a GPU of that name there, or whose time is modelled there; None: any GPU, or
        A10. `behind`: what must work there, for a run that has begun on it; None: a GPU where
        there is one.

        Raises InputError where `server` is no address or the device is not known.
        """
        self.transport = Transport(server, token, patience_s)
        self.program_folder = program_folder
        self._calls = RemoteCalls(self.transport)
        self.cache = cache_folder.absolute()
        self._wanted_device = device or None
        self._wanted_arch = sm_arch or ""
        self._wanted = behind

    @cached_property
    def place(self) -> wire.Place:
        """Where calls go. Asks the service once; raises PrerequisiteError, SandboxUnavailable."""
        return choose_place(self.transport, self._wanted_device, self._wanted_arch, self._wanted)

    @cached_property
    def _description(self) -> wire.Description:
        description = self._calls.parcel().call(
            self.place, wire.Describe(), lambda reply: expect(reply, wire.Description)
        )
        if description.device_row is not None:
            devices.register(devices.from_record(description.device_row))
        return description

    @property
    def behind(self) -> Machinery:
        """See `LooksElsewhere.behind`."""
        return self.place.executor

    @property
    def device(self) -> str:
        """Name of the device there."""
        return self._description.device

    @property
    def sm_arch(self) -> str:
        """What nvcc builds for there."""
        found = self._description.sm_arch or self._wanted_arch
        return found or devices.device(self.device).sm_arch

    @property
    def time_source(self) -> TimeSource:
        """Clock of the executor there."""
        return self._description.time_source

    @property
    def isolation(self) -> IsolationLevel:
        """How well untrusted code is confined there. None of it runs here."""
        return self._description.isolation

    def check_available(self) -> None:
        """Raise PrerequisiteError or SandboxUnavailable, with a remedy: no service, another
        version, no token, or no worker with such an executor."""
        _ = self._description

    def close(self) -> None:
        """Close every connection."""
        self.transport.close()

    def capture(
        self,
        program: Program,
        kernel: str | None,
        argv: tuple[str, ...],
        folder: Path,
        timeout_s: float,
    ) -> CaptureOutcome:
        """See `Executor.capture`. The program runs there, in an empty folder."""
        self._check_argv(argv)
        parcel = self._calls.parcel()
        call = wire.Capture(
            program=parcel.document(program),
            kernel=kernel,
            argv=argv,
            timeout_s=_limit(timeout_s),
        )

        def landed(reply: wire.Reply) -> CaptureOutcome:
            found = expect(reply, Captured, CompileFailed, Misbehaved)
            if not isinstance(found, Captured):
                return found
            workloads = tuple(parcel.landed_workload(w, folder) for w in found.workloads)
            return found.model_copy(update={"workloads": workloads})

        return parcel.call(self.place, call, landed)

    def run_program(
        self, program: Program, argv: tuple[str, ...], timeout_s: float
    ) -> ProgramOutcome:
        """See `Executor.run_program`. In an empty folder there."""
        self._check_argv(argv)
        parcel = self._calls.parcel()
        call = wire.RunProgram(
            program=parcel.document(program), argv=argv, timeout_s=_limit(timeout_s)
        )
        return parcel.call(
            self.place, call, lambda reply: expect(reply, ProgramRan, CompileFailed, Misbehaved)
        )

    def prepare(self, program: Program) -> None:
        """Ask for the build without waiting for it. Whether it works shows when it is run."""
        if self.behind == "cuda":
            parcel = self._calls.parcel()
            parcel.begin(self.place, wire.Prepare(program=parcel.document(program)))

    def compile(self, unit: Unit, *, draft: bool = False) -> Compiled | CompileFailed:
        """See `Executor.compile`. `folder` holds no more than what is known of the build."""
        parcel = self._calls.parcel()
        call = wire.Compile(unit=parcel.document(unit), draft=draft)
        built = parcel.call(
            self.place, call, lambda reply: expect(reply, wire.Built, CompileFailed)
        )
        return built if isinstance(built, CompileFailed) else self._compiled(unit, built)

    def run(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        inputs: InputSet,
        folder: Path,
        *,
        check: Check = "none",
        timeout_s: float = 60.0,
    ) -> Ran | Misbehaved:
        """See `Executor.run`. Outputs that equal what lies here already are copied, not fetched."""
        parcel = self._calls.parcel()
        launch = self._launch(parcel, compiled, workload, plan, timeout_s)
        call = wire.Run(**launch, inputs=parcel.inputs(inputs), check=check)

        def landed(reply: wire.Reply) -> Ran | Misbehaved:
            found = expect(reply, Ran, Misbehaved)
            return found if isinstance(found, Misbehaved) else parcel.landed_ran(found, folder)

        return parcel.call(self.place, call, landed)

    def run_series(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        inputs: Sequence[InputSet],
        folder: Path,
        *,
        timeout_s: float = 60.0,
    ) -> tuple[Ran, ...] | Misbehaved:
        """See `Executor.run_series`. One call."""
        check_series(inputs)
        parcel = self._calls.parcel()
        launch = self._launch(parcel, compiled, workload, plan, timeout_s)
        call = wire.RunSeries(**launch, series=tuple(parcel.inputs(one) for one in inputs))

        def landed(reply: wire.Reply) -> tuple[Ran, ...] | Misbehaved:
            found = expect(reply, wire.SeriesRan, Misbehaved)
            if isinstance(found, Misbehaved):
                return found
            return tuple(
                parcel.landed_ran(one, launch_folder(folder.absolute(), number))
                for number, one in enumerate(found.launches)
            )

        return parcel.call(self.place, call, landed)

    def measure(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        samples: int = 1,
        timeout_s: float = 120.0,
    ) -> Measurement | Misbehaved:
        """See `Executor.measure`."""
        parcel = self._calls.parcel()
        launch = self._launch(parcel, compiled, workload, plan, timeout_s)
        call = wire.Measure(**launch, samples=samples)
        return parcel.call(self.place, call, lambda reply: expect(reply, Measurement, Misbehaved))

    def measure_pair(
        self,
        baseline: Compiled,
        candidate: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        alternatives: Sequence[InputSet] = (),
        folder: Path | None = None,
        timeout_s: float = 120.0,
    ) -> tuple[Measurement, Measurement] | Misbehaved:
        """See `Executor.measure_pair`. One call: both are timed on one machine, side by side."""
        parcel = self._calls.parcel()
        call = wire.MeasurePair(
            **self._launch(parcel, candidate, workload, plan, timeout_s),
            baseline=parcel.document(baseline.unit),
            baseline_draft=baseline.draft,
            alternatives=tuple(parcel.inputs(one) for one in alternatives),
            watched=folder is not None,
        )

        def landed(reply: wire.Reply) -> tuple[Measurement, Measurement] | Misbehaved:
            pair = expect(reply, wire.Pair, Misbehaved)
            if isinstance(pair, Misbehaved):
                return pair
            if folder is None:
                return pair.baseline, pair.candidate
            return (
                parcel.landed_outputs(pair.baseline, folder.absolute(), "baseline"),
                parcel.landed_outputs(pair.candidate, folder.absolute(), "candidate"),
            )

        return parcel.call(self.place, call, landed)

    def profile(
        self,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        *,
        timeout_s: float = 120.0,
    ) -> Profile | Misbehaved:
        """See `Executor.profile`."""
        parcel = self._calls.parcel()
        call = wire.ProfileLaunch(**self._launch(parcel, compiled, workload, plan, timeout_s))
        found = parcel.call(
            self.place, call, lambda reply: expect(reply, wire.Profiled, Misbehaved)
        )
        return found if isinstance(found, Misbehaved) else found.profile

    def tools(self) -> Mapping[str, str]:
        """Those of the executor there."""
        return self._description.tools

    def texts(self, unit: Unit, sm_arch: str) -> list[TextView]:
        """See `LooksElsewhere.texts`."""
        parcel = self._calls.parcel()
        call = wire.Texts(unit=parcel.document(unit), sm_arch=sm_arch)
        seen = self._seen(parcel, call)
        if isinstance(seen, wire.NotSeen):
            raise (PreprocessorRefused if seen.refused else NotPreprocessed)(seen.problem)
        return list(seen.texts)

    def object_looks(
        self, compiled: Compiled, baseline: Compiled, sm_arch: str, allowed: Precision | None
    ) -> tuple[ObjectLook, ...]:
        """See `LooksElsewhere.object_looks`."""
        parcel = self._calls.parcel()
        call = wire.ObjectLooks(
            unit=parcel.document(compiled.unit),
            draft=compiled.draft,
            baseline=parcel.document(baseline.unit),
            sm_arch=sm_arch,
            allowed=allowed,
        )
        seen = self._seen(parcel, call)
        if isinstance(seen, wire.NotSeen):
            raise CannotLook(seen.problem)
        return seen.objects

    def _seen(self, parcel: Parcel, call: wire.Call) -> wire.Seen | wire.NotSeen:
        return parcel.call(self.place, call, lambda reply: expect(reply, wire.Seen, wire.NotSeen))

    def _launch(
        self,
        parcel: Parcel,
        compiled: Compiled,
        workload: Workload,
        plan: ResolvedPlan,
        timeout_s: float,
    ) -> dict[str, Any]:
        """What every call that launches has."""
        return {
            "unit": parcel.document(compiled.unit),
            "draft": compiled.draft,
            "workload": parcel.workload(workload),
            "plan": plan,
            "timeout_s": _limit(timeout_s),
        }

    def _compiled(self, unit: Unit, built: wire.Built) -> Compiled:
        folder = self.cache / hashlib.sha256(built.key.encode()).hexdigest()[:24]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FACTS).write_text(built.model_dump_json(), encoding="utf-8")
        image = None
        if built.image is not None and built.image_sha256 is not None:
            image = Image(name=built.image, sha256=built.image_sha256)
        return Compiled(
            key=built.key,
            folder=str(folder),
            unit=unit,
            command=built.command,
            compiler=built.compiler,
            seconds=built.seconds,
            cached=built.cached,
            log=built.log,
            resources=built.resources,
            draft=built.draft,
            image=image,
        )

    def _check_argv(self, argv: Sequence[str]) -> None:
        """Raise InputError for an argument that names a file here: it would not be there."""
        where = self.program_folder or Path.cwd()
        for word in argv:
            named = word.rpartition("=")[2]
            if named and "\0" not in named and (where / named).exists():
                raise InputError(
                    f"the argument {word!r} names a file, and the remote executor sends none but "
                    "the program's own sources; run the program where its data is: "
                    "--executor cpu or cuda there"
                )
            try:
                check_argument(word)
            except ValueError as problem:
                raise InputError(str(problem)) from None


def _limit(timeout_s: float) -> float:
    return min(timeout_s, wire.MAX_TIMEOUT_S)
