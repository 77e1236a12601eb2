"""The key that signs certificates: Ed25519, made on first use, readable by its owner alone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import platformdirs
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from cudaops.errors import InputError

KEY_NAME = "signing.key"
VARIABLE = "CUDAOPS_SIGNING_KEY"
REMEDY = f"name another file with {VARIABLE}"
FINGERPRINT_DIGITS = 32
"""128 bits of a SHA-256: as hard to meet with another key as the signature is to forge."""


class NoKey(NamedTuple):
    """There is no key to sign with."""

    reason: str
    """One line, with what to do."""


class Signer:
    """A private key, and all that is done with it."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_key = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        """32 bytes."""

    @property
    def fingerprint(self) -> str:
        """What people compare."""
        return fingerprint(self.public_key)

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature."""
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"Signer({self.fingerprint})"


def fingerprint(public_key: bytes) -> str:
    """The first 32 hex digits of the SHA-256 over the 32 bytes of a public key."""
    return hashlib.sha256(public_key).hexdigest()[:FINGERPRINT_DIGITS]


def public_pem(public_key: bytes) -> str:
    """The key as PEM, which `--key FILE`, OpenSSL and others read."""
    key = Ed25519PublicKey.from_public_bytes(public_key)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


def verifies(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the owner of the key signed exactly this message."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def named_fingerprint(name: str) -> str:
    """The fingerprint that `--key` means: itself, or that of a PEM file with a public key.

    Raises InputError where it is neither.
    """
    if re.fullmatch(rf"[0-9a-fA-F]{{{FINGERPRINT_DIGITS}}}", name):
        return name.lower()
    path = Path(name)
    if not path.is_file():
        digits = FINGERPRINT_DIGITS
        raise InputError(f"--key {name}: neither a file nor a fingerprint of {digits} hex digits")
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise InputError(f"--key {name} holds no public key; see: cudaops certify key") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"--key {name} is no Ed25519 key")
    return fingerprint(key.public_bytes(Encoding.Raw, PublicFormat.Raw))


def default_path() -> Path:
    """Where the key lies unless a path is named: the user's own configuration folder."""
    return Path(platformdirs.user_config_path("cudaops", appauthor=False)) / KEY_NAME


def find_key(path: Path | None) -> Signer | NoKey:
    """The key at `path` (None: the default place), if it is there. Makes none."""
    chosen = path or default_path()
    try:
        handle = os.open(chosen, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                return NoKey(f"{chosen} is no file; {REMEDY}")
            if stat.S_IMODE(found.st_mode) & 0o077:
                return NoKey(f"others may read the key {chosen}; chmod 600 it")
            data = stream.read(1 << 16)
    except FileNotFoundError:
        return NoKey(f"there is no key at {chosen}")
    except OSError as error:
        return NoKey(f"the key {chosen} cannot be read: {error.strerror}; {REMEDY}")
    return _parsed(data, chosen)


def _parsed(data: bytes, path: Path) -> Signer | NoKey:
    try:
        private = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return NoKey(f"{path} holds no unencrypted private key in PEM; {REMEDY}")
    if not isinstance(private, Ed25519PrivateKey):
        return NoKey(f"the key {path} is not Ed25519; {REMEDY}")
    return Signer(private)


def find_or_make_key(path: Path | None, avoid: Sequence[Path] = ()) -> Signer | NoKey:
    """The key at `path` (None: the default place), made where there is none yet.

    It appears whole or not at all; of two processes that make one at once, both use the same.
    None is made inside of a repository or of a folder in `avoid` (run folders), from where it would
    be copied with the rest.
    """
    chosen = (path or default_path()).absolute()
    if os.path.lexists(chosen):
        return find_key(chosen)
    unfit = _unfit(chosen, avoid)
    if unfit is not None:
        return NoKey(f"no key is created at {chosen}, which lies in {unfit}; {REMEDY}")
    try:
        _make_folder(chosen.parent, ours=path is None)
        _publish(chosen)
    except OSError as error:
        return NoKey(f"no key can be created at {chosen}: {error.strerror}; {REMEDY}")
    return find_key(chosen)


def _unfit(path: Path, avoid: Sequence[Path]) -> str | None:
    resolved = path.parent.resolve() / path.name
    for folder in resolved.parents:
        if (folder / ".git").exists():
            return f"the repository {folder}"
    inside = next((one for one in avoid if resolved.is_relative_to(one.resolve())), None)
    return None if inside is None else f"the run folder {inside}"


def _make_folder(folder: Path, *, ours: bool) -> None:
    """Make the folder for its owner alone. One that was there stays as it is, unless it is ours."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if ours and stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)


def _publish(path: Path) -> None:
    """Write the key beside its place and link it there, which fails where one has appeared."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(pem)
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()
