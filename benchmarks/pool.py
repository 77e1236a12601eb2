"""Many jobs at once on the GPUs of one machine, as many as end in the time there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import TypeVar

LEAST_S = 20.0
"""A job is not begun with less time left."""


Job = TypeVar("Job")
Result = TypeVar("Result")


def run_all(
    jobs: Sequence[Job],
    run: Callable[[Job, int, float], Result],
    *,
    at_once: int,
    gpus: int = 1,
    seconds: float,
) -> Iterator[tuple[Job, Result]]:
    """Each job with its result as it ends; those that are not reached in time are left out.

    `run` is given a job, the number of a GPU, and the seconds left. `at_once` jobs take the GPUs in
    turn.
    """
    free: SimpleQueue[int] = SimpleQueue()
    for number in range(at_once):
        free.put(number % gpus)
    ends = time.monotonic() + seconds

    def one(job: Job) -> Result | None:
        gpu = free.get()
        try:
            left = ends - time.monotonic()
            return run(job, gpu, left) if left > LEAST_S else None
        finally:
            free.put(gpu)

    with ThreadPoolExecutor(at_once) as pool:
        waiting = {pool.submit(one, job): job for job in jobs}
        for done in as_completed(waiting):
            if (result := done.result()) is not None:
                yield waiting[done], result
