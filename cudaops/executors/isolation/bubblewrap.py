"""bubblewrap around the launcher: namespaces of its own for processes, network and the rest."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cudaops.executors.isolation import places
from cudaops.executors.isolation.landlock import WRITE_FILE, Rule
from cudaops.executors.isolation.phases import Phase

_EMPTIED = ("/tmp", "/var/tmp", "/run/user")
"""Folders shared by all accounts. What a child needs below them is bound into them again."""


def find_bubblewrap() -> Path | None:
    """`bwrap` on PATH; None where it is not there."""
    found = shutil.which("bwrap")
    return Path(found) if found else None


def wrapped(bwrap: Path, phase: Phase, cwd: Path, rules: Sequence[Rule]) -> list[str]:
    """The command line up to the launcher's own. `rules` are what Landlock lets through."""
    line = [
        str(bwrap), "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
        "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
    ]  # fmt: skip
    if phase == "gpu":
        for node in sorted(Path("/dev").glob("nvidia*")):
            line += ["--dev-bind", str(node), str(node)]
    for folder in _EMPTIED:
        if Path(folder).is_dir():
            line += ["--tmpfs", folder]
    apart = {r for r in rules if not r.path.is_relative_to("/dev") and "/proc" not in str(r.path)}
    written = {r.path for r in apart if r.access & WRITE_FILE}
    # Our launcher runs in there too, whatever the child itself may read.
    wanted = {r.path for r in (*apart, *places.python())}
    read = {p for p in wanted if any(p.is_relative_to(f) for f in _EMPTIED)}
    if any(cwd.is_relative_to(folder) for folder in _EMPTIED):
        line += ["--dir", str(cwd)]
    # What lies in a folder that is bound comes with it. bwrap cannot bind onto a link, such as the
    # `python` of a virtual environment under /tmp.
    for path in sorted(p for p in read - written if read.isdisjoint(p.parents)):
        line += ["--ro-bind-try", str(path), str(path)]
    for path in sorted(written):
        line += ["--bind", str(path), str(path)]
    return [*line, "--chdir", str(cwd), "--"]
