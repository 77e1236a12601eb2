"""Runs an author's Triton program and single kernels, in the user's own interpreter.

    python worker.py TASK.json OUT

Tasks (`task`): `capture` the launches of a program; those of `worker_kernels.py`. The reply is
OUT/reply.json, contents are raw files beside it. What is wrong with the program is one line in
OUT/refused, with exit code 3. With TRITON_INTERPRET=1 kernels run in Triton's interpreter and
nothing is timed.

Started by path: it knows nothing but Python's library, torch and Triton.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import runpy
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

REFUSED = 3
"""Exit code where OUT/refused says what is wrong."""
MOST_LAUNCHES = 6
"""Configurations of one kernel whose contents are kept."""
SLEEP_CYCLES = 400_000
"""The GPU is kept busy while a sample is enqueued; 0.2 ms at 2 GHz, and a quarter more a launch."""
ELEMENTS = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8",
    "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "bool": "bool",
}  # fmt: skip


class ProgramRefused(Exception):
    """Something of the program is wrong; the text is one line."""


def main(arguments: list[str]) -> NoReturn:
    """See above."""
    task, out = json.loads(Path(arguments[0]).read_text("utf-8")), Path(arguments[1])
    try:
        for name in ("torch", "triton"):
            if importlib.util.find_spec(name) is None:
                raise ProgramRefused(
                    f"{sys.executable} has no {name}; --python names one that has it"
                )
        if task["task"] == "capture":
            reply = _Capture(task, out).reply()
        else:
            reply = _kernels().reply(task, out)
        reply |= device_facts(not task["interpret"])
    except ProgramRefused as problem:
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


def _kernels() -> Any:
    """What runs single kernels: it stands beside this file."""
    path = Path(__file__).with_name("worker_kernels.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
            raise ProgramRefused("torch sees no GPU: --executor cpu compares results without one")
        self._hook()
        script = self.task["script"]
        sys.argv = [script, *self.task["argv"]]
        sys.path[0] = str(Path(script).absolute().parent)
        code = 0
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except ProgramRefused:
            raise
        except BaseException as error:
            traceback.print_exc()
            text = f"{Path(script).name} raises {type(error).__name__}: {error}"[:500]
            if isinstance(error, ModuleNotFoundError):
                text += "; --python names the interpreter that has it"
            if "0-dimensional" in text:
                text += (
                    "; Triton's interpreter takes no numpy 2.4 or later: pip install 'numpy<2.4'"
                )
            raise ProgramRefused(text) from error
        if on_gpu:
            torch.cuda.synchronize()
        return {"exit": code, "launches": [*self.launches.values()]}

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
        what: dict[str, Any] = {
            "kernel": name, "grid": where, "args": described, "options": options,
            "buffers": buffers, "problem": problem,
        }  # fmt: skip
        key = json.dumps(what, sort_keys=True)
        known = self.launches.get(key)
        if known is not None:
            known["launches"] += 1
            return go()
        what.update(launches=1, time_us=None, folder="")
        what["grids"] = self._grids(name, frame, bound, where)
        self.launches[key] = what
        return self._recorded(what, storages, go)

    def _grids(self, name: str, frame: Any, bound: Any, where: list[int]) -> list[Any]:
        """The grid for each of the configurations asked for; None where it cannot be told."""
        line = frame.f_lineno
        configs = self.task["configs"][name]
        sites = [s for s in self.task["sites"][name] if s["first"] <= line <= s["last"]]
        found: list[Any] = []
        for config in configs:
            if not sites:
                found.append(None)
                continue
            site = sites[0]
            names = {v: config[m] for v, m in site["variables"].items() if m in config}
            space = {**frame.f_globals, **frame.f_locals, **names}
            try:
                for statement in site["derived"]:
                    exec(statement, space)  # noqa: S102 - the author's text, where it runs anyway
                grid = eval(site["grid"], space)  # noqa: S307
                grid = grid({**bound, **config}) if callable(grid) else grid
                grid = (grid,) if isinstance(grid, int) else grid
                found.append([int(n) for n in grid])
            except Exception:  # noqa: BLE001 - whatever the author's text raises: no grid
                found.append(None)
        # The first is the author's: where it is another grid than the launch's, none is believed.
        return found if found[:1] == [where] else [None] * len(configs)

    def _recorded(self, what: dict[str, Any], storages: list[Any], go: Callable[[], Any]) -> Any:
        size = 2 * sum(b["bytes"] for b in what["buffers"])
        same = sum(
            w["kernel"] == what["kernel"] and w["folder"] != "" for w in self.launches.values()
        )
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
    element = next(
        (d["element"] for d in described.values() if d and d.get("buffer") == number), ""
    )
    return {"bytes": storage.nbytes(), "element": element}


def _bytes_of(storage: Any) -> Any:
    import torch

    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _write(contents: Any, path: Path) -> None:
    contents.cpu().numpy().tofile(path)


if __name__ == "__main__":
    main(sys.argv[1:])
