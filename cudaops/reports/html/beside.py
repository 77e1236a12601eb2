"""What lies beside a record in its run folder and belongs into the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cudaops.domain.certificate import Certificate
from cudaops.reports.recording import Recording, Trial


class Evidence(NamedTuple):
    """certificate.json as whoever could check its signature found it."""

    certificate: Certificate | None
    """None where the file cannot be read as one; `signature` says why."""
    signature: str
    """`signed`, `altered: REASON`, `unsigned: REASON`, or why it cannot be read."""
    signer: str | None = None
    """Fingerprint of the key; None where no signature holds."""
    sha256: str | None = None
    """Of the file's bytes."""


class Beside(NamedTuple):
    """Files of the run folder, as far as they are at hand."""

    trials: Mapping[int, tuple[Trial, ...]] = {}
    """What the tuner tried, by iteration; where an iteration is missing its events are asked."""
    patch: str | None = None
    """`best.patch`."""
    evidence: Evidence | None = None
    """None where there is no certificate."""
    damage: tuple[str, ...] = ()
    """Files that are there and cannot be read, one line each."""


NOTHING = Beside()
"""Where the record and its events are all there is."""


def beside_of(recording: Recording, evidence: Evidence | None = None) -> Beside:
    """What a recording holds beside its record and its events."""
    return Beside(
        trials={one.number: one.trials for one in recording.iterations if one.trials},
        patch=recording.patch,
        evidence=evidence,
        damage=tuple(damage.text for damage in recording.damage),
    )
