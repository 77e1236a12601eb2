"""Time on the stand-in GPU: what its units report, or what a script says. Never a measurement.

A script drives the runner's timing deterministically: the file that `CUDAOPS_STANDIN_TIMES` names
holds one JSON object with the fields of `Script`.

    {"kernels": {"naive": 120.0, "tiled": {"us": 30.0, "cold_us": 41.0, "noise_pct": 1.0}},
     "drift_pct": 5.0, "drift_launches": 400, "execute": false, "seed": 7}
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from cudaops.domain.base import Record
from cudaops.executors.cuda.protocol import Launchable
from cudaops.executors.cuda.runner.driver import DriverMissing

TIMES_VARIABLE = "CUDAOPS_STANDIN_TIMES"
"""Environment variable of the runner that names the script."""


class KernelTimes(Record):
    """How long launches of one kernel take."""

    us: float | tuple[float, ...] = Field(union_mode="left_to_right")
    """One time for all, or one a launch, over again from the first when they are used up."""
    cold_us: float | None = None
    """Time of a launch before which at least the L2's size was written; None: the same."""
    noise_pct: float = 0.0
    """Standard deviation of the time's logarithm, times 100."""


class Noise(Record):
    """Launches that are noisier than the others, all kernels counted together from 0."""

    first: int
    last: int
    noise_pct: float


class Script(Record):
    """What the stand-in's clock and sensors say."""

    kernels: dict[str, float | KernelTimes]
    """By symbol or as its author wrote it; `*` is every other kernel. One that is not named takes
    what its unit reports."""
    execute: bool = True
    """False: scripted launches change no memory; they only take their time, on the host's clock
    too: `synchronize` waits it out as for a GPU."""
    seed: int = 0
    drift_pct: float = 0.0
    """Growth of all times over `drift_launches` launches, linear, and no more after them."""
    drift_launches: int = 1000
    noisy: tuple[Noise, ...] = ()
    sm_clock_mhz: tuple[float, ...] = ()
    """One a question, over again from the first; empty: cannot be asked."""
    temperature_c: tuple[float, ...] = ()


def script_of(environment: Mapping[str, str]) -> Script | None:
    """The script that the environment names. Raises DriverMissing where it cannot be read."""
    name = environment.get(TIMES_VARIABLE)
    if not name:
        return None
    try:
        return Script.model_validate_json(Path(name).read_bytes())
    except (OSError, ValidationError) as problem:
        text = " ".join(str(problem).split())
        raise DriverMissing(
            f"the stand-in's times {name} cannot be read: {text}",
            f"correct or unset {TIMES_VARIABLE}",
        ) from problem


class Clock:
    """The stand-in's virtual time, moved by launches alone."""

    def __init__(self, script: Script | None, l2_bytes: int) -> None:
        self.now_us = 0.0
        self._script = script
        self._l2_bytes = l2_bytes
        self._written = l2_bytes
        """Bytes written since the last launch; the first one is cold."""
        self._launches = 0
        self._each: dict[str, Iterator[float]] = {}
        self._random = random.Random(script.seed if script else 0)
        self._owed_us = 0.0
        self._owed_since = 0.0
        self._sm_clock = itertools.cycle(script.sm_clock_mhz if script else ())
        self._temperature = itertools.cycle(script.temperature_c if script else ())

    def wrote(self, size_bytes: int) -> None:
        """Memory was written: what stood in L2 is gone where it was enough."""
        self._written += size_bytes

    def executes(self, kernel: Launchable) -> bool:
        """Whether a launch of this kernel is to be run at all."""
        return self._script is None or self._script.execute or self._times(kernel) is None

    def launched(self, kernel: Launchable, reported_us: float | None) -> None:
        """A launch ended; `reported_us` is what its unit says, None where it was not run."""
        cold = self._written >= self._l2_bytes
        times = self._times(kernel)
        took = reported_us if times is None else self._scripted(kernel, times, cold)
        assert took is not None
        self._written = 0
        self._launches += 1
        self.now_us += took
        if reported_us is None:
            if self._owed_us == 0.0:
                self._owed_since = time.perf_counter()
            self._owed_us += took

    def wait(self) -> None:
        """Let the host's clock catch up with launches that were not run."""
        end = self._owed_since + 1e-6 * self._owed_us
        while self._owed_us and (left := end - time.perf_counter()) > 0:
            if left > 2e-4:  # a sleep may last 0.1 ms longer than asked for
                time.sleep(left - 2e-4)
        self._owed_us = 0.0

    def sm_clock_mhz(self) -> float | None:
        """The next scripted reading."""
        return next(self._sm_clock, None)

    def temperature_c(self) -> float | None:
        """The next scripted reading."""
        return next(self._temperature, None)

    def _times(self, kernel: Launchable) -> KernelTimes | None:
        known = self._script.kernels if self._script else {}
        for name in (kernel.symbol, kernel.shown, "*"):
            if name in known:
                found = known[name]
                return found if isinstance(found, KernelTimes) else KernelTimes(us=found)
        return None

    def _scripted(self, kernel: Launchable, times: KernelTimes, cold: bool) -> float:
        assert self._script is not None
        if cold and times.cold_us is not None:
            base = times.cold_us
        elif isinstance(times.us, tuple):
            base = next(self._each.setdefault(kernel.symbol, itertools.cycle(times.us)))
        else:
            base = times.us
        grown = min(1.0, self._launches / max(1, self._script.drift_launches))
        noise = next(
            (n.noise_pct for n in self._script.noisy if n.first <= self._launches <= n.last),
            times.noise_pct,
        )
        spread = math.exp(self._random.gauss(0.0, noise / 100.0))
        return base * spread * (1.0 + grown * self._script.drift_pct / 100.0)
