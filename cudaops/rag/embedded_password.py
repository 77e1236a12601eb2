"""The embedded server's password: random, in a file of ours beside the data.

Whoever reaches the server's socket is not trusted for that. Data folders of before it was so
trusted everybody there; `trusts` tells them.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

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
