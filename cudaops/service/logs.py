"""The service's log: one line an event on stderr, as text for people or as JSON for programs; and
what no line of it may hold: secrets, and the texts that people sent.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TextIO
from urllib.parse import quote, quote_plus, unquote, urlsplit

import structlog
from pydantic import SecretStr
from structlog.typing import Processor

if TYPE_CHECKING:
    from cudaops.settings import Settings

# What no line of the log may hold: secrets, and the texts that people sent.

MASK = "***"
SHORTEST_SECRET = 4
"""Shorter ones are not looked for: they would be found in half of all words."""
MAX_VALUE_CHARS = 2_000
MAX_TRACEBACK_CHARS = 16_000
MAX_DEPTH = 8
MAX_ITEMS = 100
SHORT_CHARS, SHORT_TEXTS = 64, 1024
"""Names of fields, routes and levels stand in every line: that many texts of at most that length
are remembered masked. Without it, masking took 11 % of the API's time under 200 clients."""

_SECRET_KEY = re.compile(
    r"(^|_)(authorization|cookie|token|bearer|password|passwd|pwd|secret|api_?key|access_?key"
    r"|private_?key|credentials?)$"
)
"""Ends with one of these: `max_tokens` and `idempotency_key` are none."""
_TEXT_KEYS = frozenset(
    {"source", "candidate", "files", "body", "content", "request_body", "prompt"}
)
"""Of what people sent, its length alone is logged."""

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # The header's whole value, in a dump of headers or as a line.
    (
        re.compile(
            r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(['\"]?\s*[:=,]\s*(?:b?['\"])?)[^'\"\r\n]+"
        ),
        rf"\1\2{MASK}",
    ),
    (re.compile(r"(?i)\b(bearer)\s+[^\s'\",;]+"), rf"\1 {MASK}"),
    # Ours are 43 characters after the prefix; names of metrics and schemas are shorter.
    (re.compile(r"\bcudaops_[A-Za-z0-9_-]{40,}"), MASK),
    # user:password@ of any address. Greedy: a password may hold a @ or a / that nobody escaped.
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^\s:/@'\"<>]*):[^\s'\"<>]*@"), rf"\1:{MASK}@"),
    # libpq's form, forms of queries and of dumps: password=..., "api_key": "...".
    (
        re.compile(
            r"(?i)([\w-]*(?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key))"
            r"(['\"]?\s*[=:]\s*)(\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\s,;&}\])'\"]+)"
        ),
        rf"\1\2{MASK}",
    ),
    # Shapes of providers' keys: NVIDIA, OpenAI and Anthropic, Google, GitHub, Hugging Face, JWT.
    (re.compile(r"\bnvapi-[A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(r"\bAIza[A-Za-z0-9_-]{20,}"), MASK),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|hf_)[A-Za-z0-9_]{16,}"), MASK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), MASK),
)


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """Every secret that these settings hold; of an address its password too, as it is written and
    as it is meant."""
    found = set()
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if not isinstance(value, SecretStr):
            continue
        text = value.get_secret_value()
        found.add(text)
        try:
            password = urlsplit(text).password if "://" in text else None
        except ValueError:
            password = None
        if password:
            found |= {password, unquote(password)}
    return tuple(sorted(found))


class Mask:
    """Takes secrets out of texts and of whatever structure is logged."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets`: exact texts to look for, beside everything that looks like a secret."""
        forms = {form for one in secrets if len(one) >= SHORTEST_SECRET for form in _spelled(one)}
        # The longest first: one secret may be a part of another.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._exact = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._short = lru_cache(maxsize=SHORT_TEXTS)(self._masked)

    def text(self, text: str) -> str:
        """The text with every secret in it replaced."""
        return self._short(text) if len(text) <= SHORT_CHARS else self._masked(text)

    def _masked(self, text: str) -> str:
        if self._exact is not None:
            text = self._exact.sub(MASK, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text

    def value(self, value: Any, depth: int = 0) -> Any:
        """The same for anything: mappings and sequences are walked, other things become text.

        Numbers, booleans and None stay. Long texts are cut after they were masked.
        """
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, SecretStr):
            return MASK
        if depth < MAX_DEPTH and isinstance(value, Mapping):
            return self.fields(value, depth + 1)
        if depth < MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
            kept = [self.value(item, depth + 1) for item in list(value)[:MAX_ITEMS]]
            left = len(value) - len(kept)
            return [*kept, f"and {left} more"] if left else kept
        return _cut(self.text(_text(value)), MAX_VALUE_CHARS)

    def fields(self, fields: Mapping[Any, Any], depth: int = 0) -> dict[str, Any]:
        """A mapping with masked names and values; by name, secrets go whole and people's texts
        become their length."""
        masked: dict[str, Any] = {}
        for key, value in list(fields.items())[:MAX_ITEMS]:
            name = _text(key)
            plain = name.lower().replace("-", "_")
            if value is not None and _SECRET_KEY.search(plain):
                kept: Any = MASK
            elif plain in _TEXT_KEYS and not isinstance(value, bool | int | float | None):
                kept = f"<{len(_text(value))} characters>"
            elif plain in ("exception", "stack") and isinstance(value, str):
                kept = _cut(self.text(value), MAX_TRACEBACK_CHARS)
            else:
                kept = self.value(value, depth)
            masked[self.text(name)] = kept
        return masked


def _spelled(secret: str) -> set[str]:
    """A secret as it may appear: in a Python literal, in JSON, in an address, or as it is."""
    return {
        secret,
        repr(secret)[1:-1],
        repr(secret.encode())[2:-1],
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
    }


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  a log line must not fail over what it tells of
        return f"<{type(value).__name__} without a text: {type(error).__name__}>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} characters more)"


# The service's log: one line an event on stderr, as text for people or as JSON for programs.

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
