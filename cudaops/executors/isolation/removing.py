"""Removing what untrusted code left: any modes, any depth, and nothing outside."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path


def remove(folder: Path) -> None:
    """Remove a folder with everything in it; what cannot be removed stays, one that is not there is
    fine. Links in it go, and not what they mean."""
    try:
        shutil.rmtree(folder, onerror=_opening(folder))
    except RecursionError:  # deeper than Python recurses
        with suppress(OSError):
            _flatten(folder)
            shutil.rmtree(folder, onerror=_opening(folder))


def _opening(folder: Path) -> Callable[[Callable[..., object], str, object], None]:
    """What to do where something cannot be listed or removed: make it ours to change, and again."""

    def opened(function: Callable[..., object], path: str, _: object) -> None:
        with suppress(OSError):
            for at in (Path(path).parent, Path(path)):
                inside = at == folder or folder in at.parents
                if inside and not at.is_symlink():
                    at.chmod(stat.S_IRWXU)
            if function in (os.rmdir, os.unlink):
                function(path)
            elif Path(path).exists():
                shutil.rmtree(path, ignore_errors=True)

    return opened


def _flatten(folder: Path) -> None:
    """Bring every folder right below `folder`: then neither recursion nor the longest path bounds
    how deep they were."""
    numbers = count()
    left = [folder]
    while left:
        here = left.pop()
        here.chmod(stat.S_IRWXU)
        for entry in list(os.scandir(here)):
            if not entry.is_dir(follow_symlinks=False):
                continue
            up = Path(entry.path)
            if here != folder:
                up = next(p for n in numbers if not os.path.lexists(p := folder / f"{n}"))
                Path(entry.path).chmod(stat.S_IRWXU)  # to move a folder is to write its `..`
                Path(entry.path).rename(up)
            left.append(up)
