"""The signed file: canonical JSON, of which no byte can change without the check failing.

A file is `{"body": the record, "format": its name and version, "signature": {...}}` in one fixed
spelling: ASCII, keys sorted, one space of indentation a level, numbers as Python's `json` writes
them, a newline at the end. Whoever reads it spells what was read again and compares every byte, so
that neither white space nor a doubled key nor another encoding can hide in it. The signature
covers everything but its own value, the format's name and the public key included.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from cudaops.certify.keys import NoKey, Signer, fingerprint, verifies
from cudaops.domain.base import Record
from cudaops.domain.certificate import (
    CERTIFICATE_FORMAT,
    CONFIRMATION_FORMAT,
    Certificate,
    Confirmation,
)
from cudaops.errors import InputError

FORMATS: dict[str, type[Record]] = {
    CERTIFICATE_FORMAT: Certificate,
    CONFIRMATION_FORMAT: Confirmation,
}
ALGORITHM = "ed25519"
MAX_BYTES = 64 * 1024 * 1024
"""A certificate with 5 workloads of 1000 samples takes about 1 MB; more than this is something
else."""

Json = dict[str, Any]

State = Literal["signed", "unsigned", "altered"]


class Envelope(NamedTuple):
    """A signed file's content, and whether its signature is valid."""

    format: str
    record: Record
    state: State
    why: str
    """Of `unsigned` and `altered`: the reason, in one line."""
    public_key: bytes | None
    """Of the key that signed it; None where no signature holds."""

    @property
    def signer(self) -> str | None:
        """Fingerprint of the key that signed it."""
        return None if self.public_key is None else fingerprint(self.public_key)


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value that has string keys and finite numbers."""
    text = json.dumps(
        value,
        sort_keys=True,
        indent=1,
        separators=(",", ": "),
        ensure_ascii=True,
        allow_nan=False,
    )
    return text.encode("ascii") + b"\n"


def seal(format_name: str, record: Record, signer: Signer | NoKey) -> bytes:
    """The bytes of the file: signed, or saying why it is not."""
    document: Json = {"format": format_name, "body": _plain(record.model_dump(mode="json"))}
    if isinstance(signer, NoKey):
        document["signature"] = {"unsigned_because": signer.reason}
        return canonical(document)
    document["signature"] = {"algorithm": ALGORITHM, "public_key": signer.public_key.hex()}
    value = signer.sign(canonical(document))
    document["signature"]["value"] = value.hex()
    return canonical(document)


def open_envelope(data: bytes, origin: str) -> Envelope:
    """Read a file and judge its signature; `origin` is what the file is called in an error.

    Raises InputError where the bytes are no certificate and no confirmation at all.
    """
    document = _read(data, origin)
    name = document.get("format")
    if not isinstance(name, str) or name not in FORMATS:
        known = " or ".join(FORMATS)
        raise InputError(f"{origin} is no certificate: its format is {name!r}, not {known}")
    try:
        # Lax only in that non-finite numbers, which JSON has not, stand as strings.
        record = FORMATS[name].model_validate(document.get("body"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise InputError(f"{origin} is no {name}: {where}: {first['msg']}") from None
    return Envelope(name, record, *_judged(data, document))


def _judged(data: bytes, document: Json) -> tuple[State, str, bytes | None]:
    """State, reason and public key."""
    problem = _problem(data, document)
    if problem is not None:
        return "altered", problem, None
    signature = document["signature"]
    if set(signature) == {"unsigned_because"}:
        return "unsigned", str(signature["unsigned_because"]), None
    key, problem = _signed_by(document, signature)
    return ("altered", problem or "", None) if key is None else ("signed", "", key)


def _read(data: bytes, origin: str) -> Json:
    if len(data) > MAX_BYTES:
        raise InputError(f"{origin} is no certificate: it has {len(data) >> 20} MB")
    try:
        document = json.loads(data.decode("ascii"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{origin} is no certificate, or a damaged one: {reason}") from None
    if not isinstance(document, dict):
        raise InputError(f"{origin} is no certificate: it is not a JSON object")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _problem(data: bytes, document: Json) -> str | None:
    """What shows without a key that this is not as it was written."""
    if set(document) != {"body", "format", "signature"}:
        return "it has other fields than body, format and signature"
    if not isinstance(document["signature"], dict):
        return "it has no signature"
    try:
        spelled = canonical(document)
    except ValueError:
        return "it has a number that JSON does not allow"
    if spelled != data:
        return "its bytes are not the one spelling of what they say"
    return None


def _signed_by(document: Json, signature: Json) -> tuple[bytes | None, str | None]:
    """The public key whose signature holds, or None and why."""
    if set(signature) != {"algorithm", "public_key", "value"}:
        return None, "its signature is incomplete"
    try:
        key, value = bytes.fromhex(signature["public_key"]), bytes.fromhex(signature["value"])
    except (TypeError, ValueError):
        return None, "its signature is not in hex"
    if (key.hex(), value.hex()) != (signature["public_key"], signature["value"]):
        return None, "its signature is not in lower-case hex"
    if signature["algorithm"] != ALGORITHM:
        return None, f"its signature is {signature['algorithm']!r}, not {ALGORITHM}"
    rest = {name: part for name, part in signature.items() if name != "value"}
    if not verifies(key, canonical({**document, "signature": rest}), value):
        return None, "the signature does not belong to this text"
    return key, None


def _plain(value: Any) -> Any:
    """JSON with string keys; what is not finite becomes a string, which reads back as a float."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
