"""What every test can rely on: an environment of its own, and skips that say why."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.toolchain import find_nvcc
from cudaops.settings import load_settings
from tests import lanes
from tests.certify.runs import shared_run

_FOREIGN = (
    "DATABASE_URL",
    "NVIDIA_API_KEY",
    "NVIDIA_BASE_URL",
    "NVIDIA_EMBED_URL",
    "NVIDIA_EMBED_MODEL",
    "NVIDIA_RERANK_URL",
    "NVIDIA_RERANK_MODEL",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GOOGLE_API_KEY",
    "LANGCHAIN_TRACING_V2",
    "LANGSMITH_TRACING",
    "COLUMNS",
    "FORCE_COLOR",
    "NO_COLOR",
)
"""Variables of the person who runs the tests that would change what is tested."""

_CACHE = pytest.StashKey[Path]()
_BUILDS = "CUDAOPS_BUILDS"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of the lanes."""
    lanes.add_options(parser)


def pytest_report_header(config: pytest.Config) -> str:
    """Of the lanes."""
    return lanes.header(config)


def pytest_configure(config: pytest.Config) -> None:
    """Scrub the environment and put the cache into a folder of this process, all but compiled code:
    that is shared by all tests and by what this account runs otherwise.

    Not under pytest's own temporary folder, which it closes to other accounts: the embedded
    PostgreSQL server gives up root for one of those. `cudaops-t` stays short for Unix sockets.
    """
    lanes.configure(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job: what is started here would not hear Ctrl-C either.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    builds = load_settings(Path(tempfile.gettempdir())).builds_folder
    for name in [*_FOREIGN, *(n for n in os.environ if n.startswith(("CUDAOPS_", "POSTGRES_")))]:
        os.environ.pop(name, None)
    cache = Path(tempfile.mkdtemp(prefix="cudaops-t"))
    cache.chmod(0o755)
    config.stash[_CACHE] = cache
    os.environ["CUDAOPS_CACHE"] = str(cache)
    os.environ[_BUILDS] = str(builds)
    os.environ["CUDAOPS_SIGNING_KEY"] = str(cache / "key" / "signing.key")
    # What one test's run learns must not order another's recipes.
    os.environ["CUDAOPS_MEMORY"] = "off"
    # A test says itself when it means a GPU.
    os.environ["CUDAOPS_EXECUTOR"] = "cpu"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the cache."""
    shutil.rmtree(config.stash[_CACHE], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep those of the lane; skip, with the reason, what this machine cannot run."""
    lanes.choose(config, items)
    reasons = {"nvcc": _why_no_nvcc(), "gpu": _why_no_gpu(), "bubblewrap": _why_no_bubblewrap()}
    for item in items:
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_nvcc() -> str | None:
    if find_nvcc() is None:
        return "nvcc not found on PATH, in CUDA_HOME or in the toolkit extra"
    return None


def _why_no_bubblewrap() -> str | None:
    return None if shutil.which("bwrap") else "bwrap not found on PATH"


def _why_no_gpu() -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "no NVIDIA GPU: nvidia-smi not found"
    listed = subprocess.run(
        [program, "-L"], capture_output=True, text=True, timeout=30, check=False
    )
    return (
        None
        if listed.returncode == 0 and "GPU" in listed.stdout
        else "no NVIDIA GPU: nvidia-smi -L lists none"
    )


@pytest.fixture(scope="session")
def cache() -> Path:
    """The cache folder of this test process, shared by its tests: all but compiled code."""
    return Path(os.environ["CUDAOPS_CACHE"])


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run` and `key/signing.key` of a certified run. To be copied, not changed."""
    return shared_run(tmp_path_factory)


@pytest.fixture(scope="session")
def kernels() -> Path:
    """Where compiled code is kept, for good. An empty cache costs half a minute until the runtime
    is built and the headers are compiled: only a test of the cache itself takes one of its own."""
    return Path(os.environ[_BUILDS])


@pytest.fixture(scope="session")
def cpu_executor(kernels: Path) -> CpuExecutor:
    """One for all tests, its runtime built once."""
    return CpuExecutor("A10", kernels, workers=2)
