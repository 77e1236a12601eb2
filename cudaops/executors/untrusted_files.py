"""Files that a confined child left: read, copied and removed without trusting a name, a kind or a
size.

A folder that a child may write to can hold links, pipes, devices and files of any size under any
name. All of its processes are gone when this is asked, so what was looked at stays as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_CHUNK = 16 << 20
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
_NOT_OURS = {
    errno.ELOOP: "is a link",
    errno.EACCES: "may not be read",
    errno.EPERM: "may not be read",
    errno.ENXIO: "is not a regular file",
    errno.ENAMETOOLONG: "has too long a name",
}
"""What a child can bring about. Any other error is the machine's."""


class UntrustedFileError(Exception):
    """No such plain file. The text names it and says what is there instead."""

    def __init__(self, name: str, why: str, *, absent: bool = False) -> None:
        super().__init__(f"{PurePosixPath(name).name!r} {why}")
        self.absent = absent


@contextlib.contextmanager
def open_untrusted(folder: Path, name: str) -> Iterator[BinaryIO]:
    """A plain file with one name, below a folder that the child could not replace itself.

    `name` may lead through folders of the child's making; through links it may not, and nothing is
    waited for. Raises UntrustedFileError.
    """
    with contextlib.ExitStack() as stack:
        try:
            fd = _descend(folder, name, stack)
        except OSError as problem:
            if problem.errno in _NOT_THERE:
                raise UntrustedFileError(name, "is not there", absent=True) from problem
            if problem.errno not in _NOT_OURS:
                raise
            raise UntrustedFileError(name, _NOT_OURS[problem.errno]) from problem
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise UntrustedFileError(name, "is not a regular file")
        if found.st_nlink != 1:
            raise UntrustedFileError(name, "has a second name")
        yield stack.enter_context(os.fdopen(os.dup(fd), "rb"))


def untrusted_size(folder: Path, name: str) -> int:
    """Bytes of a plain file. Raises UntrustedFileError."""
    with open_untrusted(folder, name) as file:
        return os.fstat(file.fileno()).st_size


def read_untrusted(folder: Path, name: str, most_bytes: int) -> bytes:
    """The whole of a plain file. Raises UntrustedFileError, also for a larger one."""
    with open_untrusted(folder, name) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise UntrustedFileError(name, f"holds more than {most_bytes >> 20} MiB")
    return data


def copy_untrusted(folder: Path, name: str, target: Path, least: int, most: int) -> None:
    """A new file with the contents of a plain one of `least` to `most` bytes.

    Holes stay holes: it takes no more room than the child was granted. Raises UntrustedFileError.
    """
    with open_untrusted(folder, name) as source:
        size = os.fstat(source.fileno()).st_size
        if not least <= size <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise UntrustedFileError(name, f"holds {size} bytes instead of {wanted}")
        with target.open("xb") as file:
            for begin, end in _data(source.fileno(), size):
                _copy(source.fileno(), file.fileno(), begin, end)
            file.truncate(size)


def _copy(source: int, target: int, begin: int, end: int) -> None:
    """Bytes to the same place of another file, by the kernel where it can: a file system that
    shares what two files have in common then copies nothing."""
    with suppress(OSError):
        while begin < end and (
            done := os.copy_file_range(source, target, end - begin, begin, begin)
        ):
            begin += done
    while begin < end and (part := os.pread(source, min(_CHUNK, end - begin), begin)):
        begin += os.pwrite(target, part, begin)


def write_fresh(path: Path, text: str) -> None:
    """Write a new file where a child may have left anything."""
    discard(path)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def discard(path: Path) -> None:
    """Have nothing there, whatever a child left; a link goes and not what it means."""
    if path.is_dir() and not path.is_symlink():
        remove(path)
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder for a child to write to; gone afterwards, which `tempfile`'s is not where the child
    nested folders deeper than Python recurses."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        remove(folder)


def _descend(folder: Path, name: str, stack: contextlib.ExitStack) -> int:
    """A descriptor of the file, every step taken from the folder before."""
    *folders, last = PurePosixPath(name).parts or ("",)
    if not last or last == ".." or ".." in folders or name.startswith("/") or "\0" in name:
        raise UntrustedFileError(name, "is no name of a file here")
    plain = os.O_RDONLY | os.O_CLOEXEC
    at = os.open(folder, plain | os.O_DIRECTORY)
    stack.callback(os.close, at)
    for part in folders:
        at = os.open(part, plain | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        stack.callback(os.close, at)
    kind = os.stat(last, dir_fd=at, follow_symlinks=False).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise UntrustedFileError(
            name, "is not a regular file"
        )  # to open a device may do something already
    file = os.open(last, plain | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=at)
    stack.callback(os.close, file)
    return file


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data, from and to; all of it where the file system does not tell."""
    at = 0
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, begin, os.SEEK_HOLE)
        except OSError as problem:
            if problem.errno == errno.ENXIO:
                return  # nothing but a hole follows
            begin, end = at, size
        yield begin, min(end, size)
        at = end


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
