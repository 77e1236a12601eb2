"""One call of a service's executor: contents sent, the call run once, results landed here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypeVar, overload
from uuid import uuid4

from cudaops.domain.base import Record
from cudaops.domain.execution import Measurement, Ran
from cudaops.domain.workload import Workload
from cudaops.errors import CudaOpsError, InputError, PrerequisiteError, SandboxUnavailable
from cudaops.sandbox.executors.base import InputSet
from cudaops.sandbox.executors.remote_files import RemoteFiles
from cudaops.sandbox.executors.remote_transport import (
    WAIT_S,
    BlobMissing,
    NotThere,
    Transport,
)
from cudaops.sandbox.ledger import LEDGER
from cudaops.sandbox.stopping import current_stop, raise_if_stopped
from cudaops.sandbox.wire import Call, CallProblem, CallRequest, CallState, Place, Reply
from cudaops.sandbox.wire_files import Swap, swap_inputs, swap_measurement, swap_workload
from cudaops.storage import raise_for_space

MOST_TRIES = 4
"""A call whose contents or results the service forgot meanwhile is made anew; its database crashed
then, which does not happen four times over one call."""
STOPPABLE_WAIT_S = 1.0
"""Longest a call that somebody may want stopped waits without looking whether they do."""

Result = TypeVar("Result")
A = TypeVar("A", bound=Record)
B = TypeVar("B", bound=Record)
C = TypeVar("C", bound=Record)


class RemoteCalls:
    """Calls of one service. Threads may make them at once."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.files = RemoteFiles(transport)

    def parcel(self) -> Parcel:
        """An empty one."""
        return Parcel(self)


class Parcel:
    """One call with the contents that it is about."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._transport = calls.transport
        self._files = calls.files
        self._contents: dict[str, Path | bytes] = {}

    # -- packing --------------------------------------------------------------------------------
    def document(self, record: Record) -> str:
        """A unit or program as contents; the reference."""
        content = record.model_dump_json().encode()
        reference = hashlib.sha256(content).hexdigest()
        self._contents[reference] = content
        return reference

    def workload(self, workload: Workload) -> Workload:
        """The workload with references in place of its files."""
        folder = Path(workload.folder).absolute()
        return swap_workload(workload, lambda name: self._file(folder / name))

    def inputs(self, inputs: InputSet) -> InputSet:
        """The same of an input set."""
        return swap_inputs(inputs, lambda path: self._file(Path(path).absolute()))

    def _file(self, path: Path) -> str:
        reference = self._files.reference(path)
        self._contents[reference] = path
        return reference

    # -- sending --------------------------------------------------------------------------------
    def call(self, place: Place, call: Call, landed: Callable[[Reply], Result]) -> Result:
        """What `landed` makes of the reply. Where results have gone meanwhile, the call is made
        again.

        Raises what the executor there raised, and SandboxUnavailable where there is no answer.
        """
        request = CallRequest(place=place, call=call).model_dump_json()
        with LEDGER.working("service"):
            for _ in range(MOST_TRIES):
                state = self._ended(request)
                if state.problem is not None and state.problem.kind != "abandoned":
                    self._raise(state.problem)
                if state.reply is not None:
                    with suppress(NotThere):
                        return landed(state.reply)
                self._files.forget(self._contents)
        raise SandboxUnavailable(
            f"the service {self._transport.server} keeps losing the contents of this call",
            "look into the log of its database: it crashes, or has no space",
        )

    def begin(self, place: Place, call: Call) -> None:
        """Start a call that nobody waits for."""
        self._put(self._path(), CallRequest(place=place, call=call).model_dump_json(), 0.0)

    def _ended(self, request: str) -> CallState:
        path = self._path()
        wait_s = WAIT_S if current_stop() is None else STOPPABLE_WAIT_S
        try:
            state = self._put(path, request, wait_s)
            while state.status != "ended":
                raise_if_stopped()
                try:
                    state = self._transport.ask_record(CallState, "GET", path, wait_s=wait_s)
                except NotThere:
                    state = self._put(path, request, wait_s)
        except (KeyboardInterrupt, CudaOpsError):
            self._withdraw(path)
            raise
        return state

    def _put(self, path: str, request: str, wait_s: float) -> CallState:
        """Start the call or join it: the id in `path` makes it one, however often it is sent."""
        for _ in range(MOST_TRIES):
            self._files.send(self._contents)
            try:
                return self._transport.ask_record(
                    CallState, "PUT", path, json=request, wait_s=wait_s
                )
            except BlobMissing:
                self._files.forget(self._contents)
        raise SandboxUnavailable(
            f"the service {self._transport.server} does not keep what is sent to it",
            "look into the log of its database: it crashes, or has no space",
        )

    def _withdraw(self, path: str) -> None:
        """Nobody waits any more. Whether that arrives does not matter."""
        with suppress(CudaOpsError, NotThere, BlobMissing):
            self._transport.ask("DELETE", path, patience_s=0.0)

    def _path(self) -> str:
        return f"/executor/calls/{uuid4()}"

    def _raise(self, problem: CallProblem) -> NoReturn:
        text, remedy = problem.problem, problem.remedy
        if problem.kind == "input":
            raise InputError(text)
        if problem.kind == "value":
            raise ValueError(text)
        where = f"on the service {self._transport.server}: {text}"
        if problem.kind == "prerequisite":
            raise PrerequisiteError(where, f"there: {remedy}")
        if problem.kind == "fault":
            remedy = "it is a fault of cudaops there; report it with the log of its worker"
        raise SandboxUnavailable(where, remedy or "look into the log of its worker")

    # -- landing --------------------------------------------------------------------------------
    def landed_ran(self, ran: Ran, folder: Path) -> Ran:
        """Outputs as files of `folder`, which is made."""
        _make(folder)
        outputs = {
            index: self._files.fetch(reference, folder / f"out{index}.bin")
            for index, reference in ran.outputs.items()
        }
        variables = {
            name: self._files.fetch(reference, folder / f"global{number}.bin")
            for number, (name, reference) in enumerate(ran.global_outputs.items())
        }
        return ran.model_copy(update={"outputs": outputs, "global_outputs": variables})

    def landed_workload(self, workload: Workload, folder: Path) -> Workload:
        """Contents as files of a folder of the workload's own."""
        if not workload.id.isalnum():
            raise ValueError(f"{workload.id!r} cannot be a workload")
        own = folder.absolute() / workload.id
        _make(own)
        return swap_workload(workload, self._numbered(own, "contents"), str(own))

    def landed_outputs(self, measured: Measurement, folder: Path, side: str) -> Measurement:
        """What timed launches wrote, as files of `folder`, which is made."""
        _make(folder)
        numbered = self._numbered(folder, side)
        return swap_measurement(measured, lambda reference: str(folder / numbered(reference)))

    def _numbered(self, folder: Path, what: str) -> Swap:
        """Fetches contents into `folder`, each once; the name of the file."""
        names: dict[str, str] = {}

        def fetched(reference: str) -> str:
            if reference not in names:
                names[reference] = f"{what}{len(names)}.bin"
                self._files.fetch(reference, folder / names[reference])
            return names[reference]

        return fetched


@overload
def expect(reply: Reply, first: type[A], /) -> A: ...
@overload
def expect(reply: Reply, first: type[A], second: type[B], /) -> A | B: ...
@overload
def expect(reply: Reply, first: type[A], second: type[B], third: type[C], /) -> A | B | C: ...
def expect(reply: Reply, /, *kinds: type[Record]) -> Record:
    """The reply, which must be one of these. Raises SandboxUnavailable for any other."""
    if isinstance(reply, kinds):
        return reply
    raise SandboxUnavailable(
        f"the service answers a call with {reply.kind!r}, which is no answer to it",
        "update cudaops on both sides to the same version",
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise_for_space(problem, f"writing to {folder}")
        raise
