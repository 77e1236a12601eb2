"""What a person can do after a run; commands are whole lines that start with `$ `."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from cudaops.cuda.nvcc_line import flags_of
from cudaops.domain.performance_limit import PerformanceLimitKind
from cudaops.domain.run import RunRecord
from cudaops.reports.content import correctness_sentences, is_rejected

_AFTER_END: dict[PerformanceLimitKind, str] = {
    "roofline": "Fewer operations or bytes: another algorithm, or kernels fused into one.",
    "launch_bound": "Launch it less often: merge its launches, or record them as a CUDA graph.",
    "atomic_order": "If any order of the results will do, make the program independent of it.",
}


def next_steps(record: RunRecord) -> list[str]:
    """What the record's outcome calls for."""
    folder, source = PurePath(record.options.out), shlex.quote(record.options.source)
    if record.outcome in ("accepted", "provisional"):
        if record.options.is_triton:
            return _in_triton(record)
        best = shlex.quote(str(folder / "best.cu"))
        steps = ["Show the diff:", f"$ less {shlex.quote(str(folder / 'best.patch'))}"]
        if record.options.compiles_itself:
            steps = ["Show the diff:", steps[1], *_in_python(record)]
        elif record.options.build_command is not None:
            steps += _in_project(record)
        elif record.options.run_command is not None:
            steps += _in_application(record)
        elif record.options.kernel_source is not None:
            steps += _in_kernels(record)
        elif record.outcome == "provisional":
            steps += [
                f"Measure both on the {record.device} itself (provisional until then):",
                f"$ {_nvcc(record, source)} -o baseline && ./baseline",
                f"$ {_nvcc(record, best)} -o candidate && ./candidate",
            ]
        steps += [
            "Check the certificate on any machine; judge again with new inputs, here or on a GPU:",
            f"$ python -m cudaops certify check {shlex.quote(str(folder / 'certificate.json'))}",
            f"$ python -m cudaops confirm {shlex.quote(str(folder))}",
        ]
        return steps
    if record.outcome == "nothing_found" and record.end is not None:
        return [_AFTER_END[record.end.kind]]
    if is_rejected(record):
        if correctness_sentences(record):
            return ["The rewrite matches the baseline; --min-speedup sets the threshold."]
        return ["Fix what the gate reports, and run verify again."]
    if record.outcome == "nothing_found" and record.attempts:
        return ["Each candidate has its reason for rejection; --min-speedup sets the threshold."]
    if record.outcome == "nothing_found":
        return ["Start a rewrite by hand at the limit named above."]
    return ["Fix the cause named above and run again."]


def evidence_step(record: RunRecord) -> list[str]:
    """Where a short summary's evidence is."""
    folder = shlex.quote(str(PurePath(record.options.out)))
    return ["Show gates, metrics, hot lines and sources:", f"$ python -m cudaops report {folder}"]


def _nvcc(record: RunRecord, source: str) -> str:
    """The command that compiles a file as the author compiles theirs."""
    words = () if record.options.nvcc is None else flags_of(record.options.nvcc)
    return " ".join([f"nvcc -O3 -arch={record.sm_arch}", *map(shlex.quote, words), source])


def _in_project(record: RunRecord) -> list[str]:
    """How a rewrite gets into the author's tree, and out of it."""
    options = record.options
    run = shlex.quote(str(PurePath(options.out)))
    program = f" && {options.run_command} ..." if options.run_command else ""
    where = "Apply it to your files, build, and revert:"
    if record.outcome == "provisional":
        where = f"Apply it, build and measure on the {record.device} itself, and revert:"
    return [
        where,
        f"$ python -m cudaops apply {run}",
        f"$ {options.build_command}{program}",
        f"$ python -m cudaops apply {run} --revert",
    ]


def _in_application(record: RunRecord) -> list[str]:
    """How a rewrite gets into a program that launches the kernels of a file, as it is."""
    options = record.options
    words = shlex.split(options.run_command or "") + list(options.program_runs[0].argv)
    return [
        "Preload it into the unchanged program (the first line builds the library):",
        f"$ python -m cudaops preload {shlex.quote(str(PurePath(options.out)))}",
        f"$ LD_PRELOAD=./libwinner.so {shlex.join(words)}",
    ]


def _in_python(record: RunRecord) -> list[str]:
    """How a rewrite gets into a program that compiles its CUDA itself, and out of it."""
    options = record.options
    run = shlex.quote(str(PurePath(options.out)))
    steps = ["Apply it to your program, and revert:", f"$ python -m cudaops apply {run}"]
    if options.kernel_source is None:
        words = [options.python or "python3", options.source, *options.program_runs[0].argv]
        steps.append(f"$ {shlex.join(words)}")
    return [*steps, f"$ python -m cudaops apply {run} --revert"]


def _in_triton(record: RunRecord) -> list[str]:
    """How a rewrite gets into a Python program with Triton kernels."""
    patch = shlex.quote(str(PurePath(record.options.out) / "best.patch"))
    where = shlex.quote(str(PurePath(record.options.source).parent))
    return [
        "Show the diff, and apply it:",
        f"$ less {patch}",
        f"$ patch -p1 -d {where} < {patch}",
    ]


def _in_kernels(record: RunRecord) -> list[str]:
    """How a rewrite gets into the file of kernels for a reference in Python, and out of it."""
    run = shlex.quote(str(PurePath(record.options.out)))
    name = PurePath(record.options.kernel_source or "").name
    return [
        f"Apply it to {name}, where launch_kernels launches it, and revert:",
        f"$ python -m cudaops apply {run}",
        f"$ python -m cudaops apply {run} --revert",
    ]
