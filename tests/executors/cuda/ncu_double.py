"""A stand-in for the ncu command line, for machines without counters to read.

It takes the calls cudaops makes of ncu and behaves as ncu 2025.3 does: `--version`; profiling,
which runs the target and, where that ended well, leaves a report (the recorded one of
tests/data/ncu); and `--import REPORT --csv --page details|raw`, which prints the recorded pages.
What it prints when it fails are ncu's own words. A file `mode` beside the script says how it is to
fail; `calls` beside it takes the options of every call.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

RECORDED = Path(__file__).parents[2] / "data" / "ncu"
KERNEL = "h200_naive_matmul_1024"
VALUED = {
    "--set", "--section", "--metrics", "--import-source", "--profile-from-start", "--clock-control",
    "--cache-control", "--target-processes", "-o", "--import", "--page",
}  # fmt: skip
SECTIONS = {
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "MemoryWorkloadAnalysis_Chart",
    "SchedulerStats", "WarpStateStats", "InstructionStats", "LaunchStats", "Occupancy",
    "SourceCounters", "PmSampling", "WorkloadDistribution", "NumaAffinity", "Nvlink_Tables",
    "Nvlink_Topology",
}  # fmt: skip
"""Those of the recorded report, the hierarchical rooflines aside."""
FLAGS = {"-f", "--csv", "--version"}
SAID = {
    "permission": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA "
    "GPU Performance Counters on the target device 0. For instructions on enabling permissions "
    "and to get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    "busy": "==ERROR== An error was reported by the driver:\n==ERROR== Profiling failed because a "
    "driver resource was unavailable. Ensure that no other tool (like DCGM) is concurrently "
    "collecting profiling data.",
    "driver_too_old": "==ERROR== Cuda driver is not compatible with Nsight Compute.",
    "chip_unknown": "==ERROR== Profiling is not supported on device 0. To find out supported GPUs "
    "refer --list-chips option.",
    "lock": "==ERROR== Failed to open lock file /tmp/nsight-compute-lock: permission denied",
}


def install(folder: Path, mode: str = "") -> Path:
    """An `ncu` in this folder that fails in this way, and its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "ncu"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from tests.executors.cuda.ncu_double import main\n"
        "sys.exit(main(sys.argv[1:], Path(__file__).parent))\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    if mode:
        (folder / "mode").write_text(mode, encoding="utf-8")
    return program


def main(arguments: list[str], home: Path) -> int:
    """What `ncu ARGUMENTS` would do, installed in this folder."""
    mode = (home / "mode").read_text("utf-8") if (home / "mode").is_file() else ""
    if mode == "older" and "--section" in arguments:
        say("==ERROR== Failed to find metric smsp__sass_thread_inst_executed_op_hfma_pred_on.sum")
        return 1
    options, target = read(arguments)
    with (home / "calls").open("a", encoding="utf-8") as calls:
        calls.write(" ".join(arguments[: len(arguments) - len(target)]) + "\n")
    if "--version" in options:
        say("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 36398880)")
        return 0
    if "--import" in options:
        return export(Path(options["--import"]), options["--page"])
    return profile(options, target, mode)


def read(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options and the target's command. An option it does not know ends it, as it ends ncu."""
    options: dict[str, str] = {}
    sections: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in VALUED | FLAGS:
            sys.exit(f"==ERROR== unrecognised option '{name}'. Use --help for further details.")
        options[name] = rest.pop(0) if name in VALUED else ""
        if name == "--section":
            sections.append(options[name])
    if options.get("--set") == "full":
        sections = list(SECTIONS)
    if unknown := set(sections) - SECTIONS:
        sys.exit(f"==ERROR== No section found with the identifier {unknown.pop()}")
    return options, rest


def profile(options: dict[str, str], target: list[str], mode: str) -> int:
    """Run the target and leave a report where there is something to report."""
    if mode == "lock" and "TMPDIR" in os.environ:
        mode = ""
    if mode == "hang":
        target = [sys.executable, "-c", "import time; time.sleep(60)"]
    ended = subprocess.run(target, check=False).returncode
    say("==PROF== Connected to process 4711")
    if mode in SAID:
        say(SAID[mode])
    if ended:
        say(f"==ERROR== The application returned an error code ({ended}).")
    if mode in SAID or mode == "no_kernel" or ended:
        say("==WARNING== No kernels were profiled.")
        return 0 if not ended else 1
    report = Path(options["-o"].replace("%%", "%") + ".ncu-rep")
    if mode in ("newer", "broken"):  # a format the wheel does not read yet, or nobody
        report.write_bytes(b"another format" if mode == "newer" else b"")
    else:
        shutil.copyfile(RECORDED / f"{KERNEL}.ncu-rep", report)
    say("==WARNING== Could not read 6 of ctc__* metrics.")
    say(f"==PROF== Report: {report}")
    return 0


def say(text: str) -> None:
    """Write a line where ncu does."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def export(report: Path, page: str) -> int:
    """The recorded page of a report that is one."""
    if not report.is_file() or not report.stat().st_size:
        say(f"==ERROR== Failed to open report file '{report}'")
        return 1
    sys.stdout.write((RECORDED / f"{KERNEL}.{page}.csv").read_text("utf-8"))
    return 0
