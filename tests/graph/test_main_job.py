"""The main job through the real graph, executor, database and embedder."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cudaops.domain.judgement import Policy
from cudaops.domain.run import Event, RunRecord
from cudaops.errors import InputError
from cudaops.graph.events import read_events
from cudaops.graph.resolve_options import run_options, target
from cudaops.graph.run import profile_only, start, verify_files
from cudaops.settings import load_settings

PROGRAMS = Path(__file__).parents[1] / "data" / "programs"


def run(source: Path, folder: Path, **options: object) -> RunRecord:
    chosen = run_options(source, folder, target("A10", None), **options)
    return start(chosen, lambda _: None, load_settings())


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, Path]:
    """Other names, 1-D block, template parameter, kernel in a local header, size from argv."""
    folder = tmp_path_factory.mktemp("gemm") / "run"
    size = ("512", "512", "512")
    return run(PROGRAMS / "gemm_header.cu", folder, argv=size, max_iterations=2), folder


@pytest.mark.essential
def test_a_program_of_another_shape_is_optimised(gemm: tuple[RunRecord, Path]) -> None:
    record, _ = gemm
    assert record.outcome == "provisional", record.reason
    assert record.time_source == "modelled"
    assert record.verify.compile_ok
    assert record.verify.correctness == "match"
    assert record.verify.speedup is not None
    assert record.verify.speedup >= 1.2
    assert record.profile is not None
    assert record.profile.metrics_parsed >= 40
    assert record.research is not None
    assert record.research.citations, record.notices


def test_the_run_folder_is_complete(gemm: tuple[RunRecord, Path]) -> None:
    record, folder = gemm
    for name in (
        "run.json",
        "best.cu",
        "best.patch",
        "certificate.json",
        "report.md",
        "events.jsonl",
    ):
        assert (folder / name).stat().st_size > 0, name
    assert RunRecord.model_validate_json((folder / "run.json").read_text()) == record
    attempts = sorted(p.name for p in (folder / "iterations").iterdir())
    assert attempts == [f"{i:02d}" for i in range(1, len(record.attempts) + 1)]
    certificate = json.loads((folder / "certificate.json").read_text())
    assert set(certificate["signature"]) == {"algorithm", "public_key", "value"}
    assert certificate["body"]["time_source"] == "modelled"
    assert not (folder / "work").exists()


def test_events_carry_the_numbers_that_their_lines_say(gemm: tuple[RunRecord, Path]) -> None:
    record, folder = gemm
    events = read_events(folder / "events.jsonl")
    ended = {e.stage: e.data for e in reversed(events) if e.kind == "finished"}
    assert ended["intake"]["provenance"] == "modelled for A10"
    assert ended["intake"]["min_speedup"] == record.options.policy.min_speedup
    assert record.profile is not None
    assert ended["profiler"]["baseline"] is True
    assert ended["profiler"]["summary"] == record.profile.verdict
    assert ended["profiler"]["time_us"] == record.profile.baseline.duration_us
    assert ended["profiler"]["evidence"]
    first = record.attempts[0]
    assert ended["verify"]["speedup"] == first.judgement.speedup
    assert ended["verify"]["candidate_us"] == first.candidate_us
    gates = [e.data["gate"] for e in events if "gate" in e.data and e.data["iteration"] == 1]
    # What is decided by the times themselves is no gate that a tool announces.
    assert gates == [g.name for g in first.judgement.gates if g.name != "speedup"]
    tried = [e.data for e in events if "values" in e.data]
    assert tried[0]["title"] == ended["optimizer"]["title"]
    timed = [t["time_us"] for t in ended["optimizer"]["trials"] if t["time_us"] is not None]
    assert {round(t, 1) for t in timed} <= {t["time_us"] for t in tried}


def test_the_patch_gives_the_best_file(gemm: tuple[RunRecord, Path], tmp_path: Path) -> None:
    _, folder = gemm
    for name in ("gemm_header.cu", "gemm_kernel.cuh"):
        shutil.copy(PROGRAMS / name, tmp_path / name)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-p1", str(folder / "best.patch")], cwd=tmp_path, check=True)
    assert (tmp_path / "gemm_header.cu").read_text() == (folder / "best.cu").read_text()


def test_every_stage_is_announced_and_ended(gemm: tuple[RunRecord, Path]) -> None:
    _, folder = gemm
    events = read_events(folder / "events.jsonl")
    assert [e.seq for e in events] == list(range(len(events)))
    for stage in (
        "intake",
        "supervisor",
        "profiler",
        "research",
        "optimizer",
        "sandbox",
        "verify",
        "report",
    ):
        assert _kinds(events, stage, "started") == _kinds(events, stage, "finished") > 0, stage


def _kinds(events: list[Event], stage: str, kind: str) -> int:
    return sum(e.stage == stage and e.kind == kind for e in events)


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("nt_product.cu", ("384",)),
        ("tn_alpha_beta.cu", ("384",)),
        ("transpose.cu", ("2048", "2000")),
    ],
)
@pytest.mark.deep
def test_other_kernels_that_recipes_know(tmp_path: Path, name: str, argv: tuple[str, ...]) -> None:
    low = Policy(min_speedup=0.5)
    record = run(PROGRAMS / name, tmp_path / "run", argv=argv, max_iterations=1, policy=low)
    assert record.attempts, record.reason
    assert record.verify.correctness == "match", record.reason


@pytest.mark.parametrize("name", ["stencil.cu", "tiled_good.cu"])
def test_what_no_recipe_improves_says_how_far_it_is_from_the_roofline(
    tmp_path: Path, name: str
) -> None:
    record = run(PROGRAMS / name, tmp_path / "run")
    assert record.outcome == "nothing_found"
    assert record.best is None
    assert not (tmp_path / "run" / "best.cu").exists()
    assert record.profile is not None
    assert record.profile.verdict_detail.roofline is not None
    assert "roofline" in (tmp_path / "run" / "report.md").read_text().lower()


@pytest.mark.deep
def test_failed_attempts_are_kept_and_not_repeated(tmp_path: Path) -> None:
    """A bar just out of reach: every attempt is rejected for its speed and another follows."""
    record = run(PROGRAMS / "transpose.cu", tmp_path / "run", policy=Policy(min_speedup=1.1))
    assert record.outcome == "nothing_found"
    sources = [a.source_id for a in record.attempts]
    assert sources
    assert len(sources) == len(set(sources))
    assert all(a.judgement.outcome == "rejected" and a.lesson for a in record.attempts)


def test_the_more_expensive_of_two_kernels_is_chosen(tmp_path: Path) -> None:
    options = run_options(PROGRAMS / "two_kernels.cu", tmp_path / "p", target("A10", None))
    summary = profile_only(options, lambda _: None, load_settings())
    assert summary.metrics_parsed >= 40
    assert list(tmp_path.iterdir()) == []
    other = run_options(
        PROGRAMS / "two_kernels.cu",
        tmp_path / "p",
        target("A10", None),
        kernel=_cheap_kernel(summary.baseline.kernel),
    )
    assert (
        profile_only(other, lambda _: None, load_settings()).baseline.kernel
        != summary.baseline.kernel
    )


def _cheap_kernel(chosen: str) -> str:
    from cudaops.program.parse import load_program

    names = [k.name for k in load_program(PROGRAMS / "two_kernels.cu").kernels]
    return next(n for n in names if n not in chosen)


def test_verify_judges_a_whole_program_written_by_somebody_else(tmp_path: Path) -> None:
    calibration = PROGRAMS.parent / "calibration"
    smaller = tmp_path / "programs"
    smaller.mkdir()
    for name in ("naive_matmul.cu", "reg64b16.cu"):
        text = (calibration / name).read_text().replace("const int N = 1024", "const int N = 512")
        (smaller / name).write_text(text)
    options = run_options(smaller / "naive_matmul.cu", tmp_path / "run", target("A10", None))
    record = verify_files(
        smaller / "naive_matmul.cu",
        smaller / "reg64b16.cu",
        options,
        lambda _: None,
        load_settings(),
    )
    assert record.outcome == "provisional", record.reason


def test_verify_judges_the_kernel_that_a_program_replaces(tmp_path: Path) -> None:
    """Another one takes most of the time. One line says so where several are replaced."""
    base = PROGRAMS.parent / "verify" / "rows.cu"
    old, new = "float sum = 0.0f;\n    for (int r", "double sum = 0;\n    for (int r"
    text = base.read_text().replace(old, new)
    candidate = tmp_path / "rows_in_double.cu"
    candidate.write_text(text)
    options = run_options(base, tmp_path / "run", target("A10", None))
    record = verify_files(base, candidate, options, lambda _: None, load_settings())
    assert record.options.kernel == "total"
    assert record.outcome == "nothing_found"
    kept = (
        "__global__ void third(float* p) { *p = 0; }\n"
        "__global__ void fourth(float* p) { *p = 1; }\n"
    )
    both = text.replace("int main(", kept + "int main(").replace(
        "    total<<<", "    third<<<1, 1>>>(d_result); fourth<<<1, 1>>>(d_result);\n    total<<<"
    )
    (tmp_path / "base.cu").write_text(both)
    candidate.write_text(both.replace("*p = 0", "*p = 2").replace("*p = 1", "*p = 3"))
    with pytest.raises(InputError, match="replaces `fourth`, `third`: choose one"):
        verify_files(
            tmp_path / "base.cu",
            candidate,
            run_options(tmp_path / "base.cu", tmp_path / "other", target("A10", None)),
            lambda _: None,
            load_settings(),
        )
