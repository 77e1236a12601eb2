"""The signed file: any change of any byte is seen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from cudaops.certify.envelope import Envelope, canonical, open_envelope
from cudaops.certify.keys import NoKey
from cudaops.domain.certificate import CERTIFICATE_FORMAT, CONFIRMATION_FORMAT, Certificate
from cudaops.domain.judgement import Gate
from cudaops.errors import InputError
from tests.certify.samples import certificate, new_signer, sealed


def opened(data: bytes) -> Envelope | None:
    """None where the bytes are refused outright."""
    try:
        return open_envelope(data, "file")
    except InputError:
        return None


def holds(data: bytes) -> bool:
    envelope = opened(data)
    return envelope is not None and envelope.state == "signed"


def test_what_was_signed_comes_back() -> None:
    signer = new_signer()
    envelope = open_envelope(sealed(certificate(), signer), "file")
    assert envelope.record == certificate()
    assert (envelope.format, envelope.state) == (CERTIFICATE_FORMAT, "signed")
    assert envelope.signer == signer.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda byte: byte ^ 0x01, id="lowest bit"),
        pytest.param(lambda byte: byte ^ 0x20, id="case, or white space", marks=pytest.mark.deep),
        pytest.param(
            lambda byte: 0x20 if byte != 0x20 else 0x09, id="blank", marks=pytest.mark.deep
        ),
        pytest.param(lambda byte: byte ^ 0x80, id="not ASCII"),
    ],
)
def test_no_byte_can_change(change: Callable[[int], int]) -> None:
    data = bytearray(sealed())
    for position, byte in enumerate(data):
        data[position] = change(byte)
        assert not holds(bytes(data)), position
        data[position] = byte
    assert holds(bytes(data))


def test_no_byte_can_go_or_come() -> None:
    data = sealed()
    assert not any(holds(data[:end]) for end in range(0, len(data), 7))
    assert not holds(data[:-1])
    for more in (b" ", b"\n", b"\0", b"{}", b"\r"):
        assert not holds(data + more)
        assert not holds(more + data)
    for position in range(0, len(data), 7):
        assert not holds(data[:position] + data[position + 1 :]), position
        assert not holds(data[:position] + b" " + data[position:]), position


def test_the_same_json_spelled_otherwise_does_not_hold() -> None:
    data = sealed()
    document = json.loads(data)
    text = data.decode()
    others = [
        json.dumps(document).encode(),
        json.dumps(document, sort_keys=True, indent=2).encode() + b"\n",
        json.dumps(dict(reversed(document.items())), indent=1).encode() + b"\n",
        text.replace('"bar": 1.2', '"bar": 1.20').encode(),
        text.replace('"bar": 1.2', '"bar": 12e-1').encode(),
        text.replace('"kernel": "mm"', '"kernel": "\\u006dm"').encode(),
        text.replace('"bar": 1.2,', '"bar": 1.2,\n  "bar": 1.2,').encode(),
        text.replace("\n", "\r\n").encode(),
        text.encode("utf-16"),
        text.encode("utf-8-sig"),
    ]
    for other in others:
        assert other != data
        assert not holds(other), other[:60]


@pytest.mark.parametrize(
    ("bend", "says"),
    [
        (lambda s: s | {"value": s["value"].upper()}, "lower-case"),
        (lambda s: s | {"value": s["value"][:-2]}, "does not belong"),
        (lambda s: s | {"value": "zz" * 64}, "not in hex"),
        (lambda s: s | {"value": 7}, "not in hex"),
        (lambda s: s | {"algorithm": "none"}, "'none'"),
        (lambda s: s | {"public_key": new_signer().public_key.hex()}, "does not belong"),
        (lambda s: s | {"public_key": "00" * 31}, "does not belong"),
        (lambda s: s | {"more": "x"}, "incomplete"),
        (lambda s: {}, "incomplete"),
        (lambda s: None, "no signature"),
    ],
)
def test_a_signature_that_does_not_hold_says_why(
    bend: Callable[[dict[str, str]], object], says: str
) -> None:
    document = json.loads(sealed())
    document["signature"] = bend(document["signature"])
    envelope = open_envelope(canonical(document), "file")
    assert envelope.state == "altered"
    assert envelope.signer is None
    assert says in envelope.why


def test_an_unsigned_file_says_why_and_cannot_pass_for_a_signed_one() -> None:
    envelope = open_envelope(sealed(signer=NoKey("no place for a key")), "file")
    assert (envelope.state, envelope.why) == ("unsigned", "no place for a key")
    assert envelope.signer is None


def test_a_signature_holds_for_its_format_alone() -> None:
    document = json.loads(sealed())
    document["format"] = CONFIRMATION_FORMAT
    assert opened(canonical(document)) is None, "a certificate is no confirmation"


def test_numbers_without_bounds_survive() -> None:
    record = certificate()
    numbers = {"a": math.inf, "b": -math.inf, "c": 1e300}
    gate = Gate(name="object", passed=True, summary="", numbers=numbers, seconds=math.inf)
    assert gate.numbers == {"c": 1e300}, "a gate leaves out what JSON cannot say"
    bent = record.model_copy(
        update={"judgement": record.judgement.model_copy(update={"gates": (gate,)})}
    )
    data = sealed(bent)
    assert b'"seconds": "Infinity"' in data, "other fields spell it as a string"
    envelope = open_envelope(data, "file")
    assert envelope.state == "signed"
    assert isinstance(envelope.record, Certificate)
    assert envelope.record.judgement.gates == (gate,)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"hello",
        b"\xff\xfe",
        b'{"format": "cudaops-certificate/2"}',
        b'{"format": ["cudaops-certificate/1"]}',
        b'{"format": "cudaops-certificate/1", "body": NaN, "signature": {}}',
        b'{"format": "cudaops-certificate/1", "body": {}, "signature": {}}',
        b"[" * 200_000,
        b"9" * 5_000,
    ],
)
def test_what_is_no_certificate_is_one_line(data: bytes) -> None:
    with pytest.raises(InputError) as refused:
        open_envelope(data, "file")
    assert str(refused.value).startswith("file is no c")
    assert "\n" not in str(refused.value)


def test_a_path_cannot_leave_the_run_folder() -> None:
    document = json.loads(sealed())
    for path in ("/etc/passwd", "../secret", "a/../../b"):
        document["body"]["files"][0]["path"] = path
        assert opened(canonical(document)) is None
