"""`cudaops certify` as a shell sees it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cudaops.certify.envelope import seal
from cudaops.certify.keys import public_pem
from cudaops.domain.certificate import CERTIFICATE_FORMAT
from tests.certify.runs import ROOT, cudaops
from tests.certify.samples import certificate, made, new_signer, sealed


def write(folder: Path, data: bytes) -> Path:
    path = folder / "certificate.json"
    path.write_bytes(data)
    return path


def key_of(folder: Path) -> Path:
    return folder / "key" / "signing.key"


def test_the_key_is_made_once_and_its_secret_is_not_shown(tmp_path: Path) -> None:
    first = cudaops("certify", "key", key=key_of(tmp_path))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("fingerprint: ")
    assert "BEGIN PUBLIC KEY" in first.stdout
    assert "PRIVATE" not in first.stdout
    assert cudaops("certify", "key", key=key_of(tmp_path)).stdout == first.stdout


def test_no_place_for_a_key_is_this_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("in the way")
    done = cudaops("certify", "key", key=key_of(tmp_path))
    assert done.returncode == 3
    assert "CUDAOPS_SIGNING_KEY" in done.stderr


def test_whose_key_it_is(tmp_path: Path) -> None:
    """Unknown here, named by file, named by fingerprint, named wrong."""
    signer, other = new_signer(), new_signer()
    path = write(tmp_path, sealed(certificate(), signer))
    (tmp_path / "theirs.pem").write_text(public_pem(signer.public_key))
    (tmp_path / "other.pem").write_text(public_pem(other.public_key))

    def check(*more: str | Path) -> subprocess.CompletedProcess[str]:
        return cudaops("certify", "check", path, *more, key=key_of(tmp_path))

    unknown = check()
    assert unknown.returncode == 0, unknown.stdout
    assert f"signed by {signer.fingerprint}, an unknown key" in unknown.stdout
    assert not key_of(tmp_path).exists(), "a look makes no key"
    assert "best.cu: not here" in unknown.stdout
    for name in (tmp_path / "theirs.pem", signer.fingerprint):
        named = check("--key", name)
        assert named.returncode == 0
        assert "the key named with --key" in named.stdout
    for name in (tmp_path / "other.pem", other.fingerprint):
        wrong = check("--key", name)
        assert wrong.returncode == 1
        assert f"NOT by {other.fingerprint}" in wrong.stdout
    assert check("--key", "nowhere.pem").returncode == 2


def test_a_certificate_that_contradicts_itself_fails_though_signed(tmp_path: Path) -> None:
    bent = certificate().model_copy(update={"judged_before": 0})
    path = write(tmp_path, seal(CERTIFICATE_FORMAT, bent, new_signer()))
    done = cudaops("certify", "check", path, key=key_of(tmp_path))
    assert done.returncode == 1
    assert "judgement: CONTRADICTS ITSELF: speedup_low is" in done.stdout


def test_one_changed_byte_fails(tmp_path: Path) -> None:
    data = sealed()
    place = data.index(b'"samples_us"') + 30
    for change, code in ((b"7", 1), (b" ", 1), (b"\xff", 2)):
        changed = data[:place] + change + data[place + 1 :]
        if changed == data:
            continue
        done = cudaops("certify", "check", write(tmp_path, changed), key=key_of(tmp_path))
        assert done.returncode in (code, 2), done.stdout + done.stderr


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[1]"])
def test_what_is_no_certificate_is_exit_2_and_one_line(tmp_path: Path, data: bytes) -> None:
    done = cudaops("certify", "check", write(tmp_path, data), key=key_of(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "is no certificate" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = cudaops("certify", "check", tmp_path / "gone", key=key_of(tmp_path))
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_it_works_where_there_is_no_compiler(tmp_path: Path) -> None:
    path = write(tmp_path, sealed())
    done = subprocess.run(
        [sys.executable, "-m", "cudaops", "certify", "check", path],
        cwd=tmp_path,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.glob("**/signing.key"))


def test_the_key_in_the_default_place_is_this_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    key = tmp_path / "cudaops" / "signing.key"
    path = write(tmp_path, sealed(certificate(), made(key)))
    done = cudaops("certify", "check", path, key=key, named=False)
    assert done.returncode == 0, done.stdout
    assert "this machine's key" in done.stdout


def test_the_files_of_a_real_run(tmp_path: Path, certified: Path) -> None:
    key, run = key_of(certified), Path(shutil.copytree(certified / "run", tmp_path / "run"))
    whole = cudaops("certify", "check", run / "certificate.json", key=key)
    assert whole.returncode == 0, whole.stdout
    assert "the key that CUDAOPS_SIGNING_KEY names" in whole.stdout
    assert "not here" not in whole.stdout
    for line in ("best.cu: matches", "author's strided.cu: matches", "workload w0: matches"):
        assert line in whole.stdout
    (run / "best.cu").write_text("int main() {}\n")
    differs = cudaops("certify", "check", run, key=key)
    assert differs.returncode == 1
    assert "best.cu: DIFFERS" in differs.stdout
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(run / "certificate.json", alone)
    elsewhere = cudaops("certify", "check", alone, key=key)
    assert elsewhere.returncode == 0
    assert "workload w0: not here" in elsewhere.stdout
    document = json.loads((run / "certificate.json").read_bytes())
    assert set(document) == {"body", "format", "signature"}
    assert key.stat().st_mode & 0o077 == 0
