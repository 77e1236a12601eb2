"""`--executor remote`: a whole job handed to a service, followed to its end, its folder fetched.

`start`, `resume`, `verify_files` and `profile_only` are those of `graph/run.py`, done elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

from pydantic import ValidationError

from cudaops.cuda import devices
from cudaops.domain.base import Record
from cudaops.domain.program import Program
from cudaops.domain.run import (
    AgentName,
    Event,
    ProfileSummary,
    ReviewAnswer,
    ReviewRequest,
    RunOptions,
    RunRecord,
)
from cudaops.errors import (
    CudaOpsError,
    InputError,
    SandboxUnavailable,
    ServiceUnavailable,
)
from cudaops.executors.stopping import stoppable
from cudaops.graph.events import OnEvent, utc_now
from cudaops.graph.folder import alone, run_folder, write_json, write_whole
from cudaops.graph.resolve_options import REMOTE_NOTE, requested_options
from cudaops.program.given import check_arguments
from cudaops.program.parse import load_program
from cudaops.reports import markdown
from cudaops.service.api_client import UPDATE, ServiceClient
from cudaops.service.job_folder import MAX_ALL_BYTES
from cudaops.service.records import (
    REQUESTS,
    Job,
    JobEvent,
    JobKind,
    JobSummary,
    ProgramRequest,
)
from cudaops.settings import Settings
from cudaops.storage import replacing

CANCEL_S = 10.0
"""How long whoever pressed Ctrl-C waits for the service to hear of it."""
MADE_HERE = frozenset({"run.json", "report.md", "report.html"})
"""Written from the record, with the paths of this machine, or by `cudaops report --html`."""
NOT_SENT = frozenset({"state", "work", "workloads", "confirmations"})
"""Folders of a run that no service sends; what stands in the first is believed by `resume`."""
_PART = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,199}")
MAX_DEPTH = 16

OnReview = Callable[[ReviewRequest], ReviewAnswer | None]


class RemoteJob(Record):
    """What is noted of a run while a service works on it."""

    job: UUID
    kind: JobKind
    source: str
    """Path of the main file, absolute."""
    working_folder: str


def is_remote(folder: Path) -> bool:
    """Whether the run in this folder is, or was, a service's to do."""
    return (folder / REMOTE_NOTE).is_file()


def start(
    options: RunOptions, on_event: OnEvent, settings: Settings, _on_review: OnReview | None = None
) -> RunRecord:
    """The main job, done by the service that the settings name; its run folder in `options.out`.

    Raises InputError (also for what a service does not take), PrerequisiteError (token),
    SandboxUnavailable (it could not do it), ServiceUnavailable (it is away; `resume` goes on).
    """
    request = _request("optimize", options, load_program(Path(options.source)))
    return _run_remotely("optimize", request, options, on_event, settings)


def verify_files(
    base: Path, candidate: Path, options: RunOptions, on_event: OnEvent, settings: Settings
) -> RunRecord:
    """Have a rewrite that somebody else wrote judged there. Raises as `start` does."""
    program = load_program(base)
    text, headers = _candidate(candidate, program)
    request = _request("verify", options, program, {"candidate": text}, headers)
    return _run_remotely("verify", request, options, on_event, settings)


def profile_only(options: RunOptions, on_event: OnEvent, settings: Settings) -> ProfileSummary:
    """Metrics and verdict of the kernel, found there. Leaves no folder. Raises as `start` does."""
    request = _request("profile", options, load_program(Path(options.source)))

    async def ask() -> ProfileSummary:
        async with ServiceClient.of(settings) as service:
            job = await _submitted(service, "profile", request, on_event)
            result = (await _followed(service, job.id, on_event, lambda: None)).result
            if not isinstance(result, ProfileSummary):
                raise ServiceUnavailable(f"job {job.id} has no profile", UPDATE)
            return result

    return asyncio.run(stoppable(ask()))


def resume(
    folder: Path, on_event: OnEvent, settings: Settings, _on_review: OnReview | None = None
) -> RunRecord:
    """Follow the job of a run folder again, and fetch what it left. Raises as `start` does."""
    try:
        remote = RemoteJob.model_validate_json((folder / REMOTE_NOTE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / REMOTE_NOTE} cannot be read; start the run again") from error

    async def ask() -> RunRecord:
        async with ServiceClient.of(settings) as service:
            return await _to_its_end(service, remote, folder, on_event)

    return asyncio.run(stoppable(ask()))


def _run_remotely(
    kind: JobKind,
    request: ProgramRequest,
    options: RunOptions,
    on_event: OnEvent,
    settings: Settings,
) -> RunRecord:
    """From a request to the record in `options.out`. Nothing of the folder stays where the job ends
    badly; where it goes on without us the folder does, so that the run can be resumed."""
    folder = Path(options.out)

    async def ask() -> RunRecord:
        async with ServiceClient.of(settings) as service:
            job = await _submitted(service, kind, request, on_event)
            remote = RemoteJob(
                job=job.id, kind=kind, source=options.source, working_folder=options.working_folder
            )
            write_json(folder / REMOTE_NOTE, remote.model_dump(mode="json"))
            return await _to_its_end(service, remote, folder, on_event, job.waiting_for)

    with run_folder(folder, goes_on=lambda _: is_remote(folder)):
        return asyncio.run(stoppable(ask()))


async def _to_its_end(
    service: ServiceClient,
    remote: RemoteJob,
    folder: Path,
    on_event: OnEvent,
    waiting_for: str | None = None,
) -> RunRecord:
    """The record of a job that was handed over, and its folder; the note of it goes where nothing
    is left to resume."""
    note = folder / REMOTE_NOTE
    with alone(folder):
        over = functools.partial(note.unlink, missing_ok=True)
        job = await _followed(service, remote.job, on_event, over, waiting_for)
        return await fetched(service, job, folder, remote)


# What is sent.


def _request(
    kind: JobKind,
    options: RunOptions,
    program: Program,
    more: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> ProgramRequest:
    """The options as a request of this kind. Raises InputError for what a service cannot do."""
    _refuse(options)
    return request_of(kind, {**requested_options(options), **(more or {})}, program, headers)


def request_of(
    kind: JobKind,
    asked: Mapping[str, Any],
    program: Program,
    headers: Mapping[str, str] | None = None,
) -> ProgramRequest:
    """A program with its own headers and what is asked for it, by the names of
    `cudaops.domain.options`. Raises InputError for what a service does not take."""
    texts = {file.path: file.text for file in program.files}
    fields = {
        **asked,
        "source": texts.pop(program.main_path),
        "filename": program.main_path,
        "files": {**(headers or {}), **texts},
    }
    model = REQUESTS[kind]
    try:
        request = model.model_validate({n: v for n, v in fields.items() if n in model.model_fields})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(part) for part in first["loc"])[:200]
        raise InputError(f"a service does not take this: {where}: {first['msg']}") from None
    check_arguments(request.program_words)
    return request


def _refuse(options: RunOptions) -> None:
    if options.model is not None:
        raise InputError(
            "--model names a model of this machine, a service has its own: leave it out"
        )
    if options.policy.review:
        raise InputError("--review needs a terminal; a service has none: omit it")
    if options.ncu_clock_control != "none":
        raise InputError("--clock-control is for the GPU of this machine, not of a service")
    if options.ncu_every_metric:
        raise InputError("--every-metric is for the GPU of this machine, not of a service")


def _candidate(path: Path, base: Program) -> tuple[str, dict[str, str]]:
    """A candidate's text, and headers that only it includes, by the path they are sent under: it is
    put beside the main file. Raises InputError where both include another text under one path."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    try:
        program = load_program(path)
    except InputError:
        return text, {}  # device source with directives, or the service says what is wrong with it
    there = posixpath.dirname(base.main_path)
    known = {file.path: file.text for file in base.files}
    headers = {}
    for file in program.files:
        if file.path == program.main_path:
            continue
        beside = posixpath.relpath(file.path, posixpath.dirname(program.main_path) or ".")
        name = posixpath.normpath(posixpath.join(there, beside))
        if name.startswith("..") or known.get(name, file.text) != file.text:
            raise InputError(
                f"{path}: its {beside} is not the one of the program it is judged against, and a"
                " service is sent one of each; run this on the service's machine"
            )
        if name not in known:
            headers[name] = file.text
    return text, headers


# A job, from submission to its folder.


async def _submitted(
    service: ServiceClient, kind: JobKind, request: ProgramRequest, on_event: OnEvent
) -> JobSummary:
    """Start the job. Cancelled meanwhile, it is cancelled there too."""
    starting = asyncio.ensure_future(service.submit(kind, request))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CANCEL_S):
                job = await starting
            await _cancelled(service, job.id, on_event)
        raise


async def _followed(
    service: ServiceClient,
    id: UUID,
    on_event: OnEvent,
    over: Callable[[], None],
    waiting_for: str | None = None,
) -> Job:
    """The job at its good end, its events told. Whoever stops following it cancels it.

    Raises InputError and SandboxUnavailable for a job that failed, after `over`; and what
    `ServiceClient` does, the job then goes on there.
    """

    def tell(said: JobEvent) -> None:
        if said.kind != "status":
            on_event(_event(said))

    try:
        waits = f"; it waits: {waiting_for}" if waiting_for else ""
        on_event(_said("progress", f"job {id} of {service.address}{waits}"))
        await service.follow(id, tell)
        job = await service.job(id)
    except CudaOpsError:
        raise
    except BaseException:  # Ctrl-C, a cancelled task, or whoever listens to the events
        if await _cancelled(service, id, on_event):
            over()
        raise
    if job.status == "succeeded":
        return job
    over()
    if job.problem is not None and job.problem.status == 422:
        raise InputError(job.problem.detail)
    why = job.problem.detail if job.problem else "it was cancelled there"
    page = f"{service.address}/jobs/{id}"
    raise SandboxUnavailable(f"the service could not do it: {why}", f"the job was {page}")


async def _cancelled(service: ServiceClient, id: UUID, on_event: OnEvent) -> bool:
    """Cancel it there; whether the service has heard of it in time."""
    told, heard = f"job {id} is cancelled", True
    try:
        async with asyncio.timeout(CANCEL_S):
            await service.cancel(id)
    except (Exception, asyncio.CancelledError):  # noqa: BLE001  what stopped us goes on
        told, heard = f"job {id} could not be cancelled and continues at {service.address}", False
    with contextlib.suppress(Exception):  # it may be what failed
        on_event(_said("notice", told))
    return heard


async def fetched(service: ServiceClient, job: Job, folder: Path, remote: RemoteJob) -> RunRecord:
    """Fill the run folder with what the job left; its record with the paths of this machine."""
    record = job.result
    if not isinstance(record, RunRecord):
        raise ServiceUnavailable(f"job {job.id} has no run's record", UPDATE)
    wanted = {each: place_of(folder, each.name) for each in job.artefacts}
    if sum(each.size_bytes for each in wanted) > MAX_ALL_BYTES:
        raise ServiceUnavailable(f"job {job.id} left more than {MAX_ALL_BYTES >> 20} MiB", UPDATE)
    for artefact, path in wanted.items():
        if artefact.name not in MADE_HERE:
            write_bytes(path, await service.content(job.id, artefact))
    if record.device_row is not None:
        devices.register(devices.from_record(record.device_row))
    here = {
        "out": str(folder), "source": remote.source, "working_folder": remote.working_folder,
    }  # fmt: skip
    record = record.model_copy(update={"options": record.options.model_copy(update=here)})
    write_whole(folder / "report.md", markdown.run_report(record))
    write_whole(folder / "run.json", record.model_dump_json(indent=2) + "\n")
    return record


def place_of(folder: Path, name: str) -> Path:
    """Where an artefact of this name belongs below the run folder.

    Raises ServiceUnavailable for a name that leaves it, or that no service has a reason to send.
    """
    parts = name.split("/")
    path = folder.joinpath(*parts)
    if (
        len(parts) > MAX_DEPTH
        or not all(_PART.fullmatch(part) for part in parts)
        or (parts[0] in NOT_SENT and len(parts) > 1)
        or not path.parent.resolve().is_relative_to(folder.resolve())
    ):
        raise ServiceUnavailable(f"the service names {name[:100]!r} as a file of a run", UPDATE)
    return path


def write_bytes(path: Path, content: bytes) -> None:
    """A file, whole or not at all. Raises SandboxUnavailable where it cannot be written."""
    try:
        with replacing(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise SandboxUnavailable(
            f"{path} cannot be written: {error.strerror}", "name another folder with --out"
        ) from error


def _event(said: JobEvent) -> Event:
    """A job's event as a run's; the service's own agents are the supervisor here."""
    agent = said.agent if said.agent in get_args(AgentName) else "supervisor"
    fields = {**said.model_dump(exclude={"attempt"}), "agent": agent}
    return Event.model_validate(fields)


def _said(kind: str, message: str) -> Event:
    """A line of ours among those of the job."""
    return Event.model_validate(
        {
            "seq": 0, "time": utc_now(), "stage": "job", "agent": "supervisor", "kind": kind,
            "message": message,
        }
    )  # fmt: skip
