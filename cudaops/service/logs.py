"""The service's log: one line an event on stderr, as text for people or as JSON for programs.

Our own lines, uvicorn's, procrastinate's and everybody else's go the same way: time in UTC, level,
event, and what is bound in this context (`request_id`, `job`, `run_id`). Nothing gets out unmasked.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import Processor

from cudaops.service.masking import Mask, secrets_of

__all__ = ["access", "bound", "configure", "logger", "secrets_of"]

QUIETER = {
    "procrastinate": logging.WARNING,
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "mcp": logging.WARNING,
    "asyncio": logging.WARNING,
}
"""Libraries that tell of every request or every task: of those we write a line of our own."""
_FIRST = ("time", "level", "logger", "event")
_PLAIN = re.compile(r"[\w.:/@+*,()\[\]<>-]+")


def configure(
    form: Literal["text", "json"],
    stream: TextIO | None = None,
    *,
    secrets: Iterable[str] = (),
    level: int = logging.INFO,
) -> None:
    """Send every logger of this process to `stream` (stderr), in that form. May be called again.

    `secrets` never come out, in whatever field or exception they stand; `secrets_of(settings)`
    gives those of the settings.
    """
    mask = Mask(secrets)
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.ExceptionRenderer(_plain_traceback),
    ]
    render = _json if form == "json" else _line
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                lambda _logger, _name, event: render(mask.fields(event)),
            ],
        )
    )
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name, quiet in QUIETER.items():
        logging.getLogger(name).setLevel(max(level, quiet))
    for name in ("uvicorn", "uvicorn.error"):  # they come with handlers and levels of their own
        logging.getLogger(name).setLevel(logging.NOTSET)
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *before,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def logger(name: str) -> Any:
    """A logger whose keyword arguments become fields: `logger("cudaops.worker").info("x", a=1)`."""
    return structlog.stdlib.get_logger(name)


@contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Every line written within carries these fields: `request_id`, `job`, `run_id`."""
    with structlog.contextvars.bound_contextvars(
        **{name: value for name, value in fields.items() if value is not None}
    ):
        yield


def access(method: str, route: str, status: int, milliseconds: float, actor: str | None) -> None:
    """One line a request. `route` is the template: identifiers stand in fields of their own. A 503
    is a warning: something is missing or full, and said so; other 5xx are faults of ours."""
    level = "info" if status < 500 else "warning" if status == 503 else "error"
    getattr(logger("cudaops.access"), level)(
        "request",
        method=method,
        route=route,
        status=status,
        milliseconds=round(milliseconds, 1),
        actor=actor,
    )


class _Handler(logging.StreamHandler[TextIO]):
    """Ours. A line that cannot be written is dropped: the standard handler would print the
    arguments to stderr as they are, with whatever secret stands in them."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  name of the library
        return


def _plain_traceback(exc_info: Any) -> str:
    """Frames and messages, no values of variables: those would be people's texts."""
    return "".join(traceback.format_exception(*exc_info)).removesuffix("\n")


def _json(fields: MutableMapping[str, Any]) -> str:
    fields["level"] = fields.get("level", "info")
    ordered = {name: fields[name] for name in _FIRST if name in fields}
    return json.dumps(ordered | {k: v for k, v in fields.items() if k not in ordered}, default=str)


def _line(fields: MutableMapping[str, Any]) -> str:
    """`2026-11-22T02:50:00Z info    cudaops.worker  event  name=value name="two words"`.

    A traceback follows on lines of its own, each set in, so that none passes for an event.
    """
    told = "".join(
        f"  {_quoted(name)}={_quoted(value)}"
        for name, value in fields.items()
        if name not in (*_FIRST, "exception", "stack") and value is not None
    )
    head = "  ".join(
        (
            str(fields.get("time", "")),
            f"{fields.get('level', 'info'):<7}",
            str(fields.get("logger", "")),
            _printable(str(fields.get("event", ""))),
        )
    )
    behind = [str(fields[name]) for name in ("exception", "stack") if fields.get(name)]
    lines = [f"\n    {_printable(line)}" for text in behind for line in text.splitlines()]
    return head + told + "".join(lines)


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value)
        return value if plain else json.dumps(value)
    return json.dumps(value, default=str)


def _printable(text: str) -> str:
    """Controls, line ends and marks that turn the direction of text become visible escapes."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
