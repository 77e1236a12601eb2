"""The certificate of a real run says what is in its folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cudaops.certify.envelope import open_envelope
from cudaops.domain.certificate import Certificate, contradictions
from cudaops.domain.run import RunRecord
from tests.certify.runs import BASELINE, CANDIDATE, certified_run, cudaops


@pytest.fixture(scope="module")
def run(certified: Path) -> Path:
    return certified / "run"


def certificate_of(run: Path) -> Certificate:
    record = open_envelope((run / "certificate.json").read_bytes(), "certificate").record
    assert isinstance(record, Certificate)
    return record


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_it_is_signed_and_agrees_with_itself(run: Path) -> None:
    envelope = open_envelope((run / "certificate.json").read_bytes(), "certificate")
    assert envelope.state == "signed"
    assert contradictions(certificate_of(run)) == ()


def test_its_hashes_are_those_of_the_files(run: Path) -> None:
    certificate = certificate_of(run)
    names = {file.path for file in certificate.files}
    assert {"best.cu", "best.patch", "iterations/01/candidate.cu", "state/program.json"} <= names
    for file in (*certificate.files, *(f for w in certificate.workloads for f in w.files)):
        assert digest(run / file.path) == file.sha256, file.path
    assert certificate.program.files[0].sha256 == digest(BASELINE)
    assert certificate.candidate.source_sha256 == digest(CANDIDATE)


def test_it_says_what_the_run_said(run: Path) -> None:
    certificate = certificate_of(run)
    record = RunRecord.model_validate_json((run / "run.json").read_text("utf-8"))
    assert certificate.judgement == record.judgement
    assert certificate.outcome == record.outcome == "provisional"
    assert certificate.bar == certificate.policy.min_speedup == 1.1
    assert certificate.seed == json.loads((run / "state" / "seed.json").read_text())
    assert [b.what for b in certificate.builds] == ["baseline", "widened", "candidate"]
    assert all(b.image_sha256 for b in certificate.builds)
    assert not record.notices or "not signed" not in " ".join(record.notices)


def test_it_names_no_place_on_the_machine(run: Path) -> None:
    text = (run / "certificate.json").read_text("ascii")
    for place in (str(run.parent), str(Path(__file__).parents[2]), str(Path.home())):
        assert place not in text


def test_it_has_an_anchor_a_workload_and_probe(run: Path) -> None:
    anchors = certificate_of(run).anchors
    assert [(a.workload, a.probe) for a in anchors] == [("w0", "signed"), ("w0", "exact")]
    assert all(o.sha256 for a in anchors for o in a.outputs)
    assert [o.exact for a in anchors for o in a.outputs] == [False, True]


def test_without_a_place_for_a_key_it_is_unsigned_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made of this")
    run = certified_run(tmp_path / "run", tmp_path / "file" / "signing.key")
    envelope = open_envelope((run / "certificate.json").read_bytes(), "certificate")
    assert envelope.state == "unsigned"
    assert "no key can be created" in envelope.why
    assert "the certificate is not signed" in (run / "run.json").read_text("utf-8")
    done = cudaops("certify", "check", run, key=tmp_path / "file" / "signing.key")
    assert done.returncode == 1
    assert "signature: unsigned: no key can be created" in done.stdout
