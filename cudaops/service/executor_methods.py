"""What each call of an executor elsewhere does here, on files of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cudaops.cuda import devices
from cudaops.domain.execution import Compiled, CompileFailed, Misbehaved, Unit
from cudaops.domain.profile import Profile
from cudaops.domain.program import Program
from cudaops.errors import SandboxUnavailable
from cudaops.sandbox.executors.cpu import CpuExecutor
from cudaops.sandbox.executors.cpu_build import EXECUTABLE
from cudaops.sandbox.executors.cuda import CudaExecutor
from cudaops.sandbox.executors.elsewhere import NotPreprocessed, PreprocessorRefused
from cudaops.sandbox.gpu.build import IMAGE
from cudaops.sandbox.verification.objects import CANNOT_LOOK, looks_of
from cudaops.sandbox.verification.preprocessed import views_of
from cudaops.sandbox.wire import (
    Built,
    Call,
    Capture,
    Compile,
    Describe,
    Description,
    Measure,
    MeasurePair,
    NotSeen,
    ObjectLooks,
    OnWorkload,
    Pair,
    Prepare,
    Prepared,
    Profiled,
    ProfileLaunch,
    Reply,
    Run,
    RunProgram,
    RunSeries,
    Seen,
    SeriesRan,
    Texts,
)
from cudaops.sandbox.wire_checks import check_call, check_program, check_unit
from cudaops.sandbox.wire_files import sha256_of


class Callee(NamedTuple):
    """What a call is done with."""

    executor: CpuExecutor | CudaExecutor
    documents: dict[str, str]
    """Reference to file."""
    folder: Path
    """Of the call."""

    @property
    def out(self) -> Path:
        """Where files land that go back."""
        return self.folder / "out"

    def unit(self, reference: str) -> Unit:
        """Raises ValueError where it is none, or names what no unit may."""
        unit = Unit.model_validate_json(Path(self.documents[reference]).read_bytes())
        check_unit(unit)
        return unit

    def program(self, reference: str) -> Program:
        """The same of a whole program."""
        program = Program.model_validate_json(Path(self.documents[reference]).read_bytes())
        check_program(program)
        return program

    def compiled(self, reference: str, draft: bool) -> Compiled:
        """What the client has compiled here or on a machine like this one."""
        outcome = self.executor.compile(self.unit(reference), draft=draft)
        if isinstance(outcome, CompileFailed):
            raise SandboxUnavailable(
                f"what compiled before does not compile now: {outcome.placed}",
                "start the run again: the service's compilers have changed",
            )
        return outcome


def perform(callee: Callee, call: Call) -> Reply:
    """Do a call. Raises what the executor raises, and ValueError for what no call may say."""
    check_call(call)
    if isinstance(call, Describe):
        return _described(callee.executor)
    if isinstance(call, Compile):
        return _built(callee.executor.compile(callee.unit(call.unit), draft=call.draft))
    if isinstance(call, Texts):
        return _texts(callee, call)
    if isinstance(call, ObjectLooks):
        return _objects(callee, call)
    if isinstance(call, OnWorkload):
        return _launched(callee, call)
    program = callee.program(call.program)
    if isinstance(call, Prepare):
        callee.executor.prepare(program)
        return Prepared()
    if isinstance(call, RunProgram):
        return callee.executor.run_program(program, call.argv, call.timeout_s)
    assert isinstance(call, Capture)
    return callee.executor.capture(program, call.kernel, call.argv, callee.out, call.timeout_s)


def _launched(callee: Callee, call: OnWorkload) -> Reply:
    executor, workload, plan = callee.executor, call.workload, call.plan
    compiled = callee.compiled(call.unit, call.draft)
    limit = call.timeout_s
    if isinstance(call, Run):
        return executor.run(
            compiled, workload, plan, call.inputs, callee.out, check=call.check, timeout_s=limit
        )
    if isinstance(call, RunSeries):
        ran = executor.run_series(
            compiled, workload, plan, call.series, callee.out, timeout_s=limit
        )
        return ran if isinstance(ran, Misbehaved) else SeriesRan(launches=ran)
    if isinstance(call, Measure):
        return executor.measure(compiled, workload, plan, samples=call.samples, timeout_s=limit)
    if isinstance(call, MeasurePair):
        pair = executor.measure_pair(
            callee.compiled(call.baseline, call.baseline_draft),
            compiled,
            workload,
            plan,
            alternatives=call.alternatives,
            folder=callee.out if call.watched else None,
            timeout_s=limit,
        )
        return pair if isinstance(pair, Misbehaved) else Pair(baseline=pair[0], candidate=pair[1])
    assert isinstance(call, ProfileLaunch)
    found = executor.profile(compiled, workload, plan, timeout_s=limit)
    return Profiled(profile=found) if isinstance(found, Profile) else found


def _described(executor: CpuExecutor | CudaExecutor) -> Description:
    executor.check_available()
    return Description(
        device=executor.device,
        sm_arch=executor.sm_arch if isinstance(executor, CudaExecutor) else "",
        time_source=executor.time_source,
        isolation=executor.isolation,
        tools=dict(executor.tools()),
        device_row=devices.to_record(devices.device(executor.device)),
    )


def _built(outcome: Compiled | CompileFailed) -> Built | CompileFailed:
    if isinstance(outcome, CompileFailed):
        return outcome
    files = (Path(outcome.folder) / name for name in (IMAGE, EXECUTABLE))
    image = next((path for path in files if path.is_file()), None)
    return Built(
        key=outcome.key,
        command=outcome.command.replace(outcome.folder, "."),
        compiler=outcome.compiler,
        seconds=outcome.seconds,
        cached=outcome.cached,
        log=outcome.log,
        resources=outcome.resources,
        draft=outcome.draft,
        image=None if image is None else image.name,
        image_sha256=None if image is None else sha256_of(image),
    )


def _texts(callee: Callee, call: Texts) -> Seen | NotSeen:
    try:
        return Seen(texts=tuple(views_of(callee.executor, callee.unit(call.unit), call.sm_arch)))
    except NotPreprocessed as problem:
        return NotSeen(problem=str(problem), refused=isinstance(problem, PreprocessorRefused))


def _objects(callee: Callee, call: ObjectLooks) -> Seen | NotSeen:
    compiled = callee.compiled(call.unit, call.draft)
    baseline = callee.compiled(call.baseline, draft=False)
    try:
        found = looks_of(callee.executor, compiled, baseline, call.sm_arch, call.allowed)
        return Seen(objects=tuple(found))
    except CANNOT_LOOK as problem:
        return NotSeen(problem=str(problem))
