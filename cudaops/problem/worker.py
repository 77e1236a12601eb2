"""Draws inputs of a problem and runs its reference, in the user's own interpreter.

    python worker.py PROBLEM.py OUT SEED...

Writes for the n-th seed OUT/n/inputs/NAME.bin, OUT/n/wanted/NAME.bin (raw, in C order, little
endian), OUT/n/inputs/numbers (8 bytes each: int64 or double) and OUT/n/manifest.json, which says
what they are. What is wrong with the problem is one line in OUT/refused, with exit code 3.

Started by path: it knows nothing but Python's library and numpy, which it loads itself, and torch
where the problem has loaded it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import random
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

REFUSED = 3
"""Exit code where OUT/refused says what is wrong."""
TYPES = (
    "float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32",
    "int64", "uint64", "bool",
)  # fmt: skip


class ProblemRefused(Exception):
    """Something of the problem is wrong; the text is one line."""


def main(arguments: list[str]) -> NoReturn:
    """See above."""
    script, out, *seeds = arguments
    name = Path(script).name
    try:
        module = _imported(script, name)
        for number, seed in enumerate(seeds):
            folder = Path(out, str(number))
            for part in ("inputs", "wanted"):
                (folder / part).mkdir(parents=True)
            _draw(module, name, int(seed), folder)
    except ProblemRefused as problem:
        Path(out, "refused").write_text(" ".join(str(problem).split()), "utf-8")
        sys.exit(REFUSED)
    sys.exit(0)


def _imported(script: str, name: str) -> Any:
    sys.path[0] = str(Path(script).absolute().parent)  # where Python put this file's
    with _its_own("does not load", name):
        import numpy  # noqa: F401
    spec = importlib.util.spec_from_file_location("problem", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["problem"] = module
    with _its_own("cannot be imported", name):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _its_own(what: str, name: str) -> Any:
    """What the problem's code raises, in its last line."""
    try:
        yield
    except ProblemRefused:
        raise
    except BaseException as error:  # whatever it is, it is not ours
        text = " ".join(str(error).split())
        if isinstance(error, ModuleNotFoundError):
            text += "; --python names the interpreter that has it"
        raise ProblemRefused(f"{name} {what}: {type(error).__name__}: {text}"[:500]) from error


def _draw(module: Any, name: str, seed: int, folder: Path) -> None:
    import numpy

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
    grad = contextlib.nullcontext() if torch is None else torch.no_grad()
    with grad:
        if hasattr(module, "Model"):
            drawn = _model(module, name)
        elif hasattr(module, "reference"):
            drawn = _function(module, name, numpy.random.default_rng(seed))
        else:
            raise ProblemRefused(
                f"{name} has neither a class `Model` nor a function `reference`; "
                "docs/problems.md shows both"
            )
        _Writer(name, folder).write(drawn)


class _Drawn:
    """A problem with its inputs, before its reference has run."""

    def __init__(self, form: str, call: Any) -> None:
        self.form = form
        self.call = call
        self.named: list[tuple[str, str, str, Any]] = []
        """Name, whence (`input`, `state`, `init`), the name there, value."""

    def add(self, origin: str, path: str, value: Any, position: int | None = None) -> None:
        """`position`: among the arguments, where it is one of several without names."""
        there = path if position is None else str(position)
        self.named.append((path.replace(".", "_"), origin, there, value))


def _function(module: Any, name: str, rng: Any) -> _Drawn:
    if not hasattr(module, "inputs"):
        raise ProblemRefused(f"{name} has `reference` and no function `inputs(rng)` beside it")
    with _its_own("raises in `inputs`", name):
        values = module.inputs(rng)
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ProblemRefused(f"{name}: `inputs(rng)` gives a dict of arrays and numbers by name")
    drawn = _Drawn("function", lambda: module.reference(**values))
    for key, value in values.items():
        drawn.add("input", key, value)
    return drawn


def _model(module: Any, name: str) -> _Drawn:
    if not hasattr(module, "get_inputs"):
        raise ProblemRefused(f"{name} has `Model` and no function `get_inputs()` beside it")
    with _its_own("raises in `get_init_inputs`", name):
        given = list(module.get_init_inputs()) if hasattr(module, "get_init_inputs") else []
    with _its_own("raises in `Model(...)`", name):
        model = module.Model(*given)
    with _its_own("raises in `get_inputs`", name):
        values = list(module.get_inputs())
    with _its_own("has a `forward` that does not take what `get_inputs()` gives", name):
        taken = _bound(module.Model.forward, values)
    call = model if callable(model) else model.forward
    drawn = _Drawn("kernelbench", lambda: call(*values))
    for position, (key, value) in enumerate(taken):
        drawn.add("input", key, value, position)
    for key, value in _state(model):
        drawn.add("state", key, value)
    known = {key for key, *_ in drawn.named}
    with contextlib.suppress(TypeError, ValueError):  # an `__init__` without a signature
        for position, (key, value) in enumerate(_bound(module.Model.__init__, given)):
            if key not in known and _number(value) is not None:
                drawn.add("init", key, value, position)
    return drawn


def _bound(function: Any, values: list[Any]) -> list[tuple[str, Any]]:
    """Values by the names of a method's parameters, those of `*rest` numbered."""
    bound = inspect.signature(function).bind(None, *values).arguments
    found: list[tuple[str, Any]] = []
    for key, value in list(bound.items())[1:]:
        if _is_rest(function, key):
            found += [(f"{key}{i}", one) for i, one in enumerate(value)]
        else:
            found.append((key, value))
    return found


def _is_rest(function: Any, key: str) -> bool:
    kind = inspect.signature(function).parameters[key].kind
    return kind is inspect.Parameter.VAR_POSITIONAL


def _state(model: Any) -> list[tuple[str, Any]]:
    """Parameters and buffers: what torch says they are, else every array among the attributes."""
    if not hasattr(model, "state_dict"):
        return [(key, value) for key, value in vars(model).items() if _is_array(value)]
    found = dict(model.state_dict())
    if hasattr(model, "named_buffers"):
        found.update(model.named_buffers())  # those that are not saved as well
    return list(found.items())


def _is_array(value: Any) -> bool:
    import numpy

    return isinstance(value, numpy.ndarray) or hasattr(value, "detach")


def _number(value: Any) -> int | float | None:
    """A plain number, or numpy's; None where it is none."""
    import numpy

    if isinstance(value, bool | numpy.bool_):
        return int(value)
    if isinstance(value, int | numpy.integer):
        return int(value)
    return float(value) if isinstance(value, float | numpy.floating) else None


class _Writer:
    """Writes one draw."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def write(self, drawn: _Drawn) -> None:
        arrays: list[dict[str, Any]] = []
        numbers: list[dict[str, Any]] = []
        packed = b""
        for key, origin, path, value in drawn.named:
            if any(key == one["name"] for one in (*arrays, *numbers)):
                raise ProblemRefused(f"{self.name}: two of its values are named `{key}`")
            number = _number(value)
            told = {"name": key, "origin": origin, "path": path}
            if number is None:
                arrays.append({**told, **self._array("inputs", key, value)})
                continue
            packed += self._packed(key, number)
            numbers.append({**told, "value": number})
        (self.folder / "inputs" / "numbers").write_bytes(packed)
        with _its_own("has a reference that raises", self.name):
            result = drawn.call()
        returns, named = self._results(result)
        outputs = [{"name": k, **self._array("wanted", k, v)} for k, v in named]
        manifest = {
            "form": drawn.form,
            "arrays": arrays,
            "numbers": numbers,
            "outputs": outputs,
            "returns": returns,
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")

    def _packed(self, key: str, number: int | float) -> bytes:
        try:
            return struct.pack("<q" if isinstance(number, int) else "<d", number)
        except struct.error:
            raise ProblemRefused(f"{self.name}: {key} = {number} does not fit 64 bits") from None

    def _results(self, result: Any) -> tuple[str, list[tuple[str, Any]]]:
        if isinstance(result, dict):
            return "dict", [(str(key), value) for key, value in result.items()]
        if isinstance(result, tuple | list):
            kind = "list" if isinstance(result, list) else "tuple"
            return kind, [(f"out{i}", value) for i, value in enumerate(result)]
        return "one", [("out", result)]

    def _array(self, part: str, key: str, value: Any) -> dict[str, Any]:
        """Write one array; its type and shape."""
        import numpy

        what = "its result" if part == "wanted" else "its input"
        if not _is_array(value) and _number(value) is None:
            kind = type(value).__name__
            raise ProblemRefused(
                f"{self.name}: {what} {key} is of type {kind}, no array and no number"
            )
        held = value
        with _its_own(f"gives {key} as something that cannot be read", self.name):
            if hasattr(value, "detach"):
                held = value.detach().cpu()
                named = str(held.dtype).rpartition(".")[2]
                if named in TYPES:
                    held = held.numpy()
            array = held if hasattr(held, "detach") else numpy.asarray(held)
        named = str(array.dtype).rpartition(".")[2]
        if named not in TYPES:
            raise ProblemRefused(
                f"{self.name}: {what} {key} is {named}; known are {', '.join(TYPES)}"
            )
        shape = [int(extent) for extent in array.shape]
        if 0 in shape:
            raise ProblemRefused(
                f"{self.name}: {what} {key} has no elements (shape {tuple(shape)})"
            )
        if not key.isidentifier() or not key.isascii():
            raise ProblemRefused(f"{self.name}: {what} {key!r} has no name that CUDA could use")
        path = self.folder / part / f"{key}.bin"
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        numpy.ascontiguousarray(little).tofile(path)
        return {"dtype": named, "shape": shape}


if __name__ == "__main__":
    main(sys.argv[1:])
