"""The stages of gpu_check.sh. Each runs commands as a user would and keeps what they print.

With `CUDAOPS_GPU_DRIVER=tests.standin.platform:StandInPlatform` the same stages run without a GPU,
to try the check itself.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DRIVER = os.environ.get("CUDAOPS_GPU_DRIVER", "nvidia")
STANDIN = DRIVER != "nvidia"
SIZE = 256 if STANDIN else 1024
JUDGEMENTS = 3 if STANDIN else 40
"""A/A comparisons; each gives the samples of one judgement."""
EXPLOITS = (
    "never_ends", "asks_for_too_much_shared_memory", "writes_out_of_bounds", "counts_its_calls",
    "cache_keyed_by_pointer", "cache_keyed_by_value", "remembers_in_scratch", "half_precision",
    "tf32_operands", "asks_the_clock", "writes_zeros", "writes_nothing", "writes_half_of_it",
    "leaves_out_a_barrier", "races_on_shared_memory", "reads_scratch_it_never_wrote", "traps",
    "knows_the_captured_inputs", "scribbles_on_an_input", "skips_what_is_not_zero",
    "waits_for_a_lock_for_ever", "floods_the_output", "host_code", "never_applies", "half/",
    "sum/loads_four_at_once_from_odd_rows",
)  # fmt: skip
"""Of tests/exploits: a choice that takes two minutes; `make exploits` runs all on `cpu`."""
REPEATS = 5
MAX_KEPT_BYTES = 8 * 1024**2
"""A larger file is no record."""
SUITE_S = 540.0
"""One call on the machine that is lent to us may take 600 s."""
SAME_S = 120.0
"""A/A comparisons end after this, however many there are by then."""


class Check:
    """One run of the check: a folder of results and the lines of the report."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.failed = False
        self.source = folder / "naive_matmul.cu"
        text = (ROOT / "examples" / "naive_matmul.cu").read_text("utf-8")
        self.source.write_text(text.replace("= 1024", f"= {SIZE}"), "utf-8")

    def say(self, line: str = "") -> None:
        """A line of the report, shown at once."""
        self.lines.append(line)
        print(line, flush=True)

    def command(
        self, name: str, command: list[str], timeout_s: float, *, wanted: tuple[int, ...] = (0,)
    ) -> subprocess.CompletedProcess[str] | None:
        """Run, keep stdout and stderr under `name`; None where it did not end in time."""
        started = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as late:
            for suffix, printed in (("out", late.stdout), ("err", late.stderr)):
                said = printed if isinstance(printed, bytes) else b""
                (self.folder / f"{name}.{suffix}").write_bytes(said)
            self.say(f"- **{name}**: not finished after {timeout_s:.0f} s")
            self.failed = True
            return None
        (self.folder / f"{name}.out").write_text(done.stdout, "utf-8")
        (self.folder / f"{name}.err").write_text(done.stderr, "utf-8")
        self.failed |= done.returncode not in wanted
        mark = "ok" if done.returncode in wanted else f"UNEXPECTED exit code {done.returncode}"
        self.say(f"- {name}: {mark}, {time.monotonic() - started:.1f} s")
        if done.returncode not in wanted:
            self.say("\n".join(f"      {line}" for line in done.stderr.splitlines()[-8:]))
        return done


def cudaops(*words: str) -> list[str]:
    """A cudaops command line."""
    return [sys.executable, "-m", "cudaops", *words]


def doctor(check: Check) -> None:
    """What the machine can do."""
    done = check.command("doctor", cudaops("doctor", "--json"), 120, wanted=(0, 3))
    if done is not None:
        for rung in json.loads(done.stdout)["rungs"]:
            if rung["status"] in ("failed", "missing"):
                check.say(f"      {rung['status']} {rung['name']}: {rung['detail'][:160]}")


def run(check: Check) -> None:
    """The main job: must be accepted, at least 4x, with one full ncu profile, under 30 s."""
    out = check.folder / "run"
    words = ("run", str(check.source), "--executor", "cuda", "--out", str(out))
    done = check.command("run", cudaops(*words), 300, wanted=(0, 1))
    if done is None or not (out / "run.json").is_file():
        return
    record = json.loads((out / "run.json").read_text("utf-8"))
    verify, spent = record["verify"], record["seconds_by_tool"]
    itself = spent.get("cudaops itself", 0.0)
    check.say(f"      outcome {record['outcome']}, times {record['time_source']}")
    check.say(f"      device {record['device']}, {record['sm_arch']}, tools {record['tools']}")
    check.say(
        f"      kernel {verify['baseline_kernel_ms']} -> {verify['candidate_kernel_ms']} ms, "
        f"speedup {verify['speedup']}, interval of gate `speedup` in run.json"
    )
    check.say(
        f"      loop {record['loop_time_seconds']} s, cudaops itself {itself:.1f} s "
        f"({100 * itself / max(record['loop_time_seconds'], 1e-9):.0f} %), by tool {spent}"
    )
    for notice in record["notices"]:
        check.say(f"      notice: {notice}")
    for gate in (record["judgement"] or verify)["gates"]:
        check.say(f"      {gate['seconds']:6.2f} s {gate['name']}: {gate['summary'][:150]}")


def tests(check: Check) -> None:
    """The tests that need a GPU."""
    # Only the files that have some: others import what is not packed.
    files = [
        str(p)
        for p in sorted((ROOT / "tests").rglob("test_*.py"))
        if "mark.gpu" in p.read_text("utf-8")
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    command += ["-W", "default", *files]  # what packages of the image warn of is no failure
    done = check.command("tests", command, 240, wanted=(0, 1, 5))
    if done is not None:
        tail = [line for line in done.stdout.splitlines() if line.strip()][-12:]
        check.say("\n".join(f"      {line}" for line in tail))


def confirm(check: Check) -> None:
    """The certificate of the run, and the run judged again with other secret inputs."""
    out = check.folder / "run"
    certificate = str(out / "certificate.json")
    check.command("certify", cudaops("certify", "check", certificate), 60)
    done = check.command("confirm", cudaops("confirm", str(out)), 240, wanted=(0, 1))
    if done is not None:
        check.say("\n".join(f"      {line}" for line in done.stdout.splitlines()[:6]))


def script(check: Check) -> None:
    """A model's dialogue from a script: one that does not compile, one wrong, one slower, and one
    that wins, all judged on this GPU."""
    model = f"scripted:{ROOT / 'examples' / 'scripts' / 'naive_matmul.json'}"
    _searched(check, "script", "--model", model, "--max-iterations", "4", wanted=(0, 1, 2))


def beam(check: Check) -> None:
    """Recipes alone in a beam."""
    _searched(check, "beam", "--optimizer", "recipes", "--strategy", "beam", wanted=(0, 1))


def _searched(check: Check, name: str, *words: str, wanted: tuple[int, ...]) -> None:
    out = check.folder / name
    more = ("--executor", "cuda", "--no-memory", "--out", str(out), *words)
    done = check.command(name, cudaops("run", str(check.source), *more), 300, wanted=wanted)
    if done is None or not (out / "run.json").is_file():
        return
    record = json.loads((out / "run.json").read_text("utf-8"))
    check.say(f"      outcome {record['outcome']}, {record['reason']}")
    check.say(f"      loop {record['loop_time_seconds']} s, by tool {record['seconds_by_tool']}")
    for attempt in record["attempts"]:
        judgement = attempt["judgement"]
        check.say(
            f"      {attempt['iteration']} {attempt['title']}: {judgement['outcome']}, "
            f"{judgement['reason'][:140]}"
        )


def exploits(check: Check) -> None:
    """Cheats that must be refused, on this GPU."""
    _suite(check, "exploits", EXPLOITS)


def honest(check: Check) -> None:
    """Honest kernels that must pass: every one, 13 s each."""
    _suite(check, "honest", ("honest/",))


def _suite(check: Check, name: str, words: tuple[str, ...]) -> None:
    where = "standin" if STANDIN else "cuda"
    command = [sys.executable, "-m", "tests.exploits.suite", "--executor", where, *words]
    check.command(name, command, SUITE_S)
    printed = (check.folder / f"{name}.out").read_text("utf-8").splitlines()
    right = [line for line in printed if line.startswith(("refused  ", "passed"))]
    check.say(f"      {len(right)} as they must be, of {len(printed)} lines")
    check.say("\n".join(f"      {line}" for line in printed if line not in right))


def service(check: Check) -> None:
    """`cudaops serve` on this GPU: two jobs at once, and one by `--executor remote`."""
    command = [sys.executable, "benchmarks/gpu_service.py", str(check.source)]
    done = check.command("service", [*command, str(check.folder / "service")], 540)
    if done is not None:
        check.say(done.stdout.rstrip())


def same(check: Check) -> None:
    """A/A: the author's kernel against itself, and how often that would be accepted."""
    from cudaops.cuda.devices import device
    from cudaops.domain.execution import Captured, Compiled, Unit
    from cudaops.domain.judge import REQUIRED_MEASURED_GATES, judge
    from cudaops.domain.judgement import Comparison, Gate, Policy
    from cudaops.executors.cuda.executor import CudaExecutor
    from cudaops.program.parse import load_program
    from cudaops.program.plans import baseline_plan

    executor = CudaExecutor(None, check.folder / "cache", driver=DRIVER)
    program = load_program(check.source)
    captured = executor.capture(program, None, (), check.folder / "same", 60.0)
    assert isinstance(captured, Captured), captured
    workload = captured.workloads[0]
    unit = Unit(program=program, kernel=captured.kernel, callee=workload.callee)
    compiled = executor.compile(unit)
    assert isinstance(compiled, Compiled), compiled
    gates = tuple(Gate(name=n, passed=True, summary="") for n in REQUIRED_MEASURED_GATES)
    pairs: list[dict[str, Any]] = []
    accepted, before = 0, None
    until = time.monotonic() + SAME_S
    for _ in range(JUDGEMENTS):
        if time.monotonic() > until:
            break
        pair = executor.measure_pair(compiled, compiled, workload, baseline_plan(workload))
        assert isinstance(pair, tuple), pair
        comparison = Comparison(
            workload=workload.id, weight=1.0, baseline=pair[0], candidate=pair[1]
        )
        if before is not None:  # each is the fresh measurement of the one before
            judgement = judge(gates, [before], Policy(min_speedup=1.0), fresh=[comparison])
            accepted += judgement.outcome == "accepted"
        before = comparison
        pairs.append({"a": pair[0].model_dump(), "b": pair[1].model_dump()})
    record = {
        "device": device(executor.device).full_name,
        "tools": dict(executor.tools()),
        "kernel": captured.kernel,
        "accepted_at_the_lowest_bar": accepted,
        "judgements": len(pairs) - 1,
        "pairs": pairs,
    }
    (check.folder / "same.json").write_text(json.dumps(record), "utf-8")
    medians = [statistics.median(p["a"]["samples_us"]) for p in pairs]
    check.say(
        f"- A/A: {accepted} of {len(pairs) - 1} accepted at a bar of 1; medians "
        f"{min(medians):.2f} to {max(medians):.2f} us"
    )
    executor.close()


def programs(check: Check) -> None:
    """KERNEL_MS as the programs print it: the author's, the rewrite's, the calibration set."""
    if shutil.which("nvcc") is None or STANDIN:
        check.say("- programs: not run (no nvcc, or a stand-in)")
        return
    sources = {"author": check.source, "rewrite": check.folder / "run" / "best.cu"}
    sources |= {p.stem: p for p in sorted((ROOT / "tests/data/calibration").glob("*.cu"))}
    check.say("\n| program | median ms | least | most |\n|---|---|---|---|")
    for name, source in sources.items():
        if not source.is_file():
            continue
        binary = check.folder / f"{name}.bin"
        subprocess.run(["nvcc", "-O3", "-arch=native", "-o", binary, source], check=True)
        times = sorted(_kernel_ms(binary) for _ in range(REPEATS))
        binary.unlink()
        row = f"| {name} | {statistics.median(times):.4f} | {times[0]:.4f} | {times[-1]:.4f} |"
        check.say(row)
    check.say()


def _kernel_ms(binary: Path) -> float:
    done = subprocess.run([binary], capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"KERNEL_MS:\s*([0-9.eE+-]+)", done.stderr + done.stdout)
    assert found is not None, "the program prints no KERNEL_MS"
    return float(found[1])


STAGES: dict[str, Callable[[Check], None]] = {
    "doctor": doctor, "run": run, "confirm": confirm, "programs": programs, "exploits": exploits,
    "honest": honest, "same": same, "tests": tests, "script": script, "beam": beam,
    "service": service,
}  # fmt: skip


def main() -> None:
    """Run the stages named on the command line, or all; write the report whatever happens."""
    wanted = sys.argv[1:] or list(STAGES)
    unknown = [name for name in wanted if name not in STAGES]
    if unknown:
        sys.exit(f"gpu_check: no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    out = Path(os.environ.get("OUT", ".")).resolve()
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        folder = Path(name) / "gpu_check"
        folder.mkdir()
        check = Check(folder)
        run_stages(check, wanted, out)
    sys.exit(check.failed)


def run_stages(check: Check, wanted: list[str], out: Path) -> None:
    """One after the other; what there is is written after each, in case the time is up then."""
    smi = shutil.which("nvidia-smi")
    query = "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm"
    shown = "a stand-in, no GPU"
    if smi and not STANDIN:
        asked = [smi, query, "--format=csv,noheader"]
        shown = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    check.say(
        f"# GPU check\n\n{shown}; Python {platform.python_version()}, {os.cpu_count()} cores; "
    )
    check.say(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, `gpu_check.sh {' '.join(wanted)}`\n")
    for name in wanted:
        try:
            STAGES[name](check)
        except Exception as error:  # noqa: BLE001 - one stage must not cost the others
            check.say(f"- **{name}** broke: {type(error).__name__}: {error}")
            check.failed = True
        write(check, out)


def write(check: Check, out: Path) -> None:
    """The report and the archive as far as they are."""
    (out / "gpu_check.md").write_text("\n".join(check.lines) + "\n", "utf-8")
    with tarfile.open(out / "gpu_check.tar.gz", "w:gz") as archive:
        archive.add(check.folder, "gpu_check", filter=_kept)


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Records, not buffers and builds."""
    made_again = {"cache", "cubins", "same", "workloads", "work", "state"}
    left = made_again & set(entry.name.split("/")) or entry.size > MAX_KEPT_BYTES
    return None if left else entry


if __name__ == "__main__":
    main()
