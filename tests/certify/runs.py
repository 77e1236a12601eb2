"""A real run through the command line, and what is done to its folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudaops.storage import Facts, entry_of, make_once

PROGRAMS = Path(__file__).parents[1] / "data" / "certify"
BASELINE, CANDIDATE = PROGRAMS / "strided.cu", PROGRAMS / "coalesced.cu"
ROOT = Path(__file__).parents[2]


def cudaops(
    *arguments: str | Path, key: Path, named: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run one command line beside the folder of `key`, which signs; `named`: by the variable."""
    environment = {"CUDAOPS_SIGNING_KEY": str(key)} if named else {}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, "-m", "cudaops", *map(str, arguments)],
        cwd=key.parent.parent,
        env={k: v for k, v in os.environ.items() if k != "CUDAOPS_SIGNING_KEY"}
        | environment
        | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def certified_run(folder: Path, key: Path) -> Path:
    """The run folder of a rewrite that every gate let through, on `cpu`."""
    done = cudaops("verify", BASELINE, CANDIDATE, "--min-speedup", "1.1", "--out", folder, key=key)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def shared_run(factory: pytest.TempPathFactory) -> Path:
    """A folder with `run` and `key/signing.key` of a certified run, made once for all tests of a
    session, whichever process they are in. To be copied, not changed."""
    base = factory.getbasetemp()
    entry = entry_of(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base, "certified")

    def make(folder: Path) -> Facts:
        certified_run(folder / "run", folder / "key" / "signing.key")
        return {}

    make_once(entry, {}, make)
    return entry.folder
