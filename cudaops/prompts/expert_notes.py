"""Expert notes: a short brief on each of nineteen bottlenecks, given where a profile asks for it.

A prompt always holds the catalogue, a line a note; the full text only of the few that fired. The
texts lie in `expert/`, when each fires in `expert_triggers.py`, all of it in docs/expert-notes.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from cudaops.cuda.facts import Fact
from cudaops.cuda.rule import Severity, holds
from cudaops.domain.profile import Profile, Verdict
from cudaops.errors import InputError
from cudaops.prompts.expert_triggers import TRIGGERS, Cue, known_facts

MOST_FIRED = 5
"""Notes given in full at once: five of at most 320 tokens leave room in a prompt of 8,000."""

_FIELDS = ("id", "title", "signal", "subtypes", "sources")

_SEVEREST_FIRST: tuple[Severity, ...] = ("critical", "warning", "info")


class ExpertNote(NamedTuple):
    """A brief on one bottleneck, for whoever writes a rewrite."""

    id: str
    title: str
    signal: str
    """How a profile shows it, in one line."""
    subtypes: tuple[str, ...]
    """Verdict subtypes that it is about."""
    sources: tuple[str, ...]
    text: str
    """Markdown: signal, root causes by likelihood, fixes, anti-patterns."""


def catalogue() -> str:
    """A line for each note: id and signal. The same for every run."""
    return "\n".join(f"- {note.id}: {note.signal}" for note in _notes().values())


def fired(verdict: Verdict, profile: Profile) -> tuple[ExpertNote, ...]:
    """The notes that this verdict and these metrics call for, at most `MOST_FIRED`.

    First those on the verdict's subtype, then those on the other findings in their order, then
    those that metrics alone call for, by severity. `profile` is what the verdict was made of.
    """
    facts = known_facts(profile, verdict.roofline)
    subtypes = dict.fromkeys((verdict.subtype, *(each.subtype for each in verdict.findings)))
    ids = [note for subtype in subtypes for note in _on(subtype, facts)]
    found = tuple(dict.fromkeys((*ids, *_by_metrics(facts))))
    return tuple(_notes()[note] for note in found[:MOST_FIRED])


def read_note(note: str) -> ExpertNote:
    """A note by its id.

    Raises:
        InputError: there is none; names the nearest.
    """
    found = _notes().get(note)
    if found is None:
        near = difflib.get_close_matches(note, TRIGGERS, n=3, cutoff=0.0)
        raise InputError(f"there is no expert note `{note[:60]}`; nearest: {', '.join(near)}")
    return found


def all_notes() -> tuple[ExpertNote, ...]:
    """Every note, in the catalogue's order."""
    return tuple(_notes().values())


def _on(subtype: str, facts: Mapping[str, Fact]) -> Iterable[str]:
    """Notes that a finding of this subtype fires, those most about it first."""
    places = [
        (list(cue.subtypes).index(subtype), order, note)
        for order, (note, cues) in enumerate(TRIGGERS.items())
        for cue in cues
        if subtype in cue.subtypes and _all_hold(cue, facts)
    ]
    return [note for _, _, note in sorted(places)]


def _by_metrics(facts: Mapping[str, Fact]) -> Iterable[str]:
    """Notes that metrics alone fire, the severest first."""
    places = [
        (_SEVEREST_FIRST.index(cue.severity), order, note)
        for order, (note, cues) in enumerate(TRIGGERS.items())
        for cue in cues
        if not cue.subtypes and _all_hold(cue, facts)
    ]
    return [note for _, _, note in sorted(places)]


def _all_hold(cue: Cue, facts: Mapping[str, Fact]) -> bool:
    return all(holds(condition, facts.get(condition.fact)) for condition in cue.conditions)


@cache
def _notes() -> Mapping[str, ExpertNote]:
    folder = files("cudaops.prompts").joinpath("expert")
    return {name: _parsed(folder.joinpath(f"{name}.md").read_text("utf-8")) for name in TRIGGERS}


def _parsed(page: str) -> ExpertNote:
    """A note of its file: fields between two lines of `---`, then the text."""
    _, head, text = page.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    note, title, signal, subtypes, sources = (fields[name] for name in _FIELDS)
    return ExpertNote(
        note, title, signal, tuple(subtypes.split(", ")), tuple(sources.split("; ")), text.strip()
    )
