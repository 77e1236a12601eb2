"""A model's rewrites of a Triton kernel, by a script in its place, and a run's certificate, in
Triton's interpreter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import cudaops
from cudaops.cli import app
from cudaops.domain.execution import Measurement
from cudaops.domain.judge import TRITON_REQUIRED_MEASURED, judge
from cudaops.domain.judgement import Comparison, Gate, Policy
from cudaops.domain.run import RunRecord
from cudaops.errors import InputError
from cudaops.graph import triton_run
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.triton_certificate import write_triton_certificate
from cudaops.graph.triton_model import Written
from cudaops.settings import load_settings
from cudaops.triton.judging import TritonJudgement
from tests.triton.programs import EXAMPLES, REWRITES, SIZES, triton_python

SCRIPT = EXAMPLES.parent / "scripts" / "triton_vector_add.json"
"""A wrong rewrite, then a right one for whoever is told what was wrong."""
HEAD = "import triton\nimport triton.language as tl\n\nBLOCK = 1024\n\n\n@triton.jit\n"
KERNEL = "def vector_add(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):\n"
AT = "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
MASKED = AT + (
    "    inside = at < n\n    a = tl.load(a_ptr + at, mask=inside)\n"
    "    b = tl.load(b_ptr + at, mask=inside)\n    tl.store(c_ptr + at, a + b, mask=inside)\n"
)


def answer(title: str, body: str, head: str = HEAD, **more: Any) -> dict[str, Any]:
    text = f"TITLE: {title}\nWHY: fewer programs\n```python\n{head}{KERNEL}{body}```"
    return {"role": "coder", "text": text, **more}


def optimized(folder: Path, *answers: dict[str, Any], **options: Any) -> RunRecord:
    """A run of the example on cpu, with these answers in a model's place."""
    script = folder / "script.json"
    script.write_text(json.dumps({"cudaops_script": 1, "answers": answers}), "utf-8")
    return cudaops.optimize(
        EXAMPLES / "vector_add.py", executor="cpu", python=triton_python(), seed=7,
        argv=SIZES["vector_add"], out=folder / "run", model=f"scripted:{script}", **options,
    )  # fmt: skip


def test_a_model_writes_is_refused_is_told_why_and_writes_again(tmp_path: Path) -> None:
    record = optimized(
        tmp_path,
        answer("host code", MASKED, "import time\n" + HEAD, when=["def vector_add(", "n=1000"]),
        *json.loads(SCRIPT.read_text("utf-8"))["answers"],
        max_iterations=3,
    )
    first, second = record.attempts
    assert (first.title, first.judgement.reason.split(":")[0]) == ("no mask", "checker")
    assert (second.title, second.tuned) == ("larger blocks", {"BLOCK": 1024})
    assert second.proposer == "llm:scripted:script.json"
    assert all(gate.passed for gate in second.judgement.gates)
    assert record.outcome == "nothing_found"
    assert record.reason.endswith("results match; no time was measured")
    assert record.model is not None
    assert record.model.calls == 3
    assert "compared in Triton's interpreter on cpu: no times" in record.notices
    folder = tmp_path / "run"
    assert "BLOCK = 1024" in (folder / "iterations" / "02" / "candidate.py").read_text("utf-8")
    assert len(list((folder / "state" / "calls").glob("*-coder.json"))) == 3
    assert "larger blocks" in (folder / "report.md").read_text("utf-8")


def test_a_model_without_a_usable_answer_ends_the_run_with_a_line(tmp_path: Path) -> None:
    useless = [{"role": "coder", "text": text} for text in ("I cannot.", "```python\n```", "No.")]
    record = optimized(tmp_path, *useless)
    assert record.attempts == ()
    assert (
        "the model has no usable rewrite: no fenced block holds `def vector_add(`; there must be"
        " one" in record.notices
    )


def test_a_model_that_fails_is_a_notice(tmp_path: Path) -> None:
    record = optimized(tmp_path, {"role": "coder", "status": 401, "text": "no such key"})
    assert record.outcome == "nothing_found"
    (notice,) = [n for n in record.notices if n.startswith("the model is not asked any more: ")]
    assert "\n" not in notice


def test_a_script_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json"):
        cudaops.optimize(
            EXAMPLES / "vector_add.py", executor="cpu", python=triton_python(),
            out=tmp_path / "run", model="scripted:none.json",
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def _times(before_us: float, after_us: float) -> Comparison:
    def side(time_us: float) -> Measurement:
        samples = tuple(time_us * (1 + 0.001 * (n % 5)) for n in range(40))
        return Measurement(source="cuda_event", device="H200", samples_us=samples, workload="w0")

    return Comparison(workload="w0", weight=1.0, baseline=side(before_us), candidate=side(after_us))


def certify(folder: Path) -> None:
    """The certificate of a rewrite that agrees in the interpreter, with times made up in place of a
    GPU's."""
    options = run_options(
        EXAMPLES / "vector_add.py", folder / "run", target("A10", None),
        python=triton_python(), argv=SIZES["vector_add"], policy=Policy(min_speedup=1.2, seed=7),
    ).model_copy(update={"is_triton": True})  # fmt: skip
    settings = load_settings().model_copy(update={"signing_key": folder / "key.pem"})
    text = (REWRITES / "right_vector_add.py").read_text("utf-8")
    with triton_run._opened(options, lambda _: None, settings, {"BLOCK": 1024}) as run:
        found = Written(text, "wider blocks", "fewer programs")
        candidate, proposal = triton_run._candidate_of(run, 1, found, "llm:scripted")
        rewrite, judged = triton_run._judge(run, 1, candidate, proposal)
        gates = [g for g in judged.judgement.gates if g.name not in ("speedup", "remeasured")]
        for name in TRITON_REQUIRED_MEASURED[-3:]:
            gates.append(Gate(name=name, passed=True, summary="made up by a test"))
        samples, fresh = (_times(20.0, 10.0),), (_times(20.2, 10.0),)
        decided = judge(
            gates, samples, options.policy, fresh=fresh, required=TRITON_REQUIRED_MEASURED,
            isolation=judged.judgement.isolation,
        )  # fmt: skip
        assert decided.outcome == "accepted", decided.reason
        timed = TritonJudgement(decided, fresh, samples, fresh)
        run = run._replace(options=options.model_copy(update={"device": "H200"}))
        record = triton_run._finish(run, [(rewrite, timed)], [], [], settings)
        record = record.model_copy(update={"time_source": "cuda_event"})
        assert write_triton_certificate(
            folder / "run", record, run.bench, rewrite, timed, run.seed, settings.signing_key
        ) is None  # fmt: skip


def test_a_certificate_is_checked_and_a_change_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certify(tmp_path)
    monkeypatch.setenv("CUDAOPS_SIGNING_KEY", str(tmp_path / "key.pem"))
    run = tmp_path / "run"
    checked = CliRunner().invoke(app, ["certify", "check", str(run)])
    assert checked.exit_code == 0, checked.output
    assert "judgement: accepted, as follows from its 15 gates for Triton" in checked.stdout
    for name in ("best.py", "best.patch", "iterations/01/candidate.py", "iterations/01/program.py"):
        assert f"{name}: matches" in checked.stdout
    confirmed = CliRunner().invoke(app, ["confirm", str(run)])
    assert isinstance(confirmed.exception, InputError)
    said = str(confirmed.exception)
    assert "is a Triton run, which cannot be confirmed; judge it again with" in said
    best = run / "best.py"
    best.write_text(best.read_text("utf-8").replace("1024", "2048"), "utf-8")
    changed = CliRunner().invoke(app, ["certify", "check", str(run)])
    assert changed.exit_code == 1
    assert "best.py: DIFFERS" in changed.stdout
    sealed = run / "certificate.json"
    sealed.write_text(sealed.read_text("ascii").replace('"H200"', '"H100"'), "ascii")
    assert "DOES NOT HOLD" in CliRunner().invoke(app, ["certify", "check", str(run)]).stdout
