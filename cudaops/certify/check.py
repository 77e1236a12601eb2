"""`certify check`: a file's signature, its inner logic, and the files that lie beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from cudaops import __version__
from cudaops.certify.envelope import Envelope
from cudaops.domain.certificate import (
    Certificate,
    Confirmation,
    WorkloadIdentity,
    contradictions,
    leniencies,
)

PROGRAM_FILE = "state/program.json"


class KnownKey(NamedTuple):
    """A key that is known here."""

    fingerprint: str
    whose: str
    """`this machine's key`."""


State = Literal["ok", "failed", "absent"]


class CheckItem(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: State
    """`absent`: it is not here to be looked at, which is no fault of the certificate."""
    text: str

    @property
    def line(self) -> str:
        """Name and finding in one line."""
        return f"{self.name}: {self.text}"


def check_envelope(
    envelope: Envelope, folder: Path, *, wanted: str | None = None, known: KnownKey | None = None
) -> tuple[CheckItem, ...]:
    """Everything that can be checked without compiling or running anything.

    Args:
        envelope: The opened file.
        folder: Where it lies; the run's files are looked for there.
        wanted: Fingerprint that must have signed it; None: any key will do.
        known: The key that signs here; None where there is none.
    """
    items = [CheckItem("format", "ok", envelope.format), _signature(envelope, wanted, known)]
    record = envelope.record
    if isinstance(record, Certificate):
        items += [_judgement(record), _inputs(record), _policy(record), _oracle(record)]
        items += _files(record, run_folder(folder))
    elif isinstance(record, Confirmation):
        items.append(CheckItem("result", "ok", f"{record.result}: {record.reason}"))
    return tuple(items)


def run_folder(folder: Path) -> Path:
    """The run's folder: where the certificate lies, or two above `confirmations/TIME/`."""
    inside = folder.parent.name == "confirmations" and not (folder / "best.cu").exists()
    return folder.parent.parent if inside else folder


def _signature(envelope: Envelope, wanted: str | None, known: KnownKey | None) -> CheckItem:
    if envelope.state == "unsigned":
        return CheckItem("signature", "failed", f"unsigned: {envelope.why}")
    if envelope.signer is None:
        return CheckItem("signature", "failed", f"DOES NOT HOLD: {envelope.why}")
    signed = f"signed by {envelope.signer}"
    if wanted is not None:
        if envelope.signer == wanted:
            return CheckItem("signature", "ok", f"{signed}, the key named with --key")
        return CheckItem("signature", "failed", f"{signed}, NOT by {wanted}, which --key names")
    if known is not None and envelope.signer == known.fingerprint:
        return CheckItem("signature", "ok", f"{signed}, {known.whose}")
    text = "an unknown key: integrity holds, origin is unknown"
    return CheckItem("signature", "ok", f"{signed}, {text}")


def _judgement(certificate: Certificate) -> CheckItem:
    found = contradictions(certificate)
    if not found:
        gates = len(certificate.judgement.gates)
        kind = "gates for Triton" if certificate.language == "triton" else "gates"
        text = f"{certificate.outcome}, as follows from its {gates} {kind} and its samples"
        return CheckItem("judgement", "ok", text)
    text = "; ".join(found)
    if certificate.cudaops_version != __version__:
        text += f" (written by cudaops {certificate.cudaops_version}, judged by {__version__})"
    return CheckItem("judgement", "failed", f"CONTRADICTS ITSELF: {text}")


def _inputs(certificate: Certificate) -> CheckItem:
    """On how many drawn inputs the rewrite was right, and what was assumed."""
    gate = certificate.judgement.gate("correctness_domain")
    return CheckItem("inputs", "ok", "none were generated" if gate is None else gate.summary)


def _policy(certificate: Certificate) -> CheckItem:
    """What was asked for. A user may ask for less than usual; whoever relies on it must see it."""
    text = f"at least {certificate.policy.min_speedup:g}x"
    lenient = leniencies(certificate.policy)
    return CheckItem("policy", "ok", f"{text}; LENIENT: {'; '.join(lenient)}" if lenient else text)


def _oracle(certificate: Certificate) -> CheckItem:
    found = certificate.qualification
    return CheckItem("oracle", "ok", "it was not qualified" if found is None else found.line)


def _files(certificate: Certificate, folder: Path) -> Iterator[CheckItem]:
    for file in certificate.files:
        yield _compared(file.path, digest(folder / file.path), file.sha256)
    yield from _author_files(certificate, folder)
    for workload in certificate.workloads:
        yield _workload(workload, folder)


def _compared(name: str, found: str | None, wanted: str) -> CheckItem:
    if found is None:
        return CheckItem(name, "absent", "not here")
    return (
        CheckItem(name, "ok", "matches")
        if found == wanted
        else CheckItem(name, "failed", "DIFFERS")
    )


def _author_files(certificate: Certificate, folder: Path) -> Iterator[CheckItem]:
    """The author's files as the run keeps them."""
    texts = stored_texts(folder / PROGRAM_FILE)
    for file in certificate.program.files:
        text = texts.get(file.path)
        found = None if text is None else hashlib.sha256(text.encode()).hexdigest()
        yield _compared(f"author's {file.path}", found, file.sha256)


def stored_texts(path: Path) -> dict[str, str]:
    """Path to text of the files in a stored program; empty where that cannot be read."""
    try:
        stored = json.loads(path.read_text("utf-8"))
        return {str(f["path"]): str(f["text"]) for f in stored["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _workload(workload: WorkloadIdentity, folder: Path) -> CheckItem:
    """All contents of one workload together: what stood in memory before and after."""
    name = f"workload {workload.id}"
    pairs = [(digest(folder / file.path), file.sha256) for file in workload.files]
    here = [(found, wanted) for found, wanted in pairs if found is not None]
    if not here:
        return CheckItem(name, "absent", "not here")
    if any(found != wanted for found, wanted in here):
        return CheckItem(name, "failed", "DIFFERS")
    return CheckItem(name, "ok", f"matches ({len(here)} of {len(pairs)} files)")


def digest(path: Path) -> str | None:
    """SHA-256 of a file's bytes; None where there is none."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def first_problem(items: Sequence[CheckItem]) -> CheckItem | None:
    """The first thing that does not hold."""
    return next((item for item in items if item.state == "failed"), None)
