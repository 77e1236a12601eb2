"""Which branches of a unit's kernels a series of trials takes, counted by gcov."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudaops.domain.execution import Compiled, CompileFailed
from cudaops.executors.base import Branches, Trial
from cudaops.executors.cpu.toolchain import COMPILE_TIMEOUT_S, compiling, find_toolchain
from cudaops.executors.process import run_bounded
from cudaops.executors.untrusted_files import UntrustedFileError, copy_untrusted

if TYPE_CHECKING:
    from cudaops.executors.cpu.executor import CpuExecutor

FLAGS = ("-O0", "--coverage", "-fprofile-update=atomic")
"""No branch is optimised away; blocks run on several threads."""
_LINK = ("-lgcov", "--coverage")
_MOST_COUNTERS = 64 << 20
_MOST_REPORT = 256 << 20


def branches(
    executor: CpuExecutor,
    compiled: Compiled,
    trials: Sequence[Trial],
    counted: Callable[[str, int], bool],
    folder: Path,
    timeout_s: float,
) -> Branches | None:
    """Of the lines that `counted` (file as the source names it, line) wants; None where they cannot
    be counted: gcov is not there, or a trial did not end."""
    gcov = shutil.which(Path(find_toolchain().gxx).name.replace("g++", "gcov")) or shutil.which(
        "gcov"
    )
    built = executor.build_counted(compiled.unit, FLAGS, _LINK)
    if gcov is None or isinstance(built, CompileFailed):
        return None
    counters = folder / "counters"
    executor.run_built(built, trials, folder, {"GCOV_PREFIX": str(counters)}, timeout_s)
    found = next(counters.rglob("*.gcda"), None)
    if found is None:
        return None
    work = folder / "gcov"
    work.mkdir()
    try:
        name = found.relative_to(folder).as_posix()
        copy_untrusted(folder, name, work / "unit.gcda", 0, _MOST_COUNTERS)
    except UntrustedFileError:
        return None
    notes = next(Path(built.folder).glob("*.gcno"), None)
    if notes is None:
        return None
    shutil.copyfile(notes, work / "unit.gcno")
    command = [gcov, "--json-format", "--stdout", "--branch-probabilities", "unit.gcda"]
    done = run_bounded(
        command, cwd=work, timeout_s=COMPILE_TIMEOUT_S, confine=compiling(work, ()),
        max_output_bytes=_MOST_REPORT,
    )  # fmt: skip
    if done.exit_code != 0:
        return None
    try:
        return _counted(json.loads(done.stdout), counted)
    except (ValueError, KeyError, TypeError):
        return None


def _counted(report: Mapping[str, Any], counted: Callable[[str, int], bool]) -> Branches:
    """Instances of a template are one: a way that one of them took was taken."""
    ways: defaultdict[tuple[str, int, int], int] = defaultdict(int)
    for file in report["files"]:
        name = str(file["file"]).removeprefix("./")
        for line in file["lines"]:
            if not counted(name, int(line["line_number"])):
                continue
            for position, way in enumerate(w for w in line["branches"] if not w["throw"]):
                ways[name, int(line["line_number"]), position] += int(way["count"])
    missed = sorted({line for (_, line, _), count in ways.items() if not count})
    return Branches(sum(c > 0 for c in ways.values()), len(ways), tuple(missed))
