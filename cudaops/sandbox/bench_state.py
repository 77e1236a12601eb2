"""What a run keeps of its workbench on disk, so that it can be resumed, also from another place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import Captured
from cudaops.domain.program import Program
from cudaops.errors import InputError


class BenchState(NamedTuple):
    """All that intake found out and drew."""

    program: Program
    captured: Captured
    seed: int
    """Of the perturbed inputs."""


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
        captured = Captured.model_validate_json((state / "captured.json").read_text("utf-8"))
        seed = int(json.loads((state / "seed.json").read_text("utf-8")))
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} holds no run that can be resumed: {error.filename} is missing"
        ) from error
    return BenchState(program, _relocated(captured, folder), seed)


def read_judged(folder: Path) -> int:
    """Candidates that were put to the decision so far, over every start of the run."""
    path = folder / "state" / "judged.json"
    return int(json.loads(path.read_text("utf-8"))) if path.exists() else 0


def write_judged(folder: Path, count: int) -> None:
    """Keep how many there were."""
    path = folder / "state" / "judged.json"
    part = path.with_suffix(".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(json.dumps(count), encoding="utf-8")
    part.replace(path)


def _relocated(captured: Captured, folder: Path) -> Captured:
    """The same capture after its run folder was moved."""
    workloads = tuple(
        w
        if Path(w.folder).is_dir()
        else w.model_copy(update={"folder": str(folder / "workloads" / Path(w.folder).name)})
        for w in captured.workloads
    )
    return captured.model_copy(update={"workloads": workloads})
