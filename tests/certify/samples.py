"""A small measured certificate that holds together, and how to sign and bend it."""

from __future__ import annotations

import random
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cudaops.certify.envelope import seal
from cudaops.certify.keys import NoKey, Signer, find_or_make_key
from cudaops.domain.base import Dim3
from cudaops.domain.certificate import (
    CERTIFICATE_FORMAT,
    Anchor,
    AnchorOutput,
    AuthorProgram,
    BufferHash,
    CandidateIdentity,
    Certificate,
    CertifiedBuild,
    FileHash,
    WorkloadIdentity,
)
from cudaops.domain.execution import Measurement
from cudaops.domain.judge import REQUIRED_MEASURED_GATES, judge
from cudaops.domain.judgement import Comparison, Gate, Policy

HASH = "0" * 64


def made(path: Path) -> Signer:
    """The key at this path, made where there is none."""
    signer = find_or_make_key(path)
    assert isinstance(signer, Signer), signer
    return signer


def new_signer() -> Signer:
    return Signer(Ed25519PrivateKey.generate())


def comparison(ratio: float, seed: int) -> Comparison:
    """30 pairs of samples with 0.5 % of noise."""
    noise = random.Random(seed)

    def side(center_us: float) -> Measurement:
        samples = tuple(round(center_us * (1 + noise.gauss(0, 0.005)), 4) for _ in range(30))
        return Measurement(source="cuda_event", device="H200", samples_us=samples, workload="w0")

    return Comparison(workload="w0", weight=1.0, baseline=side(100 * ratio), candidate=side(100))


def anchor(probe: str = "signed", **changed: object) -> Anchor:
    return Anchor.model_validate(
        {
            "workload": "w0",
            "probe": probe,
            "seed": 1,
            "inputs_sha256": HASH,
            "outputs": [AnchorOutput(index=2, sha256="a" * 64, exact=probe == "exact")],
            "executor": "cuda",
            "sm_arch": "sm_90",
            "compiler": "nvcc 13.0",
            **changed,
        }
    )


def certificate(ratio: float = 2.0) -> Certificate:
    gates = [Gate(name=name, passed=True, summary="ok") for name in REQUIRED_MEASURED_GATES]
    policy = Policy()
    first, fresh = (comparison(ratio, 1),), (comparison(ratio, 2),)
    file = FileHash(path="workloads/w0/a2.bin", sha256=HASH)
    return Certificate(
        run_id="mm-1",
        date="2026-11-20T00:00:00.000Z",
        cudaops_version="0.1.0",
        outcome="accepted",
        executor="cuda",
        time_source="cuda_event",
        device="H200",
        sm_arch="sm_90",
        driver="580.1",
        sm_clock_mhz=(1980.0, 1980.0),
        tools={"nvcc": "13.0"},
        program=AuthorProgram(
            main="mm.cu",
            kernel="mm",
            callee="mm",
            argv=(),
            files=(FileHash(path="mm.cu", sha256=HASH),),
        ),
        candidate=CandidateIdentity(
            id="c" * 12,
            iteration=1,
            proposer="user",
            title="tiles",
            source_sha256=HASH,
            tuned={"TILE": 64},
            preprocessed_sha256=None,
        ),
        files=(FileHash(path="best.cu", sha256=HASH),),
        builds=(
            CertifiedBuild.model_validate(
                {
                    "what": "candidate",
                    "key": "k",
                    "image": "unit.cubin",
                    "image_sha256": HASH,
                    "command": "nvcc -cubin",
                    "compiler": "nvcc 13.0",
                }
            ),
        ),
        workloads=(
            WorkloadIdentity(
                id="w0",
                callee="mm",
                grid=Dim3(x=4),
                block=Dim3(x=64),
                dynamic_smem_bytes=0,
                launches=1,
                time_share=1.0,
                buffers=(
                    BufferHash(
                        index=2, size_bytes=4, element="f32", role="out", before=file, after=file
                    ),
                ),
            ),
        ),
        policy=policy,
        bar=policy.min_speedup,
        timeout_seconds=120.0,
        seed=2**61 + 1,
        judgement=judge(gates, first, policy, fresh=fresh, judged_before=3, isolation="S2"),
        comparisons=first,
        fresh=fresh,
        judged_before=3,
        anchors=(anchor("signed"), anchor("exact")),
    )


def sealed(record: Certificate | None = None, signer: Signer | NoKey | None = None) -> bytes:
    return seal(CERTIFICATE_FORMAT, record or certificate(), signer or new_signer())
