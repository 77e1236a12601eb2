"""report.html: the run folder's record, events, patch, trials and certificate as one file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from cudaops.certify.envelope import open_envelope
from cudaops.domain.certificate import Certificate
from cudaops.domain.run import Event, RunRecord
from cudaops.errors import InputError
from cudaops.reports import html
from cudaops.reports.recording import read_recording

REPORT_NAME = "report.html"


def html_report(
    folder: Path, record: RunRecord | None = None, events: Sequence[Event] | None = None
) -> str:
    """The report of a finished run.

    Args:
        folder: the run folder; what cannot be read in it is said in the report.
        record: in place of the folder's own, by a caller that has made its paths relative.
        events: the same of the events.

    Raises:
        InputError: the folder holds no run, or none that has finished.
    """
    recording = read_recording(folder)
    record = record or recording.record
    if record is None:
        damage = f": {recording.damage[0].text}" if recording.damage else ""
        raise InputError(f"{folder} has no finished run{damage}; cudaops resume {folder}")
    beside = html.beside_of(recording, _evidence(folder / "certificate.json"))
    return html.document(record, recording.events if events is None else events, beside)


def _evidence(path: Path) -> html.CertificateView | None:
    """The certificate and what its signature is worth; None where the run has none."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest = hashlib.sha256(data).hexdigest()
    try:
        envelope = open_envelope(data, path.name)
    except InputError as error:
        return html.CertificateView(None, str(error), sha256=digest)
    if not isinstance(envelope.record, Certificate):
        return html.CertificateView(None, f"it is a {envelope.format}", sha256=digest)
    signature = (
        envelope.state if envelope.state == "signed" else f"{envelope.state}: {envelope.why}"
    )
    return html.CertificateView(envelope.record, signature, envelope.signer, digest)
