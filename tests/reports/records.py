"""Finished records for the reports: a provisional run, one that found nothing."""

from __future__ import annotations

from cudaops.domain.base import Dim3, SourceLocation
from cudaops.domain.judgement import Attempt, Gate, Judgement, WorkloadTime
from cudaops.domain.profile import Evidence, HotLine, Metric, Profile, Roofline, Verdict
from cudaops.domain.rewrite import LaunchPlan, LaunchStep, Rewrite, Tune
from cudaops.domain.run import (
    Citation,
    LaunchConfiguration,
    ProfileSummary,
    ProgramSummary,
    ResearchFindings,
    RunOptions,
    RunRecord,
    VerifySummary,
)

L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"


def profile(duration_us: float = 1240.0) -> Profile:
    return Profile(
        kernel="naive_matmul",
        device="A10",
        workload="w0",
        source="modelled",
        duration_us=duration_us,
        metrics={
            L1: Metric(name=L1, value=97.31, unit="%", source="modelled"),
            "launch__block_size": Metric(
                name="launch__block_size", value=256, unit="threads", source="launch"
            ),
        },
        hot_lines=(
            HotLine(
                location=SourceLocation(file="naive_matmul.cu", line=27),
                text="sum += A[row * N + k] * B[k * N + col];",
                share_pct=99.2,
                note="global load, 3.0 sectors/request",
            ),
        ),
        notes=("counted on 32 of 4096 blocks",),
    )


def verdict(subtype: str = "l1_load_throughput") -> Verdict:
    return Verdict(
        bottleneck_class="compute_bound",
        subtype=subtype,
        summary="Limited by L1 load throughput: every operand is loaded again for every use.",
        evidence=(
            Evidence(
                metric=L1, label="L1/TEX throughput", value=97.31, unit="%", comparison=">=",
                threshold=80, source="Nsight Compute Speed of Light",
            ),
        ),
        relief="Tile through shared memory and registers.",
        roofline=Roofline(
            flops=2 * 1024**3,
            dram_bytes=12.6e6,
            arithmetic_intensity_flop_per_byte=170.4,
            attained_gflops=1732.0,
            peak_gflops=31240.0,
            peak_bandwidth_gb_s=600.0,
            bound="compute",
            floor_us=68.7,
            attained_pct=5.54,
        ),
        source="modelled",
    )  # fmt: skip


def rewrite() -> Rewrite:
    return Rewrite(
        source="// @tune BM = 64, 128\n__global__ void tiled(const float* A) { /* ``` */ }\n",
        plan=LaunchPlan(
            launches=(
                LaunchStep(kernel="tiled", grid=("1",), block=("256",), args=("A",), line=1),
            ),
            tune=(Tune(name="BM", values=(64, 128)),),
        ),
        proposer="recipe:matmul",
        title="shared-memory and register tiling",
        why="each operand is loaded once a tile and reused from registers",
        tuned={"BM": 128},
    )


def gates() -> tuple[Gate, ...]:
    return (
        Gate(name="compile", passed=True, summary="compiled by g++", seconds=1.2),
        Gate(
            name="correctness_captured",
            passed=True,
            summary="relative L2 error within 4 times the baseline's",
            numbers={
                "candidate_rel_l2": 1.2e-7,
                "baseline_rel_l2": 1.4e-7,
                "max_error_factor": 4.0,
            },
        ),
        Gate(
            name="speedup",
            passed=True,
            summary="clears the bar",
            numbers={"speedup": 5.561, "min_speedup": 1.2},
        ),
    )


def attempt(outcome: str, iteration: int = 1) -> Attempt:
    judgement = Judgement.model_validate(
        {
            "outcome": outcome,
            "reason": "speedup: clears the bar"
            if outcome == "provisional"
            else "speedup: 1.01 < 1.2",
            "gates": gates(),
            "speedup": 5.561 if outcome == "provisional" else 1.01,
            "time_source": "modelled",
        }
    )
    return Attempt(
        iteration=iteration,
        rewrite_id="0123456789ab",
        source_id="ba9876543210",
        title="shared-memory and register tiling",
        proposer="recipe:matmul",
        tuned={"BM": 128},
        judgement=judgement,
        baseline_us=1240.0,
        candidate_us=223.0,
        configurations_tried=12,
        lesson="larger tiles help",
    )


def run_options(out: str = "/tmp/runs/naive_matmul/20261120T080000Z") -> RunOptions:
    return RunOptions(source="/home/dev/naive_matmul.cu", out=out)


def provisional(out: str = "/tmp/runs/naive_matmul/20261120T080000Z") -> RunRecord:
    """What `make demo` ends with."""
    tried = attempt("provisional")
    return RunRecord(
        run_id="20261120T080000Z-naive_matmul-1f2e",
        date="2026-11-20T08:00:00.000Z",
        cudaops_version="0.1.0",
        outcome="provisional",
        reason="speedup: clears the bar",
        executor="cpu",
        time_source="modelled",
        device="A10",
        sm_arch="sm_86",
        options=run_options(out),
        program=ProgramSummary(
            source_sha256="0" * 64, kernel="naive_matmul", callee="naive_matmul",
            launches=23, workloads=1,
        ),
        profile=ProfileSummary(
            verdict=verdict().summary,
            subtype="l1_load_throughput",
            metrics_parsed=2,
            baseline=profile(),
            verdict_detail=verdict(),
            best=profile(223.0),
            best_verdict=verdict("issue_slots"),
        ),
        research=ResearchFindings(
            query="l1 load throughput",
            summary="Tile.",
            citations=(
                Citation(
                    note="l1-load-throughput", title="L1 load throughput", heading="Relief",
                    text="Tile.", source="Nsight Compute documentation", score=0.9,
                ),
            ),
        ),
        verify=VerifySummary(
            compile_ok=True,
            correctness="match",
            baseline_kernel_ms=1.24,
            candidate_kernel_ms=0.223,
            speedup=5.561,
            iteration_accepted=1,
            max_iterations=3,
            accept_threshold=1.2,
            gates=gates(),
        ),
        best=rewrite(),
        judgement=tried.judgement,
        attempts=(attempt("rejected"), tried.model_copy(update={"iteration": 2})),
        notices=("the notes were searched with static word vectors",),
        seconds_by_stage={"profiler": 3.2},
        loop_time_seconds=42.1,
        tools={"g++": "12.2.0"},
    )  # fmt: skip


def several_configurations() -> RunRecord:
    """Two launch configurations: of 3 launches at 14.8 us and one at 9.58 us."""
    record = provisional()
    assert record.program is not None
    times = (
        WorkloadTime(workload="w0", share=44.4 / 53.98, baseline_us=14.8, candidate_us=2.65),
        WorkloadTime(workload="w1", share=9.58 / 53.98, baseline_us=9.58, candidate_us=4.0),
    )
    after = (3 * 2.65 + 4.0) / 4
    last = record.attempts[-1].model_copy(
        update={"times": times, "baseline_us": 53.98 / 4, "candidate_us": after}
    )
    timed = tuple(
        LaunchConfiguration(
            workload=f"w{i}", callee="naive_matmul", grid=Dim3(x=blocks), block=Dim3(x=32),
            scalars=f"N = {32 * blocks}", launches=launches,
        )
        for i, (blocks, launches) in enumerate(((128, 3), (64, 1)))
    )  # fmt: skip
    verify = {"speedup": 53.98 / 4 / after, "iteration_accepted": 2,
              "baseline_kernel_ms": 53.98 / 4000, "candidate_kernel_ms": after / 1000}  # fmt: skip
    return record.model_copy(
        update={
            "attempts": (record.attempts[0], last),
            "program": record.program.model_copy(update={"timed": timed}),
            "verify": record.verify.model_copy(update=verify),
        }
    )


def nothing_found() -> RunRecord:
    """A kernel that no recipe could better."""
    return provisional().model_copy(
        update={
            "outcome": "nothing_found",
            "reason": "no rewrite reached the threshold: 1.01 < 1.2",
            "best": None,
            "judgement": None,
            "attempts": (attempt("rejected"),),
        }
    )
