"""The signed certificate of a Triton run: gates, raw samples and hashes, to be checked anywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from cudaops import __version__
from cudaops.certify.check import digest
from cudaops.domain.base import Dim3
from cudaops.domain.certificate import (
    CERTIFICATE_NAME,
    AuthorProgram,
    BufferHash,
    CandidateIdentity,
    Certificate,
    FileHash,
    WorkloadIdentity,
)
from cudaops.domain.rewrite import Rewrite
from cudaops.domain.run import RunRecord
from cudaops.graph.certificate import bar_of, clocks_of, without_counts, write_signed
from cudaops.triton.bench import POISON, TritonBench, TritonWorkload
from cudaops.triton.judging import TritonJudgement, captured_reference
from cudaops.triton.source import OPTIONS


def write_triton_certificate(
    folder: Path,
    record: RunRecord,
    bench: TritonBench,
    rewrite: Rewrite,
    judged: TritonJudgement,
    seed: int,
    key: Path | None,
) -> str | None:
    """Write `certificate.json` of the accepted rewrite; why it is not signed, None where it is.

    Call it when `best.py`, `best.patch` and `iterations/` are in the folder, and before the
    captured contents are gone. `seed`: of the secret inputs. `key`: path of the key to sign with,
    None for the user's own.
    """
    number = record.verify.iteration_accepted
    assert number is not None, "only what was accepted is certified"
    policy, decided = record.options.policy, judged.judgement
    names = ("best.py", "best.patch", *(f"iterations/{number:02d}/{n}.py" for n in _KEPT))
    certificate = Certificate(
        run_id=record.run_id,
        date=record.date,
        cudaops_version=__version__,
        language="triton",
        outcome="accepted",
        executor=record.executor,
        time_source=record.time_source,
        device=record.device,
        sm_arch=record.sm_arch,
        driver=None,
        sm_clock_mhz=clocks_of((*judged.samples, *judged.fresh)),
        tools=record.tools,
        program=_program(bench),
        candidate=CandidateIdentity(
            id=rewrite.id,
            iteration=number,
            proposer=rewrite.proposer,
            title=rewrite.title,
            source_sha256=_text_digest(rewrite.source),
            tuned=rewrite.values(),
            preprocessed_sha256=None,
        ),
        files=tuple(FileHash(path=n, sha256=_file_digest(folder / n)) for n in names),
        builds=(),
        workloads=tuple(_workload(bench, one) for one in bench.workloads),
        policy=policy,
        bar=bar_of(decided, policy),
        timeout_seconds=record.options.timeout_seconds,
        seed=seed,
        judgement=decided,
        comparisons=without_counts(judged.samples),
        fresh=without_counts(judged.fresh),
        judged_before=judged.judged_before,
        anchors=(),
    )
    return write_signed(folder / CERTIFICATE_NAME, certificate, folder, key)


_KEPT = ("candidate", "program")
"""Files of an iteration: the rewrite as it was proposed, and the author's program with it in."""


def _program(bench: TritonBench) -> AuthorProgram:
    program = bench.program
    return AuthorProgram(
        main=program.name,
        kernel=bench.kernel.name,
        callee=bench.kernel.name,
        argv=tuple(bench.argvs[0].argv),
        runs=tuple(bench.argvs) if len(bench.argvs) > 1 else (),
        files=(FileHash(path=program.name, sha256=_text_digest(program.text)),),
    )


def _workload(bench: TritonBench, one: TritonWorkload) -> WorkloadIdentity:
    launch = one.launch
    x, y, z = (*launch.grid, 1, 1)[:3]
    warps = int(launch.options.get("num_warps") or OPTIONS["num_warps"])
    return WorkloadIdentity(
        id=one.name,
        callee=bench.kernel.name,
        grid=Dim3(x=x, y=y, z=z),
        block=Dim3(x=32 * warps, y=1, z=1),
        dynamic_smem_bytes=0,
        launches=launch.launches,
        time_share=one.weight,
        role="both" if one.weight > 0 else "judged",
        buffers=tuple(_buffers(bench, one)),
    )


def _buffers(bench: TritonBench, one: TritonWorkload) -> Iterator[BufferHash]:
    """What the captured launch was given and left; a buffer that it does not read was filled."""
    reference = captured_reference(bench, one)
    for n, buffer in enumerate(one.launch.buffers):
        given, left = reference.case.inputs[n], reference.outputs[n]
        path = f"captured/{one.name}/{one.buffer_name(n)}"
        filled = hashlib.sha256(bytes([POISON]) * buffer.bytes).hexdigest()
        before = filled if given is None else _file_digest(Path(given))
        role = "in" if n not in one.changed else "inout" if n in one.reads else "out"
        yield BufferHash.model_validate(
            {
                "index": n,
                "size_bytes": buffer.bytes,
                "element": buffer.element,
                "role": role,
                "before": {"path": f"{path}.before", "sha256": before},
                "after": {"path": f"{path}.after", "sha256": _file_digest(left)},
            }
        )


def _file_digest(path: Path) -> str:
    found = digest(path)
    assert found is not None, "the run has just written it"
    return found


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
