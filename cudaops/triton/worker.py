"""Runs an author's Triton program and single kernels, in the user's own interpreter.

    python worker.py TASK.json OUT

Tasks (`task`): `capture` the launches of a program; `run` one module's kernel on inputs from files;
`tune` its meta-parameters; `time` two modules against each other. The reply is OUT/reply.json,
contents are raw files beside it. What is wrong with the program is one line in OUT/refused, with
exit code 3. With TRITON_INTERPRET=1 kernels run in Triton's interpreter and nothing is timed.

Started by path: it knows nothing but Python's library, torch and Triton.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import random
import runpy
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

REFUSED = 3
"""Exit code where OUT/refused says what is wrong."""
GUARD_BYTES = 1 << 16
"""Before and behind each buffer. Chosen: a block of 4096 elements of 8 bytes, twice."""
GUARD = 0xCB
"""What stands there: as float32 -2.7e7, which a result that depends on it shows."""
MOST_LAUNCHES = 6
"""Configurations of one kernel whose contents are kept."""
SAMPLES = 40
"""Pairs in each regime and round: a median's interval at 99 % for several candidates needs 20."""
FLUSH_BYTES = 256 << 20
"""Written before a cold sample: more than twice the largest L2 (H200: 50 MB, B200: 126 MB)."""
LEAST_SAMPLE_US = 200.0
"""A warm sample repeats a shorter launch until it takes so long: events resolve 0.5 us."""
SLEEP_CYCLES = 400_000
"""The GPU is kept busy while a sample is enqueued; 0.2 ms at 2 GHz, and a quarter more a launch."""
ELEMENTS = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8",
    "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "bool": "bool",
}  # fmt: skip
DTYPES = {element: name for name, element in ELEMENTS.items()}


class Refused(Exception):
    """Something of the program is wrong; the text is one line."""


def main(arguments: list[str]) -> NoReturn:
    """See above."""
    task, out = json.loads(Path(arguments[0]).read_text("utf-8")), Path(arguments[1])
    try:
        for name in ("torch", "triton"):
            if importlib.util.find_spec(name) is None:
                raise Refused(f"{sys.executable} has no {name}; --python names one that has it")
        reply = {"capture": _Capture, "run": _Run, "tune": _Tune, "time": _Time}[task["task"]](
            task, out
        ).reply()
    except Refused as problem:
        (out / "refused").write_text(" ".join(str(problem).split()), "utf-8")
        sys.exit(REFUSED)
    (out / "reply.json").write_text(json.dumps(reply), "utf-8")
    sys.stdout.flush()
    sys.exit(0)


def device_facts(on_gpu: bool) -> dict[str, Any]:
    """Who computes."""
    import torch
    import triton

    facts = {"torch": torch.__version__, "triton": triton.__version__, "device": "", "arch": ""}
    if on_gpu:
        found = torch.cuda.get_device_properties(0)
        major, minor = torch.cuda.get_device_capability(0)
        facts |= {"device": found.name, "arch": f"sm_{major}{minor}", "uuid": str(found.uuid)}
    return facts


class _Capture:
    """Runs the program with a hook in every launch."""

    def __init__(self, task: dict[str, Any], out: Path) -> None:
        self.task, self.out = task, out
        self.launches: dict[str, dict[str, Any]] = {}
        self.room = int(task["most_bytes"])
        self.tuning = 0

    def reply(self) -> dict[str, Any]:
        import torch

        on_gpu = not self.task["interpret"]
        if on_gpu and not torch.cuda.is_available():
            raise Refused("torch sees no GPU: --executor cpu compares results without one")
        self._hook()
        script = self.task["script"]
        sys.argv = [script, *self.task["argv"]]
        sys.path[0] = str(Path(script).absolute().parent)
        code = 0
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Refused:
            raise
        except BaseException as error:
            traceback.print_exc()
            text = f"{Path(script).name} raises {type(error).__name__}: {error}"[:500]
            if isinstance(error, ModuleNotFoundError):
                text += "; --python names the interpreter that has it"
            raise Refused(text) from error
        if on_gpu:
            torch.cuda.synchronize()
        return {"exit": code, "launches": [*self.launches.values()], **device_facts(on_gpu)}

    def _hook(self) -> None:
        import triton
        from triton.runtime.autotuner import Autotuner

        own = str(Path(triton.__file__).parent)
        if self.task["interpret"]:
            from triton.runtime.interpreter import InterpretedFunction as Function
        else:
            from triton.runtime.jit import JITFunction as Function
        launch, bench, capture = Function.run, Autotuner._bench, self

        def run(function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            def go() -> Any:
                return launch(function, *args, grid=grid, warmup=warmup, **kwargs)

            name = getattr(function, "__name__", "")
            if warmup or capture.tuning or name not in capture.task["kernels"]:
                return go()
            # Triton's own frames lie between this one and the one that launched it.
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
                frame = frame.f_back
            return capture.launch(function, name, args, kwargs, grid, frame, go)

        def benched(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            capture.tuning += 1
            try:
                return bench(tuner, *args, **kwargs)
            finally:
                capture.tuning -= 1

        Function.run, Autotuner._bench = run, benched

    def launch(
        self,
        function: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        frame: Any,
        go: Callable[[], Any],
    ) -> Any:
        """One launch of one of the author's kernels."""
        parameters = self.task["kernels"][name]
        bound = {
            p.name: p.default
            for p in inspect.signature(function.fn).parameters.values()
            if p.default is not inspect.Parameter.empty
        }
        bound |= dict(zip(parameters, args, strict=False))
        bound |= {k: v for k, v in kwargs.items() if k in parameters}
        options = {k: v for k, v in kwargs.items() if k not in parameters and _is_plain(v)}
        where = grid(bound) if callable(grid) else grid
        where = [int(n) for n in ((where,) if isinstance(where, int) else where)]
        storages: list[Any] = []
        described, problem = {}, ""
        for key, value in bound.items():
            described[key] = found = _described(value, storages)
            problem = problem or (f"{key} is a {type(value).__name__}" if found is None else "")
        buffers = [_buffer(s, described, n) for n, s in enumerate(storages)]
        what = {"kernel": name, "grid": where, "args": described, "options": options,
                "buffers": buffers, "problem": problem}  # fmt: skip
        key = json.dumps(what, sort_keys=True)
        known = self.launches.get(key)
        if known is not None:
            known["launches"] += 1
            return go()
        what |= {"launches": 1, "time_us": None, "folder": ""}
        what["grids"] = self._grids(name, frame, bound, where)
        self.launches[key] = what
        return self._recorded(what, storages, go)

    def _grids(self, name: str, frame: Any, bound: Any, where: list[int]) -> list[Any]:
        """The grid for each of the configurations asked for; None where it cannot be told."""
        line = frame.f_lineno
        sites = [s for s in self.task["sites"][name] if s["first"] <= line <= s["last"]]
        found: list[Any] = []
        for config in self.task["configs"][name]:
            if not sites:
                found.append(None)
                continue
            site = sites[0]
            names = {v: config[m] for m, v in site["variables"].items() if m in config}
            space = {**frame.f_globals, **frame.f_locals, **names}
            try:
                for statement in site["derived"]:
                    exec(statement, space)
                grid = eval(site["grid"], space)
                grid = grid({**bound, **config}) if callable(grid) else grid
                grid = (grid,) if isinstance(grid, int) else grid
                found.append([int(n) for n in grid])
            except Exception:
                found.append(None)
        return found

    def _recorded(self, what: dict[str, Any], storages: list[Any], go: Callable[[], Any]) -> Any:
        size = 2 * sum(b["bytes"] for b in what["buffers"])
        same = sum(w["kernel"] == what["kernel"] and w["folder"] != "" for w in self.launches.values())
        if what["problem"] or same >= MOST_LAUNCHES or size > self.room:
            return go()
        self.room -= size
        folder = self.out / f"{what['kernel']}_{same}"
        folder.mkdir()
        what["folder"] = folder.name
        before = [_bytes_of(s).clone() for s in storages]
        started = time.perf_counter()
        result = go()
        what["time_us"] = 1e6 * (time.perf_counter() - started)
        after = [_bytes_of(s).clone() for s in storages]
        for number, (was, now) in enumerate(zip(before, after, strict=True)):
            _write(was, folder / f"before_{number}")
            _write(now, folder / f"after_{number}")
        if not self.task["interpret"]:
            what["time_us"] = self._timed(storages, before, go)
            for storage, now in zip(storages, after, strict=True):
                _bytes_of(storage).copy_(now)
        return result

    def _timed(self, storages: list[Any], before: list[Any], go: Callable[[], Any]) -> float:
        """The launch again on the same contents: of the first one compiling is a part."""
        import torch

        taken = []
        for _ in range(3):
            for storage, was in zip(storages, before, strict=True):
                _bytes_of(storage).copy_(was)
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(SLEEP_CYCLES)
            first.record()
            go()
            last.record()
            torch.cuda.synchronize()
            taken.append(1000.0 * first.elapsed_time(last))
        return float(statistics.median(taken))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _described(value: Any, storages: list[Any]) -> dict[str, Any] | None:
    """An argument in JSON; None where it is of a kind that is not captured."""
    import torch
    import triton.language as tl

    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        known = [s.data_ptr() for s in storages]
        if storage.data_ptr() not in known:
            storages.append(storage)
            known.append(storage.data_ptr())
        return {
            "buffer": known.index(storage.data_ptr()),
            "offset": value.data_ptr() - storage.data_ptr(),
            "element": ELEMENTS.get(str(value.dtype).removeprefix("torch."), ""),
        } if str(value.dtype).removeprefix("torch.") in ELEMENTS else None  # fmt: skip
    if _is_plain(value):
        return {"value": value}
    if isinstance(value, tl.dtype):
        return {"dtype": str(value)}
    return None


def _buffer(storage: Any, described: dict[str, Any], number: int) -> dict[str, Any]:
    element = next((d["element"] for d in described.values() if d and d.get("buffer") == number), "")
    return {"bytes": storage.nbytes(), "element": element}


def _bytes_of(storage: Any) -> Any:
    import torch

    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


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
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, kernel)


def _read(paths: list[str | None], device: str) -> list[Any]:
    """Contents of buffers from files; None stays None."""
    import torch

    found = []
    for path in paths:
        if path is None:
            found.append(None)
        elif Path(path).stat().st_size == 0:
            found.append(torch.empty(0, dtype=torch.uint8, device=device))
        else:
            found.append(torch.from_file(path, size=Path(path).stat().st_size, dtype=torch.uint8).to(device))
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
        return {"jobs": jobs, **device_facts(self.device == "cuda")}

    def _job(self, number: int, job: dict[str, Any]) -> dict[str, Any]:
        try:
            function = _loaded(job["module"], self.task["kernel"])
        except Exception as error:
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
        folder.mkdir()
        for _ in range(case["repeat"]):
            try:
                side.prepare(contents, case["poison"], case["scalars"])
                side.start()
                guarded = [arena.is_guarded() for arena in side.arenas]
            except Exception as error:
                return {"failed": _line(error), "results": 0, "guards": []}
            result = [arena.bytes.clone() for arena in side.arenas]
            if not any(_equal(result, known) for known in results):
                for number, one in enumerate(result):
                    _write(one, folder / f"{len(results)}_{number}")
                results.append(result)
            if not all(guarded):
                return {"failed": "", "results": len(results), "guards": guarded}
        return {"failed": "", "results": len(results), "guards": guarded}


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
        """Mean time of so many launches, behind work that hides their being enqueued."""
        torch = self.torch
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if cold:
            self.flush.zero_()
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
            side.prepare(_read(launch["cases"][0]["inputs"], "cuda"), launch["cases"][0]["poison"], {})
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
            except Exception as error:
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
            self.clock.sample_us(lambda s=side, g=grid: s.start(config, g), 1, cold=False)
            go = lambda s=side, g=grid: s.start(config, g)  # noqa: E731
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
        return {"pairs": found, **device_facts(True)}

    def _pair(self, sides: list[_Side], case: dict[str, Any], folder: Path) -> dict[str, Any]:
        folder.mkdir()
        contents = _read(case["inputs"], "cuda")
        for side in sides:
            side.prepare(contents, case["poison"], {})
            compiled = side.start()
            side.facts = _resources(compiled)
        again = bool(case["repeatable"])
        results: list[list[list[Any]]] = [[], []]
        rounds = []
        for _ in range(2):
            taken: dict[str, Any] = {}
            for cold in (True, False):
                reps = [1, 1] if cold or not again else [self._often(side) for side in sides]
                samples = [[], []]
                for turn in range(SAMPLES):
                    for at in (0, 1) if turn % 2 == 0 else (1, 0):
                        side = sides[at]
                        for arena, one in zip(side.arenas, contents, strict=True):
                            arena.put(one, case["poison"])
                        samples[at].append(self.clock.sample_us(side.start, reps[at], cold))
                        self._look(side, results[at], folder, at)
                taken["cold" if cold else "warm"] = {"samples": samples, "launches": reps}
            rounds.append(taken)
        host = [self._host(side) for side in sides]
        guards = [[a.is_guarded() for a in side.arenas] for side in sides]
        return {
            "rounds": rounds, "host": host, "guards": guards,
            "results": [len(r) for r in results], "resources": [s.facts for s in sides],
        }  # fmt: skip

    def _often(self, side: _Side) -> int:
        once = statistics.median(self.clock.sample_us(side.start, 1, False) for _ in range(3))
        return max(1, min(64, int(LEAST_SAMPLE_US / max(once, 1.0))))

    def _host(self, side: _Side) -> dict[str, Any]:
        try:
            slope, spread = self.clock.host_us(side.start, 4 * self._often(side))
        except Exception as error:
            return {"us": None, "spread": None, "problem": _line(error)}
        return {"us": slope, "spread": spread, "problem": ""}

    def _look(self, side: _Side, known: list[list[Any]], folder: Path, at: int) -> None:
        """Keep what a timed launch left, where no other left the same; four at most."""
        result = [arena.bytes for arena in side.arenas]
        if len(known) >= 4 or any(_equal(result, one) for one in known):
            return
        for number, one in enumerate(result):
            _write(one, folder / f"{at}_{len(known)}_{number}")
        known.append([one.clone() for one in result])


def _resources(compiled: Any) -> dict[str, Any]:
    """What a compiled kernel takes, as far as Triton says."""
    found = {"registers": getattr(compiled, "n_regs", None), "spills": getattr(compiled, "n_spills", None)}
    found["shared_bytes"] = getattr(getattr(compiled, "metadata", None), "shared", None)
    return {k: v for k, v in found.items() if isinstance(v, int)}


if __name__ == "__main__":
    main(sys.argv[1:])
