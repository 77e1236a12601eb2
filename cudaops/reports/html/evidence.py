"""The certificate: what it covers, whether its signature holds, and how to check it again."""

from __future__ import annotations

from typing import NamedTuple

from cudaops.domain.certificate import Certificate
from cudaops.domain.run import RunRecord
from cudaops.reports import content
from cudaops.reports.html.beside import Beside
from cudaops.reports.quantities import one_line


class EvidenceView(NamedTuple):
    """Fields of the certificate and commands."""

    state: str
    """`signed`, `altered`, `unsigned`, `unreadable` or `none`."""
    said: str
    fields: list[tuple[str, str]]
    files: list[tuple[str, str]]
    builds: list[tuple[str, str, str, str]]
    """What, compiler, SHA-256 of what ran, command."""
    workloads: list[tuple[str, str, str, str, str]]
    anchors: list[tuple[str, str, str, str]]
    steps: list[tuple[str, list[str]]]
    """What to do, and the commands for it."""


def view(record: RunRecord, beside: Beside) -> EvidenceView:
    """From the file where it is at hand; the commands from the record alone."""
    steps = _steps(record)
    evidence = beside.evidence
    if evidence is None:
        why = "No certificate is at hand."
        if record.outcome not in ("accepted", "provisional"):
            why = "There is no certificate: nothing was accepted."
        return EvidenceView("none", why, [], [], [], [], [], steps)
    state = evidence.signature.partition(":")[0]
    if evidence.certificate is None:
        said = f"certificate.json cannot be read: {one_line(evidence.signature)}"
        return EvidenceView("unreadable", said, [], [], [], [], [], steps)
    said = {
        "signed": f"Signed by the key {evidence.signer}. Whose key that is, this page cannot know.",
    }.get(state, f"The signature does not hold. {one_line(evidence.signature)}.")
    certificate = evidence.certificate
    fields = _fields(certificate)
    if evidence.sha256 is not None:
        fields.append(("SHA-256 of certificate.json", evidence.sha256))
    return EvidenceView(
        state,
        said,
        fields,
        [(one_line(file.path), one_line(file.sha256)) for file in certificate.files],
        [
            (b.what, one_line(b.compiler), one_line(b.image_sha256 or "not kept"),
             one_line(b.command, 2000))
            for b in certificate.builds
        ],
        [
            (one_line(w.id), one_line(w.callee), f"{w.grid} × {w.block}", f"{w.launches:,}",
             f"{100 * w.time_share:.0f} %")
            for w in certificate.workloads
        ],
        [
            (one_line(a.workload), a.probe, str(output.index), one_line(output.sha256 or
             "two runs differ"))
            for a in certificate.anchors
            for output in a.outputs
        ],
        steps,
    )  # fmt: skip


def _fields(certificate: Certificate) -> list[tuple[str, str]]:
    clocks = certificate.sm_clock_mhz
    tuned = " ".join(f"{name}={value}" for name, value in certificate.candidate.tuned.items())
    rows = [
        ("outcome", certificate.outcome),
        ("time source", certificate.time_source),
        ("executor", certificate.executor),
        ("device", f"{certificate.device}, {certificate.sm_arch}"),
        ("driver", certificate.driver or "none: no GPU took part"),
        ("SM clock", f"{clocks[0]:.0f} to {clocks[1]:.0f} MHz" if clocks else "could not be asked"),
        ("author's kernel", f"{certificate.program.callee} in {certificate.program.main}"),
        ("candidate", f"{certificate.candidate.id}, {certificate.candidate.title}"),
        ("proposer", certificate.candidate.proposer),
        ("tuned", tuned or "nothing to tune"),
        ("SHA-256 of its source", certificate.candidate.source_sha256),
        ("bar", f"{certificate.bar:g}×"),
        ("seed of the secret inputs", str(certificate.seed)),
        ("judged before it", str(certificate.judged_before)),
        ("isolation", certificate.judgement.isolation or "none"),
        ("released by a person", certificate.review.summary if certificate.review else "not asked"),
    ]  # fmt: skip
    return [(name, one_line(value)) for name, value in rows]


def _steps(record: RunRecord) -> list[tuple[str, list[str]]]:
    """The report's next steps, commands under the sentence that they belong to."""
    found: list[tuple[str, list[str]]] = []
    for line in content.next_steps(record):
        if line.startswith("$ ") and found:
            found[-1][1].append(line[2:])
        else:
            found.append((line, []))
    return found
