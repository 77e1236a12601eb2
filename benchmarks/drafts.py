"""What a draft of a search costs: two rounds of every transformation, nothing compiled or timed.

    python benchmarks/drafts.py FILE.cu [--settings 4] [--beam 8]

Captures the program on `cpu`, makes drafts of the author's kernel and of the first of these, reads
each by clang and analyses it, as a search does before a trial. Prints drafts, and CPU seconds of
this process and of clang's. In another checkout the same file measures that one.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cudaops.domain.judgement import Policy  # noqa: E402
from cudaops.domain.run import RunOptions  # noqa: E402
from cudaops.executors.cpu.executor import CpuExecutor  # noqa: E402
from cudaops.graph.services import open_bench  # noqa: E402
from cudaops.program import front_end  # noqa: E402
from cudaops.program.syntax import NotUnderstood  # noqa: E402
from cudaops.settings import load_settings  # noqa: E402
from cudaops.transformations.draft import Draft, Subject  # noqa: E402
from cudaops.transformations.registry import TRANSFORMATIONS  # noqa: E402


def subject_of(source: Path, folder: Path) -> Subject:
    """The program's kernel, captured."""
    executor = CpuExecutor("A10", load_settings().builds_folder, program_folder=source.parent)
    options = RunOptions(
        source=str(source), working_folder=str(source.parent), out=str(folder / "run"),
        policy=Policy(),
    )  # fmt: skip
    bench = open_bench(options, executor)
    return Subject(bench.program, bench.kernel, bench.workloads)


def drafts_of(draft: Draft, settings: int) -> list[Draft]:
    """Those of every transformation that clang and the analysis take."""
    found = []
    for one in TRANSFORMATIONS:
        try:
            for setting in itertools.islice(one.settings(draft), settings):
                made = one.apply(draft, setting)
                made.rewrite()
                _ = made.facts
                found.append(made)
        except NotUnderstood:
            continue
    return found


def main() -> None:
    """Measure one program."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--settings", type=int, default=4)
    parser.add_argument("--beam", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cudaops-drafts-") as folder:
        subject = subject_of(options.source.resolve(), Path(folder))
    front_end._front_end.close()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    began, here = time.perf_counter(), time.process_time()
    first = drafts_of(Draft.of(subject), options.settings)
    made = len(first)
    for draft in first[: options.beam]:
        made += len(drafts_of(draft, options.settings))
    here, took = time.process_time() - here, time.perf_counter() - began
    front_end._front_end.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    clang = children.ru_utime + children.ru_stime - ended.ru_utime - ended.ru_stime
    print(
        f"{made} drafts in {took:.1f} s; CPU {here:.1f} s here and {clang:.1f} s of clang, "
        f"{1000 * (here + clang) / made:.0f} ms a draft"
    )


if __name__ == "__main__":
    main()
