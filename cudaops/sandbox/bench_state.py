"""What a run folder keeps of its workbench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.program import Program
from cudaops.domain.workload import Workload
from cudaops.errors import InputError
from cudaops.executors.project.tree import ARCHIVE
from cudaops.sandbox.captures import CapturedRuns
from cudaops.storage import replacing

TREE = f"state/{ARCHIVE}"
"""In a run folder: a project's tree as it was."""


class BenchState(NamedTuple):
    """All that intake found out and drew; the seed is that of the perturbed inputs."""

    program: Program
    captured: CapturedRuns
    seed: int


def write_state(folder: Path, kept: BenchState) -> None:
    """Write under `folder`/state."""
    state = folder / "state"
    state.mkdir(parents=True, exist_ok=True)
    (state / "program.json").write_text(kept.program.model_dump_json(), encoding="utf-8")
    (state / "captured.json").write_text(kept.captured.model_dump_json(), encoding="utf-8")
    (state / "seed.json").write_text(json.dumps(kept.seed), encoding="utf-8")


def read_state(folder: Path) -> BenchState:
    """Read it back. Raises InputError where it is not there."""
    state = folder / "state"
    try:
        program = Program.model_validate_json((state / "program.json").read_text("utf-8"))
        captured = CapturedRuns.model_validate_json((state / "captured.json").read_text("utf-8"))
        seed = int(json.loads((state / "seed.json").read_text("utf-8")))
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} holds no run that can be resumed: {error.filename} is missing"
        ) from error
    if program.build is not None:
        build = program.build.model_copy(update={"snapshot": str((folder / TREE).absolute())})
        program = program.model_copy(update={"build": build})
    return BenchState(program, _relocated(captured, folder), seed)


def read_judged(folder: Path) -> int:
    """Candidates that were put to the decision so far, over every start of the run."""
    path = folder / "state" / "judged.json"
    return int(json.loads(path.read_text("utf-8"))) if path.exists() else 0


def write_judged(folder: Path, count: int) -> None:
    """Keep how many there were."""
    with replacing(folder / "state" / "judged.json") as part:
        part.write_text(json.dumps(count), encoding="utf-8")


def _relocated(captured: CapturedRuns, folder: Path) -> CapturedRuns:
    """The same capture after its run folder was moved."""

    def moved(workload: Workload) -> Workload:
        if Path(workload.folder).is_dir():
            return workload
        where = folder / "workloads" / Path(workload.folder).name
        return workload.model_copy(update={"folder": str(where)})

    return captured.with_workloads(moved)
