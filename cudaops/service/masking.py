"""What no line of the log may hold: secrets, and the texts that people sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

from pydantic import SecretStr

if TYPE_CHECKING:
    from cudaops.settings import Settings

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
