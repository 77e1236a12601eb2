"""A run folder that is what its certificate says, opened to be judged again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from cudaops.certify.check import check_envelope, first_problem
from cudaops.certify.envelope import Envelope, open_envelope
from cudaops.domain.certificate import Certificate
from cudaops.domain.contradictions import leniencies
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError, PlanError
from cudaops.graph.certificate import CERTIFICATE_NAME
from cudaops.program.plans import make_rewrite


class Certified(NamedTuple):
    """A run folder whose files are those that its certificate names."""

    folder: Path
    certificate: Certificate
    sha256: str
    """Of the certificate's file."""
    signer: str | None
    """Fingerprint of its key; None where it is not signed."""
    rewrite: Rewrite
    notices: tuple[str, ...]


def open_certified(folder: Path, own: str | None) -> Certified:
    """Read a run's certificate and hold the folder's files to it. `own`: this machine's key.

    Raises InputError, in one line, where there is none, where it was altered or where a file is
    missing or differs.
    """
    path = folder / CERTIFICATE_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {CERTIFICATE_NAME}: no run has ended there with a rewrite"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    envelope = open_envelope(data, str(path))
    certificate = envelope.record
    if not isinstance(certificate, Certificate):
        raise InputError(f"{path} is a {envelope.format}, not a certificate")
    if envelope.state == "altered":
        raise InputError(f"{path} was altered: {envelope.why}")
    items = check_envelope(envelope, folder)
    unsigned = envelope.state == "unsigned"
    problem = first_problem([i for i in items if not (unsigned and i.name == "signature")])
    if problem is not None:
        raise InputError(f"{folder} is not as its certificate says: {problem.line}")
    lacking = next((i.name for i in items if i.state == "absent"), None)
    if lacking is not None:
        raise InputError(f"{folder} is not whole: {lacking} is missing")
    digest = hashlib.sha256(data).hexdigest()
    rewrite = _rewrite(folder, certificate)
    notices = (*_signature_notices(envelope, own), *_policy_notices(certificate))
    return Certified(folder, certificate, digest, envelope.signer, rewrite, notices)


def _signature_notices(envelope: Envelope, own: str | None) -> tuple[str, ...]:
    if envelope.state == "unsigned":
        return (f"the certificate is not signed: {envelope.why}",)
    if envelope.signer != own:
        return (f"the certificate is signed by {envelope.signer}, which is not this machine's key",)
    return ()


def _policy_notices(certificate: Certificate) -> tuple[str, ...]:
    lenient = leniencies(certificate.policy)
    return (f"the certificate's policy is lenient: {'; '.join(lenient)}",) if lenient else ()


def _rewrite(folder: Path, certificate: Certificate) -> Rewrite:
    """The candidate from its own text, plan included, which the certificate's hash covers."""
    known = certificate.candidate
    path = folder / "iterations" / f"{known.iteration:02d}" / "candidate.cu"
    try:
        text = path.read_bytes().decode("utf-8")
        rewrite = make_rewrite(text, known.proposer, known.title, "certified")
    except (OSError, UnicodeDecodeError, PlanError) as error:
        raise InputError(f"{path} is no candidate: {error}") from error
    rewrite = rewrite.tuned_with(known.tuned)
    if rewrite.id != known.id:
        raise InputError(f"{path} with the certificate's tuned values is not {known.id}")
    return rewrite
