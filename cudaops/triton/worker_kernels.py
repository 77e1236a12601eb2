"""Runs single kernels of Triton modules for `worker.py`: on given inputs, tuned, and timed.

Tasks: `run` modules' kernels on inputs from files; `tune` one's meta-parameters; `time` two modules
against each other. A module was checked before: it holds kernels and no host code.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

GUARD_BYTES = 1 << 16
"""Before and behind each buffer. Chosen: a block of 4096 elements of 8 bytes, twice."""
GUARD = 0xCB
"""What stands there: as float32 -2.7e7, which a result that depends on it shows."""
SAMPLES = 40
"""Pairs in each regime and round: a median's interval at 99 % for several candidates needs 20."""
FLUSH_BYTES = 256 << 20
"""Written before a cold sample: more than twice the largest L2 (H200: 50 MB, B200: 126 MB)."""
LEAST_SAMPLE_US = 200.0
"""A warm sample repeats a shorter launch until it takes so long: events resolve 0.5 us."""
SLEEP_CYCLES = 400_000
"""The GPU is kept busy while a sample is enqueued; 0.2 ms at 2 GHz, and a quarter more a launch."""
DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8",
    "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32",
    "i64": "int64", "u64": "uint64", "bool": "bool",
}  # fmt: skip


def reply(task: dict[str, Any], out: Path) -> dict[str, Any]:
    """Result of a task."""
    tasks: dict[str, Any] = {"run": _Run, "tune": _Tune, "time": _Time}
    found: dict[str, Any] = tasks[task["task"]](task, out).reply()
    return found


def _write(contents: Any, path: Path) -> None:
    contents.cpu().numpy().tofile(path)


class _Arena:
    """One buffer between two guard zones."""

    def __init__(self, size: int, device: str) -> None:
        import torch

        self.size = size
        whole = torch.empty(size + 2 * GUARD_BYTES + 256, dtype=torch.uint8, device=device)
        first = GUARD_BYTES + -whole.data_ptr() % 256
        self.zones = (whole[:first], whole[first + size :])
        self.bytes = whole[first : first + size]

    def fill(self, contents: Any, poison: int) -> None:
        """`contents`: a tensor of bytes, or None for the poison everywhere. Guards are set too."""
        for zone in self.zones:
            zone.fill_(GUARD)
        self.put(contents, poison)

    def put(self, contents: Any, poison: int) -> None:
        """The same without the guards."""
        self.bytes.fill_(poison) if contents is None else self.bytes.copy_(contents)

    def is_guarded(self) -> bool:
        """Whether both zones hold what they held."""
        return all(bool((zone == GUARD).all()) for zone in self.zones)


class _Side:
    """A module's kernel on the buffers of one launch."""

    def __init__(self, function: Any, launch: dict[str, Any], device: str) -> None:
        self.function, self.launch = function, launch
        self.facts: dict[str, int] = {}
        self.arenas = [_Arena(b["bytes"], device) for b in launch["buffers"]]
        self.arguments = self._arguments(launch["args"])

    def _arguments(self, described: dict[str, Any]) -> dict[str, Any]:
        import torch
        import triton.language as tl

        found: dict[str, Any] = {}
        for name, one in described.items():
            if "buffer" in one:
                inside = self.arenas[one["buffer"]].bytes[one["offset"] :]
                dtype = getattr(torch, DTYPES[one["element"]])
                size = torch.empty(0, dtype=dtype).element_size()
                found[name] = inside[: inside.numel() // size * size].view(dtype)
            else:
                found[name] = getattr(tl, one["dtype"]) if "dtype" in one else one["value"]
        return found

    def prepare(self, contents: list[Any], poison: int, scalars: dict[str, Any]) -> None:
        """Buffers as before a launch; `scalars`: arguments that are others."""
        for arena, one in zip(self.arenas, contents, strict=True):
            arena.fill(one, poison)
        self.given = {**self.arguments, **scalars}

    def start(self, values: dict[str, Any] | None = None, grid: Any = None) -> Any:
        """One launch; `values`: other meta-parameters."""
        options = {**self.launch["options"], **(values or {})}
        given = {**self.given, **options}
        return self.function[tuple(grid or self.launch["grid"])](**given)


def _loaded(path: str, kernel: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, kernel)


def _read(paths: list[str | None], device: str) -> list[Any]:
    """Contents of buffers from files; None stays None."""
    import torch

    found: list[Any] = []
    for path in paths:
        if path is None:
            found.append(None)
        elif Path(path).stat().st_size == 0:
            found.append(torch.empty(0, dtype=torch.uint8, device=device))
        else:
            found.append(
                torch.from_file(path, size=Path(path).stat().st_size, dtype=torch.uint8).to(device)
            )
    return found


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:600]


class _Run:
    """A module's kernel on inputs from files, job by job; every output that occurs goes to a
    file."""

    def __init__(self, task: dict[str, Any], out: Path) -> None:
        self.task, self.out = task, out
        self.device = "cpu" if task["interpret"] else "cuda"

    def reply(self) -> dict[str, Any]:
        jobs = [self._job(number, job) for number, job in enumerate(self.task["jobs"])]
        return {"jobs": jobs}

    def _job(self, number: int, job: dict[str, Any]) -> dict[str, Any]:
        try:
            function = _loaded(job["module"], self.task["kernel"])
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything
            return {"failed": _line(error), "cases": []}
        cases: list[dict[str, Any]] = []
        for launch in job["launches"]:
            side = _Side(function, launch, self.device)
            for case in launch["cases"]:
                folder = self.out / f"job_{number}_{len(cases)}"
                cases.append(self._case(side, case, folder))
        return {"failed": "", "cases": cases}

    def _case(self, side: _Side, case: dict[str, Any], folder: Path) -> dict[str, Any]:
        contents = _read(case["inputs"], self.device)
        results: list[list[Any]] = []
        same: list[list[bool]] = []
        folder.mkdir()
        for _ in range(case["repeat"]):
            try:
                side.prepare(contents, case["poison"], case["scalars"])
                side.start()
                guarded = [arena.is_guarded() for arena in side.arenas]
            except Exception as error:  # noqa: BLE001 - a kernel may raise anything
                return {"failed": _line(error), "same": [], "guards": []}
            result = [arena.bytes.clone() for arena in side.arenas]
            if not any(_equal(result, known) for known in results):
                same.append(_kept(result, contents, folder, f"{len(results)}_"))
                results.append(result)
            if not all(guarded):
                break
        return {"failed": "", "same": same, "guards": guarded}


def _kept(result: list[Any], contents: list[Any], folder: Path, name: str) -> list[bool]:
    """Write what a launch changed; which buffers it left as they were."""
    import torch

    same = [was is not None and torch.equal(now, was)
            for now, was in zip(result, contents, strict=True)]  # fmt: skip
    for number, now in enumerate(result):
        if not same[number]:
            _write(now, folder / f"{name}{number}")
    return same


def _equal(one: list[Any], other: list[Any]) -> bool:
    import torch

    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class _Clock:
    """Times of launches on the GPU, by CUDA events and by the host's clock."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def sample_us(self, go: Callable[[], Any], launches: int, cold: bool) -> float:
        """Mean time of so many launches, behind work that hides their being enqueued. Where there
        are several, one goes before them."""
        torch = self.torch
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if cold:
            self.flush.zero_()
        elif launches > 1:
            go()
        torch.cuda._sleep(SLEEP_CYCLES * (4 + launches) // 4)
        first.record()
        for _ in range(launches):
            go()
        last.record()
        torch.cuda.synchronize()
        return float(1000.0 * first.elapsed_time(last) / launches)

    def host_us(self, go: Callable[[], Any], launches: int) -> tuple[float, float]:
        """Time of one launch by the host's clock from CUDA graphs of N and 2N, and its spread."""
        torch, graphs = self.torch, []
        for count in (launches, 2 * launches):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(count):
                    go()
            graphs.append(graph)
        taken: list[list[float]] = [[], []]
        for _ in range(9):
            for graph, times in zip(graphs, taken, strict=True):
                torch.cuda.synchronize()
                started = time.perf_counter()
                graph.replay()
                torch.cuda.synchronize()
                times.append(1e6 * (time.perf_counter() - started))
        spread = max(sorted(times)[2] - min(times) for times in taken) / launches
        return (min(taken[1]) - min(taken[0])) / launches, spread


class _Tune:
    """Walks the meta-parameters one after the other, as long as one is faster."""

    def __init__(self, task: dict[str, Any], out: Path) -> None:
        self.task = task
        self.tried: dict[str, dict[str, Any]] = {}
        self.stop_at = time.monotonic() + task["seconds"]

    def reply(self) -> dict[str, Any]:
        task = self.task
        function = _loaded(task["module"], task["kernel"])
        self.sides = []
        for launch in task["launches"]:
            side = _Side(function, launch, "cuda")
            side.prepare(
                _read(launch["cases"][0]["inputs"], "cuda"), launch["cases"][0]["poison"], {}
            )
            self.sides.append(side)
        self.clock = _Clock()
        best = dict(task["start"])
        self._us(best)
        improved = True
        while improved:
            improved = False
            for name, values in task["axes"]:
                for step in (1, -1):
                    while True:
                        at = values.index(best[name]) + step
                        if not 0 <= at < len(values):
                            break
                        other = {**best, name: values[at]}
                        if not self._us(other) < 0.995 * self._us(best):
                            break
                        best, improved = other, True
        return {"tried": [*self.tried.values()]}

    def _us(self, config: dict[str, int]) -> float:
        key = json.dumps(config, sort_keys=True)
        if key not in self.tried:
            if len(self.tried) >= self.task["trials"] or time.monotonic() > self.stop_at:
                return float("inf")
            self.tried[key] = {"values": config, "time_us": None, "failure": ""}
            try:
                self.tried[key]["time_us"] = self._weighted(config)
            except Exception as error:  # noqa: BLE001 - a kernel may raise anything
                self.tried[key]["failure"] = _line(error)
        found = self.tried[key]["time_us"]
        return float("inf") if found is None else float(found)

    def _weighted(self, config: dict[str, int]) -> float:
        """Time of a launch, mean over the workloads by how often they are launched."""
        total = 0.0
        for side in self.sides:
            grids = side.launch["grids"]
            blocks = {k: v for k, v in config.items() if k in self.task["in_grid"]}
            grid = next((g for c, g in grids if c == blocks), None)
            if grid is None:
                raise ValueError("no grid is known for it")
            go = partial(side.start, config, grid)
            go()  # compiles
            once = self.clock.sample_us(go, 1, cold=False)
            often = max(1, min(32, int(LEAST_SAMPLE_US / max(once, 1.0))))
            total += side.launch["weight"] * statistics.median(
                self.clock.sample_us(go, often, cold=False) for _ in range(7)
            )
        return total


class _Time:
    """Two modules against each other: samples of both in turn, in both regimes, twice."""

    def __init__(self, task: dict[str, Any], out: Path) -> None:
        self.task, self.out = task, out

    def reply(self) -> dict[str, Any]:
        self.clock = _Clock()
        functions = [_loaded(m, self.task["kernel"]) for m in self.task["modules"]]
        found = []
        for number, pair in enumerate(self.task["pairs"]):
            sides = [_Side(f, launch, "cuda") for f, launch in zip(functions, pair, strict=True)]
            found.append(self._pair(sides, pair[0]["cases"][0], self.out / f"pair_{number}"))
        return {"pairs": found}

    def _pair(self, sides: list[_Side], case: dict[str, Any], folder: Path) -> dict[str, Any]:
        folder.mkdir()
        contents = _read(case["inputs"], "cuda")
        for side in sides:
            side.prepare(contents, case["poison"], {})
            compiled = side.start()
            side.facts = _resources(compiled)
        again = bool(case["repeatable"])
        results: list[list[list[Any]]] = [[], []]
        self.same: list[list[list[bool]]] = [[], []]
        rounds = []
        for _ in range(2):
            taken: dict[str, Any] = {}
            for cold in (True, False):
                reps = [1, 1] if cold or not again else [self._often(side) for side in sides]
                samples: list[list[float]] = [[], []]
                for turn in range(SAMPLES):
                    for at in (0, 1) if turn % 2 == 0 else (1, 0):
                        side = sides[at]
                        for arena, one in zip(side.arenas, contents, strict=True):
                            arena.put(one, case["poison"])
                        samples[at].append(self.clock.sample_us(side.start, reps[at], cold))
                        if len(results[at]) < 4:
                            self._look(side, results[at], contents, folder, at)
                taken["cold" if cold else "warm"] = {"samples": samples, "launches": reps}
            rounds.append(taken)
        host = [self._host(side) for side in sides]
        guards = [[a.is_guarded() for a in side.arenas] for side in sides]
        return {
            "rounds": rounds, "host": host, "guards": guards,
            "same": self.same, "resources": [s.facts for s in sides],
        }  # fmt: skip

    def _often(self, side: _Side) -> int:
        once = statistics.median(self.clock.sample_us(side.start, 1, False) for _ in range(3))
        return max(1, min(64, int(LEAST_SAMPLE_US / max(once, 1.0))))

    def _host(self, side: _Side) -> dict[str, Any]:
        try:
            slope, spread = self.clock.host_us(side.start, 4 * self._often(side))
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything
            return {"us": None, "spread": None, "problem": _line(error)}
        return {"us": slope, "spread": spread, "problem": ""}

    def _look(
        self, side: _Side, known: list[list[Any]], contents: list[Any], folder: Path, at: int
    ) -> None:
        """Keep what a timed launch left, where no other left the same."""
        result = [arena.bytes for arena in side.arenas]
        if not any(_equal(result, one) for one in known):
            self.same[at].append(_kept(result, contents, folder, f"{at}_{len(known)}_"))
            known.append([one.clone() for one in result])


def _resources(compiled: Any) -> dict[str, Any]:
    """What a compiled kernel takes, as far as Triton says."""
    found = {
        "registers": getattr(compiled, "n_regs", None),
        "spills": getattr(compiled, "n_spills", None),
    }
    found["shared_bytes"] = getattr(getattr(compiled, "metadata", None), "shared", None)
    return {k: v for k, v in found.items() if isinstance(v, int)}
