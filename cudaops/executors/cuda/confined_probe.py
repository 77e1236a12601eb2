"""Whether CUDA works under the profile of whole programs: tried once, before the first of them."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from pydantic import ValidationError

from cudaops.domain.judgement import IsolationLevel
from cudaops.errors import EnvironmentFailure
from cudaops.executors.cuda.protocol import REPLY, TASK, ProbeReply, ProbeTask, Refused
from cudaops.executors.cuda.session import task_command
from cudaops.executors.isolation.level import level_of, weaken
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import run_bounded

PROBE_S = 60.0


@functools.cache
def settle_gpu_level(driver: str) -> IsolationLevel:
    """Open the GPU confined as its programs will be, a level lower where that does not work.

    Raises SandboxUnavailable where a level was asked for and does not work. A GPU that works at no
    level is not found out here: the program itself will say so.
    """
    level = level_of("gpu")
    lower: dict[IsolationLevel, IsolationLevel] = {"S3": "S2", "S2": "S1"}
    while level in lower and (why := _why_not(driver, level)):
        level = lower[level]
        weaken("gpu", level, why)
    return level


def _why_not(driver: str, level: IsolationLevel) -> str:
    """Empty where a runner could open the GPU, copy to it and back."""
    with tempfile.TemporaryDirectory(prefix="cudaops-probe-") as name:
        folder = Path(name)
        task, reply = folder / "task.json", folder / "reply.json"
        task.write_bytes(TASK.dump_json(ProbeTask()))
        argv, env = task_command(driver, task, reply)
        confine = Confinement("gpu", writes=(folder,), at_most=level)
        try:
            done = run_bounded(
                argv, cwd=folder, timeout_s=PROBE_S, env=env, tool="kernels", confine=confine
            )
        except EnvironmentFailure as problem:
            return problem.problem
        try:
            said = REPLY.validate_json(reply.read_bytes())
        except (OSError, ValidationError):
            lines = done.stderr.strip().splitlines()[-1:]
            return f"the runner ended with {done.exit_code} {' '.join(lines)[:200]}".strip()
    if isinstance(said, ProbeReply):
        return ""
    return said.problem if isinstance(said, Refused) else f"the runner answered {said.kind!r}"
