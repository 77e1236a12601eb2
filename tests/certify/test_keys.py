"""The signing key: made once, whole, for its owner alone, and never where it would be copied."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from cudaops.certify.keys import (
    NoKey,
    Signer,
    default_path,
    find_key,
    find_or_make_key,
    named_fingerprint,
    public_pem,
    verifies,
)
from cudaops.errors import InputError
from tests.certify.samples import made


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "config" / "cudaops" / "signing.key"
    assert isinstance(find_key(path), NoKey)
    first, second = made(path), made(path)
    assert first.fingerprint == second.fingerprint
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == ["signing.key"]
    signature = first.sign(b"text")
    assert verifies(second.public_key, b"text", signature)
    assert not verifies(second.public_key, b"Text", signature)
    assert not verifies(b"", b"text", signature)


def test_the_private_key_is_in_no_text(tmp_path: Path) -> None:
    signer = made(tmp_path / "k" / "signing.key")
    secret = (tmp_path / "k" / "signing.key").read_text().splitlines()[1]
    assert secret not in repr(signer) + str(signer) + public_pem(signer.public_key)


def test_the_default_place_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_path() == tmp_path / "cudaops" / "signing.key"
    (tmp_path / "cudaops").mkdir(mode=0o755)
    assert isinstance(find_or_make_key(None), Signer)
    assert stat.S_IMODE((tmp_path / "cudaops").stat().st_mode) == 0o700


def test_processes_that_make_it_at_once_use_the_same(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from cudaops.certify.keys import find_or_make_key;"
        "print(find_or_make_key(Path(sys.argv[1])).fingerprint)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "k" / "signing.key")]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        for _ in range(4)
    ]
    told = {child.communicate(timeout=120)[0] for child in children}
    assert len(told) == 1, told
    assert len(told.pop().strip()) == 32
    assert len(list((tmp_path / "k").iterdir())) == 1


def test_none_is_made_inside_of_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)
    path = tmp_path / "repo" / "deep" / "signing.key"
    refused = find_or_make_key(path)
    assert isinstance(refused, NoKey)
    assert f"the repository {tmp_path / 'repo'}" in refused.reason
    (tmp_path / "door").symlink_to(tmp_path / "repo")
    assert isinstance(find_or_make_key(tmp_path / "door" / "signing.key"), NoKey)
    assert not list((tmp_path / "repo").glob("**/*.key"))


def test_none_is_made_inside_of_a_run_folder(tmp_path: Path) -> None:
    refused = find_or_make_key(tmp_path / "runs" / "k" / "signing.key", avoid=(tmp_path / "runs",))
    assert isinstance(refused, NoKey)
    assert "run folder" in refused.reason
    assert not (tmp_path / "runs").exists()


def test_a_key_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "k" / "signing.key"
    made(path)
    path.chmod(0o640)
    refused = find_or_make_key(path)
    assert isinstance(refused, NoKey)
    assert "chmod 600" in refused.reason


def test_where_no_key_can_be_made_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    refused = find_or_make_key(tmp_path / "file" / "deep" / "signing.key")
    assert isinstance(refused, NoKey)
    assert "CUDAOPS_SIGNING_KEY" in refused.reason
    unwritable = find_or_make_key(Path("/proc/cudaops/signing.key"))
    assert isinstance(unwritable, NoKey)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    assert isinstance(find_or_make_key(dangling), NoKey)
    assert isinstance(find_or_make_key(tmp_path), NoKey)


def test_what_is_no_key_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encrypted = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")
    )
    for data in (
        b"",
        b"hello",
        encrypted,
        other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ):
        path.write_bytes(data)
        path.chmod(0o600)
        refused = find_or_make_key(path)
        assert isinstance(refused, NoKey)
        assert str(path) in refused.reason
        assert path.read_bytes() == data, "nothing that was there is overwritten"


def test_a_key_is_named_by_fingerprint_or_file(tmp_path: Path) -> None:
    signer = made(tmp_path / "k" / "signing.key")
    pem = tmp_path / "public.pem"
    pem.write_text(f"fingerprint: {signer.fingerprint}\n{public_pem(signer.public_key)}")
    assert named_fingerprint(str(pem)) == signer.fingerprint
    assert named_fingerprint(signer.fingerprint.upper()) == signer.fingerprint
    (tmp_path / "other").write_text("hello")
    for name in ("nowhere", signer.fingerprint[:31], str(tmp_path / "other")):
        with pytest.raises(InputError, match="--key"):
            named_fingerprint(name)
