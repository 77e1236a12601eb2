"""Lines of the log: what they carry, how they look, and what never gets into one."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from cudaops.service import logs
from cudaops.service.logs import MASK, Mask, secrets_of
from cudaops.settings import Settings
from tests.lanes import examples

TOKEN = "cudaops_" + "aB3-_" * 8 + "xyz"


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)  # which also forgets what each logger has found to be its level
    for name in logs.QUIETER:
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.reset_defaults()


def written(form: Literal["text", "json"], *secrets: str) -> io.StringIO:
    stream = io.StringIO()
    logging.getLogger().handlers.clear()  # pytest's own keep lines as they were said
    logs.configure(form, stream, secrets=secrets)
    return stream


def records(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_carry_time_level_event_and_what_is_bound() -> None:
    stream = written("json")
    with logs.bound(request_id="r1", job=None), logs.bound(job="j1", run_id="n1"):
        logs.logger("cudaops.worker").info("job started", kind="optimize")
    logs.logger("cudaops.worker").warning("no job")
    first, second = records(stream)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info", "logger": "cudaops.worker", "event": "job started",
        "kind": "optimize", "request_id": "r1", "job": "j1", "run_id": "n1",
    }  # fmt: skip
    assert "job" not in second
    assert second["level"] == "warning"


def test_other_peoples_loggers_come_out_alike_and_once() -> None:
    stream = written("json")
    logs.configure("json", stream)  # again: one handler, not two
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    logging.getLogger("procrastinate.worker").info("chatter")
    logging.getLogger("procrastinate.worker").error("trouble")
    events = [(line["logger"], line["level"], line["event"]) for line in records(stream)]
    assert events == [
        ("uvicorn.error", "info", "Started server process [7]"),
        ("procrastinate.worker", "error", "trouble"),
    ]


def test_access_lines_are_as_loud_as_their_status() -> None:
    stream = written("json")
    logs.access("GET", "/jobs/{id}", 200, 1.23456, "ci")
    logs.access("POST", "/run", 500, 2.0, None)
    logs.access("POST", "/run", 503, 2.0, None)
    first, second, third = records(stream)
    assert (first["route"], first["milliseconds"], first["actor"]) == ("/jobs/{id}", 1.2, "ci")
    levels = [line["level"] for line in (first, second, third)]
    assert levels == ["info", "error", "warning"]


def test_text_is_one_line_an_event_and_nothing_passes_for_one() -> None:
    stream = written("text")
    forged = "x\n2026-01-01T00:00:00Z  info  forged\x1b[31m\u202e"
    logs.logger("cudaops").info(forged, name=forged, plain="a/b.cu", count=3, nothing=None)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logs.logger("cudaops").exception("failed")
    lines = stream.getvalue().splitlines()
    assert len([line for line in lines if not line.startswith("    ")]) == 2
    assert "plain=a/b.cu  count=3" in lines[0]
    assert "nothing" not in lines[0]
    assert not [c for c in stream.getvalue() if not c.isprintable() and c != "\n"]
    assert lines[-2:] == ["    ValueError: first", "    second"]


def test_what_people_sent_is_a_length() -> None:
    stream = written("json")
    logs.logger("cudaops").info(
        "submitted", source="__global__ void k() {}", request={"files": {"a.h": "#pragma once"}}
    )
    logs.logger("cudaops").info("long", detail="y" * 5000)
    first, second = records(stream)
    assert first["source"] == "<22 characters>"
    assert "pragma" not in json.dumps(first)
    assert second["detail"].endswith("(3000 characters more)")


def test_a_line_that_cannot_be_written_is_not_printed_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = written("json")
    stream.close()
    logs.logger("cudaops").info("x", token=TOKEN)
    logging.getLogger("cudaops").info("wrong %d", TOKEN)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("authorization: Basic dXNlcjpwdw==", "authorization: ***"),
        ("{'authorization': 'Bearer abc', 'host': 'h'}", "{'authorization': '***', 'host': 'h'}"),
        ("Cookie: a=b; c=d", "Cookie: ***"),
        ("got bearer abcdef, gone", "got bearer ***, gone"),
        (f"token {TOKEN} refused", "token *** refused"),
        ("postgresql://user:p@ss/w@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("http://:secret@proxy", "http://:***@proxy"),
        ("host=h password='two words' dbname=d", "host=h password=*** dbname=d"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": ***, "n": 1}'),
        ("GET /x?token=abc&y=1", "GET /x?token=***&y=1"),
        ("key nvapi-" + "a" * 40, "key ***"),
        ("sk-ant-api03-" + "b" * 40, "***"),
        ("AIza" + "c" * 35, "***"),
        ("ghp_" + "d" * 36, "***"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "***"),
    ],
)
def test_shapes_of_secrets_are_masked(text: str, left: str) -> None:
    assert Mask().text(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 1200, 3 tokens left",
        "cudaops_executor_call_duration_seconds_bucket{le=\"1\"}",
        "schema cudaops_service of postgresql://127.0.0.1:5432/cudaops",
        "the task-based scheduler at http://127.0.0.1:8080/jobs/1",
    ],
)  # fmt: skip
def test_plain_words_stay(text: str) -> None:
    assert Mask().text(text) == text


def test_names_of_fields_decide_too() -> None:
    masked = Mask().fields(
        {"X-Api-Key": "k", "CUDAOPS_TOKEN": "t", "max_tokens": 5, "idempotency_key": "i",
         "password": None, "key": SecretStr("s")}
    )  # fmt: skip
    assert masked == {
        "X-Api-Key": MASK, "CUDAOPS_TOKEN": MASK, "max_tokens": 5, "idempotency_key": "i",
        "password": None, "key": MASK,
    }  # fmt: skip


def test_every_secret_of_the_settings_is_known() -> None:
    fields = {
        name: field
        for name, field in Settings.model_fields.items()
        if "SecretStr" in str(field.annotation)
    }
    made = Settings.model_validate(
        {str(field.validation_alias): f"value-of-{name}" for name, field in fields.items()}
        | {"DATABASE_URL": "postgresql://u:p%40ss@h/d"}
    )
    known = secrets_of(made)
    assert {f"value-of-{name}" for name in fields if name != "database_url"} <= set(known)
    assert {"p%40ss", "p@ss", "postgresql://u:p%40ss@h/d"} <= set(known)


@dataclass
class Holder:
    """Something whose text holds what it was given."""

    held: str


def _say(place: str, secret: str) -> None:
    log, other = logs.logger("cudaops"), logging.getLogger("other")
    match place:
        case "event":
            log.info(f"before {secret} after")
        case "argument":
            other.warning("says %s twice %r", secret, secret)
        case "value":
            log.info("x", detail=f"<{secret}>")
        case "nested":
            log.info("x", data={"a": [{"b": (secret, {secret})}, b"." + secret.encode()]})
        case "name":
            log.info("x", data={secret: 1})
        case "object":
            log.info("x", data=Holder(secret), more=[Holder(secret)])
        case "exception":
            try:
                try:
                    raise KeyError(secret)
                except KeyError as inner:
                    raise RuntimeError(f"with {secret}") from inner
            except RuntimeError:
                other.exception("failed")
        case "bound":
            with logs.bound(request_id=secret):
                log.info("x")
        case "deep":
            log.info("x", data=json.loads("[" * 20 + json.dumps(secret) + "]" * 20))
        case _:
            log.info("x", data=json.dumps({"note": secret}))


PLACES = (
    "event", "argument", "value", "nested", "name", "object", "exception", "bound", "deep", "json",
)  # fmt: skip


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from (*_texts(key), *_texts(one))
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    else:
        yield str(value)


@settings(max_examples=examples(150), deadline=None)
@given(
    # The first characters keep a secret from being part of what a line says anyway.
    secret=st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=40).map(
        lambda text: "q9Zx" + text
    ),
    place=st.sampled_from(PLACES),
    form=st.sampled_from(("text", "json")),
)
def test_no_secret_comes_out_wherever_it_stands(
    secret: str, place: str, form: Literal["text", "json"]
) -> None:
    stream = written(form, secret)
    _say(place, secret)
    out = stream.getvalue()
    assert out
    spelled = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]}
    assert not [one for one in spelled if one in out]
    assert "q9Zx" not in out
    if form == "json":
        assert not [one for line in out.splitlines() for one in _texts(json.loads(line))
                    if secret in one]  # fmt: skip
