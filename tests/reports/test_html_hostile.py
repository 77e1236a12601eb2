"""Text of unknown origin in every field of a record: none of it becomes markup."""

from __future__ import annotations

import re
import types
import typing
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cudaops.domain.execution import CompileFailed
from cudaops.domain.run import Event, RunRecord
from cudaops.reports import html
from cudaops.reports.recording import RecordedTrial, read_recording
from tests.reports import records

RECORDED = Path(__file__).parents[2] / "examples" / "recorded"
HOSTILE = {
    "script": "<script>alert(1)</script>",
    "style": "</style></title></svg></code></pre><img src=x onerror=alert(1)>",
    "attribute": "\" onload=\"alert(1)\" ' onfocus='alert(1)' autofocus=",
    "template": "{{ record }} {% raw %} ${7*7} <!-- r-report ends --> ]]> &lt;b&gt; &#60;",
    "direction": "a\u202e\u2066b\u2069\u200f\u200b\ufeff\x00\x1b[31m\x9b\u2028c",
}
BENIGN = "w"


def spoilt(value: Any, text: str, annotation: Any = str) -> Any:
    """The value with every free text in it replaced; words of a closed list stay."""
    if isinstance(value, BaseModel):
        hints = typing.get_type_hints(type(value), include_extras=False)
        changed = {name: spoilt(getattr(value, name), text, hints[name]) for name in hints
                   if name in type(value).model_fields}  # fmt: skip
        return value.model_copy(update=changed)
    if isinstance(value, str):
        return value if is_closed(annotation) else text
    if isinstance(value, tuple):
        return tuple(spoilt(item, text, inner(annotation)) for item in value)
    if isinstance(value, dict):
        changed = {key: spoilt(item, text, inner(annotation)) for key, item in value.items()}
        sample = next(iter(changed.values()), None)
        return changed if sample is None else {**changed, text: sample}
    return value


def is_closed(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(is_closed(part) for part in typing.get_args(annotation))
    return typing.get_origin(annotation) is typing.Literal


def inner(annotation: Any) -> Any:
    """Of what a tuple or a dict holds."""
    for part in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(part) in (tuple, dict):
            arguments = typing.get_args(part)
            return arguments[0] if typing.get_origin(part) is tuple else arguments[1]
    return str


class Shape(HTMLParser):
    """Tags with the names of their attributes: what a document is, whatever it says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.shape: list[Any] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # How many parts a line of code has depends on its characters.
        if dict(attrs).get("class") != "r-codepoint":
            self.shape.append((tag, tuple(name for name, _ in attrs)))

    def handle_comment(self, data: str) -> None:
        self.shape.append(("comment", data))

    def handle_data(self, data: str) -> None:
        self.text += data


def everything() -> tuple[RunRecord, list[Event], html.Beside]:
    """A record in which every part is there."""
    recording = read_recording(RECORDED / "dialogues" / "invert8")
    assert recording.record is not None
    record, full = recording.record, records.provisional()
    failed = CompileFailed(message="m", location=None, log="log")
    first, *others = record.attempts
    unbuilt = first.model_copy(update={"failure": failed})
    record = record.model_copy(
        update={"attempts": (unbuilt, *others), "notices": ("n",), "research": full.research,
                "tools": {"g++": "12"}}
    )  # fmt: skip
    told = recording.events[0].model_copy(
        update={"kind": "finished", "stage": "profiler", "data": {
            "subtype": "s", "bottleneck_class": "c", "summary": "s", "provenance": "p",
            "time_us": 3.0, "evidence": [{"label": "l", "value": 1.0, "unit": "u"}]}}
    )  # fmt: skip
    beside = html.beside_of(recording)._replace(damage=("d",))
    return record, [told], beside


def rendered(text: str) -> str:
    record, events, beside = everything()
    hostile_events = [
        event.model_copy(
            update={"data": {**event.data, "subtype": text, "summary": text, "provenance": text,
                             "bottleneck_class": text,
                             "evidence": [{"label": text, "value": 1.0, "unit": text}]}}
        )
        for event in events
    ]  # fmt: skip
    trial = RecordedTrial(values={text: 1}, time_us=None, failure=text)
    patch = f"--- a/{text}\n+++ b/k.cu\n@@ -1 +1 @@\n-{text}\n+{text}\n".replace("\u2028", "")
    beside = html.Beside({1: (trial,)}, patch, html.CertificateView(None, text), (text,))
    return html.document(spoilt(record, text), hostile_events, beside)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_becomes_markup(name: str) -> None:
    text = HOSTILE[name]
    hostile, benign = Shape(rendered(text)), Shape(rendered(BENIGN))
    assert hostile.shape == benign.shape
    hidden = {c for c in hostile.text if unicodedata.category(c).startswith("C") and c != "\n"}
    assert not hidden, "a reader sees every character that is there"
    if name != "direction":
        assert hostile.text.count(text) > 20, "it is shown, as text"
    else:
        assert "U+202E" in hostile.text
        assert "U+001B" in hostile.text


def renumbered(value: Any, number: float) -> Any:
    """The value with every fraction in it replaced."""
    if isinstance(value, BaseModel):
        names = type(value).model_fields
        return value.model_copy(
            update={name: renumbered(getattr(value, name), number) for name in names}
        )
    if isinstance(value, float):
        return number
    if isinstance(value, tuple):
        return tuple(renumbered(item, number) for item in value)
    if isinstance(value, dict):
        return {key: renumbered(item, number) for key, item in value.items()}
    return value


@pytest.mark.parametrize(
    "number", [0.0, -1.0, 1e-300, 1e300, float("nan"), float("inf"), float("-inf")]
)
def test_no_number_breaks_it(number: float) -> None:
    record, events, beside = everything()
    data = {**events[0].data, "time_us": number, "evidence": 5}
    told = [events[0].model_copy(update={"data": data})]
    trial = RecordedTrial(values={"BM": 1}, time_us=number, failure=None)
    text = html.document(renumbered(record, number), told, beside._replace(trials={1: (trial,)}))
    for chart in text.split("<svg ")[1:]:
        drawn = chart.split("</svg>")[0].split("</desc>")[-1]
        places = re.findall(r' (?:[xy]|cx|cy|d|width|points)="([^"]*)"', drawn)
        assert places
        assert not [p for p in places if "nan" in p or "inf" in p or "None" in p]


def test_the_test_itself_reaches_the_fields() -> None:
    record, *_ = everything()
    found = spoilt(record, "HOSTILE")
    assert found.outcome == record.outcome
    assert found.reason == found.options.source == "HOSTILE"
    assert found.attempts[0].judgement.gates[0].summary == "HOSTILE"
    assert found.attempts[0].judgement.gates[0].name == "hygiene"
    assert found.profile.baseline.hot_lines[0].location.file == "HOSTILE"
    assert found.best.plan.launches[0].args[0] == "HOSTILE"
