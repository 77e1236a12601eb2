"""The knowledge base, measured: whether a search finds what answers a question, and how fast.

    python benchmarks/knowledge.py              first and warm search, and their ratio
    python benchmarks/knowledge.py quality      the questions of knowledge_questions.toml

The ratio of first to warm does not depend on how fast the machine is. What was measured stands in
docs/knowledge.md.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cudaops.cuda.rules import RULES
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.cuda.verdict import limited_by
from cudaops.domain.profile import Verdict
from cudaops.domain.run import Citation
from cudaops.prompts.prompt import render
from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.knowledge import Knowledge

WARM_SEARCHES = 50
QUERY = "how to relieve it"
QUESTIONS = Path(__file__).with_name("knowledge_questions.toml")
REMEDY, REASON, COST = "What relieves it", "Why it happens", "What it costs, and when not to"


class Question(NamedTuple):
    """A question and the sections that answer it, as `note: heading`; none for a foreign one."""

    kind: str
    text: str
    answers: tuple[str, ...]
    subtype: str | None = None

    @property
    def held_back(self) -> bool:
        """Whether nobody tunes on it: one in three, by the hash of its text."""
        return hashlib.sha256(self.text.encode()).digest()[0] % 3 == 0


def verdict_questions() -> Iterator[Question]:
    """One a subtype, as the Research agent asks about a verdict whose first rule just fires."""
    for subtype, info in SUBTYPES.items():
        summary = "Limit unknown: no rule fired on 12 of the metrics that rules read."
        for rule in RULES:
            if rule.subtype == subtype:
                said = rule.text.format(*(f"{each.threshold:g}" for each in rule.conditions))
                summary = limited_by(rule.subtype, said)
                break
        verdict = Verdict(
            bottleneck_class=info.bottleneck_class, subtype=subtype, summary=summary,
            evidence=(), relief=info.relief, source="measured",
        )  # fmt: skip
        page = subtype.replace("_", "-")
        yield Question(
            "verdict",
            render("research_query.j2", verdict=verdict, kernel_text="", kernels=""),
            tuple(f"{page}: {heading}" for heading in (REMEDY, REASON, COST)),
            subtype,
        )


def questions() -> list[Question]:
    """All of them, foreign ones last."""
    table = tomllib.loads(QUESTIONS.read_text("utf-8"))
    asked = [
        Question(kind, text, tuple(answers))
        for kind in ("ncu", "people")
        for text, answers in table[kind].items()
    ]
    foreign = [Question("foreign", text, ()) for text in table["foreign"]["questions"]]
    return [*verdict_questions(), *asked, *foreign]


def sections(found: Sequence[Citation]) -> list[str]:
    """`note: heading` of each, each once, in order."""
    return list(dict.fromkeys(f"{each.note}: {each.heading}" for each in found))


def recall(question: Question, found: Sequence[str], k: int = 5) -> float:
    """Share of the answering sections among the first `k`."""
    return len(set(question.answers) & set(found[:k])) / len(question.answers)


def ndcg(question: Question, found: Sequence[str], k: int = 10) -> float:
    """Normalised discounted cumulative gain of the first `k` sections; each answer gains 1."""
    gains = (1 / math.log2(i + 2) for i, s in enumerate(found[:k]) if s in question.answers)
    return sum(gains) / sum(1 / math.log2(i + 2) for i in range(min(k, len(question.answers))))


def quality() -> None:
    """Print recall@5 and nDCG@10 by kind and third, remedies first, and abstentions."""
    asked = questions()
    with knowledge_base() as knowledge:
        report(asked, lambda q: sections(knowledge.search(q.text, 10, q.subtype)))


def report(asked: Sequence[Question], ask: Callable[[Question], list[str]]) -> None:
    """Ask every question and print the figures."""
    found = {question: ask(question) for question in asked}
    print(f"{'questions':24s} {'n':>4s}  recall@5  nDCG@10")
    for held_back in (False, True):
        part = [q for q in asked if q.held_back == held_back and q.answers]
        for kind in ("verdict", "ncu", "people", None):
            these = [q for q in part if kind in (None, q.kind)]
            at5 = statistics.fmean(recall(q, found[q]) for q in these)
            at10 = statistics.fmean(ndcg(q, found[q]) for q in these)
            name = f"{'held back' if held_back else 'tuned on'}, {kind or 'all'}"
            print(f"{name:24s} {len(these):4d}  {at5:8.3f} {at10:8.3f}")
    verdicts = [q for q in asked if q.subtype]
    first = sum(found[q][:1] == [q.answers[0]] for q in verdicts)
    cited = sum(q.answers[0] in found[q][:CITED] for q in verdicts)
    print(f"remedy first: {first} of {len(verdicts)} verdicts; among {CITED}: {cited}")
    foreign = [q for q in asked if q.kind == "foreign"]
    silent = sum(not found[q] for q in foreign)
    print(f"nothing found: {silent} of {len(foreign)} foreign questions")
    if "-v" in sys.argv:
        for q in asked:
            if not q.held_back and (recall(q, found[q]) < 1 if q.answers else found[q]):
                print(f"\n{q.text}\n  wants {q.answers}\n  got   {found[q][:5]}")


CITED = 5
"""Passages that the Research agent asks for."""


@contextmanager
def knowledge_base() -> Iterator[Knowledge]:
    """The built-in notes in a fresh embedded server, with the static vectors."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="cudaops-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        knowledge = Knowledge.open(
            database_url=None, data_folder=folder, embedder=WordLlamaEmbedder()
        )
        try:
            yield knowledge
        finally:
            knowledge.close()


def first_and_warm() -> None:
    """Print first, warm and their ratio."""
    started = time.perf_counter()
    with knowledge_base() as knowledge:
        opened = time.perf_counter() - started
        times = []
        for _ in range(1 + WARM_SEARCHES):
            started = time.perf_counter()
            knowledge.search(QUERY, 5, "l1_load_throughput")
            times.append(time.perf_counter() - started)
    warm = statistics.median(times[1:])
    print(f"open (initdb and start) {opened:.2f} s")
    print(f"first search (ingests)  {times[0]:.2f} s")
    print(f"warm search, median     {1e3 * warm:.1f} ms")
    print(f"first / warm            {times[0] / warm:.0f}")


if __name__ == "__main__":
    quality() if "quality" in sys.argv else first_and_warm()
