"""One launch of a runner that is under another tool, alone on the GPU only while it lasts.

ncu takes seconds to start and to write its report, its kernel often less than one: nobody else
need wait for the rest. The runner and who started it agree by files in a folder of theirs: `ready`
before the launch, `go` once the GPU is theirs alone, `over` after it; `no` where it is not to be
had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from cudaops.errors import CudaOpsError
from cudaops.executors.cuda.gpu_lock import POLL_S
from cudaops.executors.cuda.runner.driver import TaskRefused

READY, GO, NO, OVER = "ready", "go", "no", "over"


@contextmanager
def in_turn(folder: Path | None) -> Iterator[None]:
    """The runner's side: what happens in here happens alone on the GPU. None: it is already.

    Raises TaskRefused where the GPU was not to be had.
    """
    if folder is None:
        yield
        return
    (folder / READY).touch()
    while not (folder / GO).exists():
        if (folder / NO).exists():
            raise TaskRefused("the GPU was not to be had alone", "run again when it is idle")
        time.sleep(POLL_S)
    try:
        yield
    finally:
        (folder / OVER).touch()


class GivenTurn:
    """The other side: takes the GPU with `alone` when the runner is ready, and lets it go after.

    Leaving it raises what `alone` raised.
    """

    def __init__(self, folder: Path, alone: Callable[[], AbstractContextManager[None]]) -> None:
        self._folder = folder
        self._alone = alone
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._give, daemon=True)
        self._problem: CudaOpsError | None = None
        self._wait: tuple[float, float | None] | None = None

    def __enter__(self) -> GivenTurn:
        for name in (READY, GO, NO, OVER):
            (self._folder / name).unlink(missing_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if problem is None:
            self._thread.join()  # it may wait for the GPU no longer: the runner has ended
            if self._problem is not None:
                raise self._problem

    def waited_s(self) -> float:
        """Seconds that the runner has stood ready so far and the GPU was not its own."""
        if self._wait is None:
            return 0.0
        start, end = self._wait
        return (time.monotonic() if end is None else end) - start

    def _give(self) -> None:
        if not self._seen(READY):
            return
        start = time.monotonic()
        self._wait = (start, None)
        try:
            with self._alone():
                self._wait = (start, time.monotonic())
                (self._folder / GO).touch()
                self._seen(OVER)
        except CudaOpsError as problem:
            self._problem = problem
            self._wait = (start, time.monotonic())
            (self._folder / NO).touch()

    def _seen(self, name: str) -> bool:
        """Wait for a file; False where the runner has ended without it."""
        while not (self._folder / name).exists():
            if self._ended.wait(POLL_S):
                return False
        return True
