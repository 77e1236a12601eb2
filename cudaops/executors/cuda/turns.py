"""One launch of a runner that stands under another tool, alone on the GPU only while it lasts.

ncu takes seconds to start, to get ready for its first kernel and to write its report, the kernel
that is looked at often less than one: nobody else need wait for the rest. The runner and who
started it agree by files in a folder of theirs: `ready` when everything stands on the GPU, `first`
once no other ncu is at work there, `warm` when ncu has seen a kernel that does nothing, `go` once
the GPU is theirs alone, `over` after the launch; `no` where one of both is not to be had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType

from cudaops.errors import CudaOpsError
from cudaops.executors.cuda.gpu_lock import POLL_S
from cudaops.executors.cuda.runner.driver import Refusal

READY, FIRST, WARM, GO, OVER, NO = "ready", "first", "warm", "go", "over", "no"

Turn = Callable[[], AbstractContextManager[None]]


@contextmanager
def in_turn(folder: Path | None, warm_up: Callable[[], None]) -> Iterator[None]:
    """The runner's side: what happens in here happens alone on the GPU, `warm_up` before it beside
    others. None: the GPU is the runner's already.

    Raises Refusal where the GPU was not to be had.
    """
    if folder is None:
        warm_up()
        yield
        return
    _asked(folder, READY, FIRST)
    warm_up()
    _asked(folder, WARM, GO)
    try:
        yield
    finally:
        (folder / OVER).touch()


def _asked(folder: Path, asked: str, answer: str) -> None:
    (folder / asked).touch()
    while not (folder / answer).exists():
        if (folder / NO).exists():
            raise Refusal("the GPU was not to be had alone", "run again when it is idle")
        time.sleep(POLL_S)


class GivenTurn:
    """The other side: enters `first` when the runner is ready, takes the GPU with `alone` when its
    tool is, and lets go of both after the launch.

    Leaving it raises what these raised.
    """

    def __init__(self, folder: Path, alone: Turn, first: Turn = nullcontext) -> None:
        self._folder = folder
        self._alone = alone
        self._first = first
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._give, daemon=True)
        self._problem: CudaOpsError | None = None
        self._waited_s = 0.0
        self._waits_since: float | None = None

    def __enter__(self) -> GivenTurn:
        for name in (READY, FIRST, WARM, GO, OVER, NO):
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
        """Seconds that the runner has stood so far for what was not to be had yet."""
        since = self._waits_since
        return self._waited_s + (0.0 if since is None else time.monotonic() - since)

    def _give(self) -> None:
        try:
            with self._had(READY, self._first, FIRST) as asked:
                if asked:
                    with self._had(WARM, self._alone, GO) as asked_again:
                        if asked_again:
                            self._seen(OVER)
        except CudaOpsError as problem:
            self._problem = problem
            (self._folder / NO).touch()

    @contextmanager
    def _had(self, asked: str, turn: Turn, answer: str) -> Iterator[bool]:
        """Have `turn` from when the runner asks for it; False where it ends without."""
        if not self._seen(asked):
            yield False
            return
        with ExitStack() as had:
            self._waits_since = time.monotonic()
            try:
                had.enter_context(turn())
            finally:
                self._waited_s, self._waits_since = self.waited_s(), None
            (self._folder / answer).touch()
            yield True

    def _seen(self, name: str) -> bool:
        """Wait for a file; False where the runner has ended without it."""
        while not (self._folder / name).exists():
            if self._ended.wait(POLL_S):
                return False
        return True
