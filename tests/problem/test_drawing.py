"""Inputs and reference of a problem, in a confined child: what is read, what is refused."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from cudaops.errors import InputError
from cudaops.problem.reference import (
    FIRST_SEED,
    Drawer,
    draws_of,
    find_interpreter,
    further_seeds,
)
from tests.problem.problems import SCALE, drawn, problem_of, written

MODEL = """
import numpy as np

class Model:
    def __init__(self, width, eps=1e-3, *names):
        self.weight = np.random.uniform(1.0, 2.0, width).astype(np.float32)
        self.eps = eps

    def forward(self, x, factor):
        x = x + self.eps
        return {"y": x * self.weight * factor, "sign": x > 0}

def get_init_inputs():
    return [8, 0.25]

def get_inputs():
    return [np.random.rand(3, 8).astype(np.float16), 2]
"""
TORCH = '''
"""A stand-in for torch: as much of it as a problem is read by."""

import numpy

class Tensor:
    def __init__(self, array):
        self.array, self.dtype = array, f"torch.{array.dtype}"
        self.shape = array.shape

    def detach(self):
        return Tensor(self.array.copy())

    def cpu(self):
        return self

    def numpy(self):
        return self.array

class no_grad:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass

SEEDS = []

def manual_seed(seed):
    SEEDS.append(seed)

class Module:
    def __call__(self, *inputs):
        return self.forward(*inputs)
'''
WITH_TORCH = """
import numpy, torch

class Model(torch.Module):
    def __init__(self):
        self.bias = torch.Tensor(numpy.full(4, 2.0, numpy.float32))

    def state_dict(self):
        return {"layer.bias": self.bias}

    def named_buffers(self):
        return [("layer.running", torch.Tensor(numpy.zeros(4)))]

    def forward(self, x):
        x.array += self.bias.array  # in place, as ReLU(inplace=True) does
        return torch.Tensor(x.array + torch.SEEDS[-1] % 2)

def get_inputs():
    return [torch.Tensor(numpy.arange(4, dtype=numpy.float32))]
"""

NAMES = "import numpy as np\nreference = lambda **values: np.ones(2)\n"


def test_a_function_is_drawn_by_its_generator(tmp_path: Path) -> None:
    one, two, again = drawn(tmp_path, SCALE, 1, 2, 1)
    xs = [np.fromfile(d.inputs / "x.bin", np.float32) for d in (one, two, again)]
    assert np.array_equal(xs[0], xs[2])
    assert not np.array_equal(xs[0], xs[1])
    (out,) = one.problem.outputs
    assert np.array_equal(np.fromfile(one.wanted(out), np.float32), xs[0] * np.float32(2.5))
    numbers = (one.inputs / "numbers").read_bytes()
    assert (np.frombuffer(numbers[:8], "<i8")[0], np.frombuffer(numbers[8:], "<f8")[0]) == (
        200,
        2.5,
    )
    assert [(n.name, n.is_integer) for n in one.problem.numbers] == [("n", True), ("by", False)]


def test_a_model_gives_parameters_arguments_and_named_outputs(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, MODEL)
    assert (problem.form, problem.returns) == ("kernelbench", "dict")
    arrays = [(a.name, a.element, a.shape, a.origin) for a in problem.arrays]
    assert arrays == [("x", "f16", (3, 8), "input"), ("weight", "f32", (8,), "state")]
    numbers = [(n.name, n.value, n.origin, n.path) for n in problem.numbers]
    assert numbers == [
        ("factor", 2, "input", "1"), ("width", 8, "init", "0"), ("eps", 0.25, "init", "1")
    ]  # fmt: skip
    assert [(o.name, o.element) for o in problem.outputs] == [("y", "f32"), ("sign", "bool")]


def test_tensors_are_read_before_the_reference_changes_them(tmp_path: Path) -> None:
    written(tmp_path / "problem", WITH_TORCH)
    (tmp_path / "problem" / "torch.py").write_text(TORCH, "utf-8")
    (odd,) = drawn(tmp_path, WITH_TORCH, 3)
    assert [a.name for a in odd.problem.arrays] == ["x", "layer_bias", "layer_running"]
    assert [a.path for a in odd.problem.arrays] == ["0", "layer.bias", "layer.running"]
    assert np.fromfile(odd.inputs / "x.bin", np.float32).tolist() == [0, 1, 2, 3]
    (out,) = odd.problem.outputs
    assert np.fromfile(odd.wanted(out), np.float32).tolist() == [3, 4, 5, 6]


def test_a_problem_sees_what_lies_beside_it(tmp_path: Path) -> None:
    written(tmp_path / "problem", "")
    (tmp_path / "problem" / "mine.py").write_text("FACTOR = 3\n", "utf-8")
    (tmp_path / "problem" / "table.txt").write_text("7\n", "utf-8")
    script = """
        import numpy as np
        from mine import FACTOR
        inputs = lambda rng: {"x": np.ones(2)}
        reference = lambda x: x * FACTOR * float(open("table.txt").read())
    """
    (one,) = drawn(tmp_path, script)
    assert np.fromfile(one.wanted(one.problem.outputs[0]), np.float64).tolist() == [21, 21]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("y = 1", "p.py has neither a class `Model` nor a function `reference`"),
        ("import absent_here", "ModuleNotFoundError: No module named 'absent_here'; --python"),
        ("x = (", "p.py cannot be imported: SyntaxError"),
        ("def reference(): pass", "no function `inputs(rng)` beside it"),
        ("class Model: pass", "no function `get_inputs()` beside it"),
        (SCALE.replace("return x *", "raise ValueError('a\\nb'); x *"), "raises: ValueError: a b"),
        (SCALE.replace("return x * np.float32(by)", "return 'text'"), "out is of type str"),
        (SCALE.replace("np.float32(by)", "1j"), "its result out is complex"),
        (f"{NAMES}inputs = lambda rng: {{'a b': np.ones(2)}}", "'a b' has no name that CUDA"),
        (f"{NAMES}inputs = lambda rng: {{'l': [1]}}", "its input l is of type list, no array"),
        (f"{NAMES}inputs = lambda rng: [np.ones(2)]", "`inputs(rng)` gives a dict"),
        (SCALE.replace("return x *", "import os; os._exit(5); x *"), "p.py ends with exit code 5"),
        (SCALE.replace("normal(200)", "normal(0)"), "its input x has no elements"),
        (SCALE.replace("200,", "2**70,"), "n = 1180591620717411303424 does not fit 64 bits"),
        (SCALE.replace("return x *", "open('/etc/hostname').read(); x *"), "PermissionError"),
        (SCALE.replace("return x *", "import socket; socket.socket(); x *"), "PermissionError"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(script: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        drawn(tmp_path, script)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_shapes_are_the_same_each_time(tmp_path: Path) -> None:
    script = SCALE.replace("normal(200)", "normal(rng.integers(50, 60))")
    with pytest.raises(InputError, match=r"draws x of shape \(\d+,\) \(f32\) with one seed and x"):
        drawn(tmp_path, script, 1, 2, 3)
    kinds = SCALE.replace('"by": 2.5', '"by": 2 if rng.random() < 0.5 else 2.5')
    with pytest.raises(InputError, match="draws by as a"):
        drawn(tmp_path / "kinds", kinds, *range(12))


def test_one_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    path, _ = written(tmp_path, SCALE.replace("return x *", "import time; time.sleep(60); x *"))
    with pytest.raises(InputError, match=r"takes longer than 1 s to draw .* --timeout raises"):
        Drawer(path, find_interpreter(None), 1.0).draw((1,), tmp_path / "draws")


def test_what_it_writes_elsewhere_of_its_draws_is_not_believed(tmp_path: Path) -> None:
    """The reference runs after its inputs were written, and may write where they are."""
    script = SCALE.replace(
        "return x *",
        "import sys, pathlib; pathlib.Path(sys.argv[2], '0/inputs/x.bin').write_bytes(b''); "
        "return x *",
    )
    with pytest.raises(InputError, match="changed its recorded inputs"):
        drawn(tmp_path, script)


def test_secret_draws_are_of_the_file_that_the_run_found(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, SCALE)
    draws = draws_of(problem, 5, tmp_path / "again", 30.0, ())
    contents = {(d.inputs / "x.bin").read_bytes() for d in draws}
    assert len(contents) == 1 + len(further_seeds(5))
    assert FIRST_SEED not in further_seeds(5) != further_seeds(6)
    Path(problem.script).write_text(SCALE.replace("2.5", "3.5"), "utf-8")
    with pytest.raises(InputError, match="was changed since the run"):
        draws_of(problem, 5, tmp_path / "other", 30.0, ())


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("/bin/ls", "is not a Python interpreter; name the interpreter itself"),
        ("no-such-python", "no such program"),
    ],
)
def test_an_interpreter_that_is_none(named: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        find_interpreter(named)


def test_an_interpreter_is_asked_confined(tmp_path: Path) -> None:
    """A run folder says which one is started, and may be a stranger's: one of theirs writes where
    it starts, and is stopped."""
    venv.create(tmp_path / "venv", with_pip=False)
    packages = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    theirs = packages / "theirs.pth"
    theirs.write_text(f"import os; os.mkdir({str(tmp_path / 'written')!r})\n", "utf-8")
    python = str(tmp_path / "venv" / "bin" / "python")
    with pytest.raises(InputError, match="it has no numpy"):
        find_interpreter(python)
    assert not (tmp_path / "written").exists()
    subprocess.run([python, "-c", ""], check=True)
    assert (tmp_path / "written").is_dir()


def test_a_script_in_an_interpreters_place_is_not_started(tmp_path: Path) -> None:
    named = tmp_path / "python"
    named.write_text("#!/bin/sh\nexec python3\n", "utf-8")
    named.chmod(0o755)
    with pytest.raises(InputError, match="name the interpreter itself"):
        find_interpreter(str(named))


def test_another_interpreter_draws_without_cudaops(tmp_path: Path) -> None:
    """A bare virtual environment: numpy is linked into it, and cudaops is not there."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    with pytest.raises(InputError, match="it has no numpy"):
        find_interpreter(str(python))
    packages = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    for name in ("numpy", "numpy.libs"):
        found = Path(np.__file__).parents[1] / name
        if found.exists():
            (packages / name).symlink_to(found)
    script = f"""
        import sys, importlib.util
        import numpy as np
        inputs = lambda rng: {{"x": np.ones(2)}}
        def reference(x):
            assert sys.prefix == {str(tmp_path / "venv")!r}
            assert importlib.util.find_spec("pydantic") is None
            return x
    """
    path, _ = written(tmp_path / "problem", script)
    interpreter = find_interpreter(str(python))
    real = Path(np.__file__).parents[1]  # the links lead there
    interpreter = interpreter._replace(
        runs=(*interpreter.runs, real / "numpy", real / "numpy.libs")
    )
    (one,) = Drawer(path, interpreter, 30.0).draw((1,), tmp_path / "draws")
    assert one.problem.python == str(python)
    assert python != Path(sys.executable)
