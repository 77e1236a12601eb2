"""Data between our servers and our own client beside text, in MCP's `_meta`.

A host that is not ours reads the text of an error and the message of a progress notification; who
knows these keys reads no sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import mcp.types as mt
from fastmcp.tools import ToolResult
from pydantic import TypeAdapter

from cudaops import errors
from cudaops.domain.base import Record
from cudaops.domain.judgement import Gate
from cudaops.domain.run import Progress, TriedConfiguration, line_of
from cudaops.errors import CudaOpsError, EnvironmentFailure, PlanError
from cudaops.executors.stopping import Stopped

ERROR_KEY = "cudaops.error"
"""Of a tool's result: its ErrorPayload."""
PROGRESS_KEY = "cudaops.progress"
"""Of a progress notification: the record that its message is made from; absent for a plain line."""
CALL_KEY = "cudaops.call"
"""Of a request, and of its progress notifications: what the client calls this call. MCP's own
progress token is chosen below our client, which never learns it."""

ErrorClass = Literal[
    "CudaOpsError", "InputError", "PlanError", "EnvironmentFailure", "PrerequisiteError",
    "SandboxUnavailable", "KnowledgeUnavailable", "ServiceUnavailable", "ModelUnavailable",
    "Stopped",
]  # fmt: skip

_CLASSES: Mapping[str, type[CudaOpsError]] = MappingProxyType(
    {name: Stopped if name == "Stopped" else getattr(errors, name) for name in get_args(ErrorClass)}
)


class ErrorPayload(Record):
    """An error of `cudaops.errors` as data."""

    error: ErrorClass
    """Its class; of one that is not listed here, the nearest that is."""
    message: str
    """What is wrong, without the remedy."""
    remedy: str | None = None
    """What a user can do about the machine; None where the input itself is at fault."""
    line: int | None = None
    """Of a PlanError: 1-based, in the rewrite's source."""
    column: int | None = None
    """Of a PlanError: 1-based, in characters."""

    @classmethod
    def of(cls, error: CudaOpsError) -> ErrorPayload:
        """What is said of this error."""
        known = next(k.__name__ for k in type(error).__mro__ if k.__name__ in _CLASSES)
        said: dict[str, Any] = {"error": known, "message": str(error)}
        if isinstance(error, EnvironmentFailure):
            said |= {"message": error.problem, "remedy": error.remedy}
        elif isinstance(error, PlanError):
            said |= {"message": error.message, "line": error.line, "column": error.column}
        return cls.model_validate(said)

    def exception(self) -> CudaOpsError:
        """The error again, without the frames it was raised in."""
        made = _CLASSES[self.error]
        if issubclass(made, EnvironmentFailure):
            return made(self.message, self.remedy or "")
        if issubclass(made, PlanError):
            return made(self.message, self.line or 1, self.column or 1)
        return made() if issubclass(made, Stopped) else made(self.message)


def error_text(error: CudaOpsError) -> str:
    """What a model can act on: the problem and, where there is one, the remedy."""
    if isinstance(error, EnvironmentFailure):
        return f"{error.problem}. Remedy: {error.remedy}"
    return str(error)


def error_result(error: CudaOpsError) -> ToolResult:
    """A tool's answer that is an error: its text for every host, its payload for our client."""
    meta = {ERROR_KEY: ErrorPayload.of(error).model_dump(exclude_none=True)}
    return ToolResult(error_text(error), meta=meta, is_error=True)


def error_in(meta: Mapping[str, Any] | None) -> CudaOpsError | None:
    """The error that a tool's result tells of in its `_meta`; None where it tells of none."""
    payload = (meta or {}).get(ERROR_KEY)
    return None if payload is None else ErrorPayload.model_validate(payload).exception()


_PROGRESS: TypeAdapter[Gate | TriedConfiguration] = TypeAdapter(Gate | TriedConfiguration)


def progress_notification(
    progress: Progress, request: mt.RequestParams.Meta, number: int, total: int | None
) -> mt.ServerNotification:
    """What is going on: a line for every host, its record for our client. `request`: the `_meta`
    of the call, which has a progress token."""
    meta: dict[str, Any] = {}
    if call := (request.model_extra or {}).get(CALL_KEY):
        meta[CALL_KEY] = call
    if not isinstance(progress, str):
        meta[PROGRESS_KEY] = progress.model_dump(mode="json")
    params = {
        "progressToken": request.progressToken,
        "progress": number,
        "total": total,
        "message": line_of(progress),
        "_meta": meta or None,
    }
    return mt.ServerNotification.model_validate(
        {"method": "notifications/progress", "params": params}
    )


def progress_in(params: mt.ProgressNotificationParams) -> tuple[str | None, Progress]:
    """Which call a notification is about, and what it tells."""
    meta = (params.meta.model_extra if params.meta else None) or {}
    payload = meta.get(PROGRESS_KEY)
    if payload is None:
        return meta.get(CALL_KEY), params.message or ""
    return meta.get(CALL_KEY), _PROGRESS.validate_python(payload)
