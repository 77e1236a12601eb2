"""The knowledge base, measured: whether a search finds what answers a question, and how fast.

    python benchmarks/knowledge.py              first and warm search, and their ratio
    python benchmarks/knowledge.py quality      knowledge_questions.toml; -v: what missed;
                                                --recommended: with those packages added
    python benchmarks/knowledge.py classes      what Research cites for benchmarks/classes/*.cu with
                                                the recommended packages added
    python benchmarks/knowledge.py sizes [N]    searches among 1,000 to N (500,000) passages; Linux

The ratio of first to warm does not depend on how fast the machine is. What was measured stands in
docs/knowledge.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cudaops.agents.research import research
from cudaops.agents.tools import Toolbox
from cudaops.cuda.rules import RULES
from cudaops.cuda.subtypes import SUBTYPES
from cudaops.cuda.verdict import limited_by
from cudaops.domain.profile import Verdict
from cudaops.domain.program import SourceFile
from cudaops.domain.run import Citation, ResearchFindings
from cudaops.mcp_servers.knowledge import build_server
from cudaops.program.parse import parse_files
from cudaops.prompts.prompt import render
from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.knowledge import Knowledge
from cudaops.rag.notes import COST, REASON, REMEDY, Note, builtin_notes
from cudaops.rag.packages import PREFIX, RECOMMENDED
from cudaops.rag.retrieval import DEFAULT_WEIGHTS, Weights, search

WARM_SEARCHES = 50
QUERY = "how to relieve it"
QUESTIONS = Path(__file__).with_name("knowledge_questions.toml")


KINDS = ("verdict", "ncu", "people", "threads", "fresh", "fresh_ncu", "fresh2", "fresh3")
FOREIGN = ("foreign", "near", "fresh_foreign", "fresh2_foreign", "fresh3_foreign")
PARTS = ("tuned on", "held back", "fresh", "fresh2", "fresh3")


class Question(NamedTuple):
    """A question and the sections that answer it, as `note: heading`; none for a foreign one."""

    kind: str
    text: str
    answers: tuple[str, ...]
    subtype: str | None = None

    @property
    def part(self) -> str:
        """One of PARTS: who may look at it. One in three is held back, by the hash of its text."""
        if self.kind.startswith("fresh"):
            return self.kind.partition("_")[0]
        third = hashlib.sha256(self.text.encode()).digest()[0] % 3 == 0
        return "held back" if third else "tuned on"


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
        for kind in KINDS
        if kind != "verdict"
        for text, answers in table[kind].items()
    ]
    foreign = [Question(kind, text, ()) for kind in FOREIGN for text in table[kind]["questions"]]
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


RANKINGS = {
    "vectors": Weights(0, 1, floor=False),
    "words": Weights(1, 0, floor=False),
    "fused": Weights(floor=False),
    "with floor": DEFAULT_WEIGHTS,
}


Found = dict[Question, list[str]]
"""Sections found for each question, best first."""


def quality() -> None:
    """Print how good searches are: by vectors, by words, by both, and with the floor."""
    asked = questions()
    with knowledge_base() as knowledge:
        knowledge.search(QUERY, 1)
        for each in RECOMMENDED if "--recommended" in sys.argv else ():
            print(knowledge.add(PREFIX + each.name, only=each.only).origin)
        store, embedder = knowledge._store, knowledge._embedder
        found = {
            name: {
                q: sections(search(store, embedder, q.text, 10, q.subtype, weights=weights))
                for q in asked
            }
            for name, weights in RANKINGS.items()
        }
        report(asked, found)
        remedies(knowledge, [q for q in asked if q.subtype])
    if "-v" in sys.argv:
        explain(asked, found["with floor"])


def remedies(knowledge: Knowledge, verdicts: Sequence[Question]) -> None:
    """Print for how many verdicts the Research agent's search brings what it should, in order."""
    cited = {q: sections(knowledge.search(q.text, CITED, q.subtype)) for q in verdicts}
    first = sum(cited[q][0] == q.answers[0] for q in verdicts)
    ordered = sum(in_order(q, cited[q]) for q in verdicts)
    print(f"remedy first: {first} of {len(verdicts)} verdicts; then why, then cost: {ordered}")
    bare = sum(sections(knowledge.search(q.text, 1)) == [q.answers[0]] for q in verdicts)
    print(f"remedy first without naming the subtype: {bare} of {len(verdicts)}")


def report(asked: Sequence[Question], found: dict[str, Found]) -> None:
    """Print recall@5 and nDCG@10 of each ranking, and abstentions."""
    print(f"{'':22s} {'n':>4s}" + "".join(f"  {name:>12s}" for name in found))
    for part in PARTS:
        for kind in (*KINDS, None):
            these = [q for q in asked if q.answers and q.part == part and kind in (None, q.kind)]
            if not these:
                continue
            line = f"{part + ', ' + (kind or 'all'):22s} {len(these):4d}"
            for got in found.values():
                at5 = statistics.fmean(recall(q, got[q]) for q in these)
                at10 = statistics.fmean(ndcg(q, got[q]) for q in these)
                line += f"  {at5:6.3f} {at10:5.3f}"
            print(line)
    got = found["with floor"]
    for kind in FOREIGN:
        for part in PARTS:
            silent = [not got[q] for q in asked if (q.kind, q.part) == (kind, part)]
            if silent:
                print(f"nothing found for {sum(silent)} of {len(silent)} {kind} questions, {part}")


def in_order(question: Question, found: Sequence[str]) -> bool:
    """Whether all answers are there, in the order of the question's."""
    return [each for each in found if each in question.answers] == list(question.answers)


def explain(asked: Sequence[Question], found: Found) -> None:
    """Print what missed, of the questions that may be looked at."""
    for q in asked:
        if q.part != "held back" and (recall(q, found[q]) < 1 if q.answers else found[q]):
            print(f"\n[{q.kind}] {q.text}\n  wants {q.answers}\n  got   {found[q][:5]}")


def classes() -> None:
    """Print what Research cites of the recommended packages, a kernel a line.

    Each kernel is profiled on `cpu` and looked up by the agent itself; nothing is rewritten.
    """
    programs = sorted(Path(__file__).with_name("classes").glob("*.cu"))
    asked = [(profiled(program), kernel_of(program)) for program in programs]
    with knowledge_base() as knowledge:
        for each in RECOMMENDED:
            knowledge.add(PREFIX + each.name, only=each.only)
        found = asyncio.run(looked_up(knowledge, asked))
    for program, (verdict, _), findings in zip(programs, asked, found, strict=True):
        theirs = [f"{one.heading} | {one.source}" for one in findings.citations if "/" in one.note]
        print(f"| {program.stem} | {verdict.subtype} | {'; '.join(theirs) or 'none |'} |")
    cited = sum(any("/" in one.note for one in each.citations) for each in found)
    print(f"{cited} of {len(programs)} cite one")


def profiled(program: Path) -> Verdict:
    """What limits its kernel on `cpu`."""
    command = [sys.executable, "-m", "cudaops", "profile", str(program), "--executor", "cpu"]
    said = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, check=True).stdout
    return Verdict.model_validate(json.loads(said)["verdict_detail"])


def kernel_of(program: Path) -> str:
    """The text of its kernel."""
    files = (SourceFile(path=program.name, text=program.read_text("utf-8")),)
    (kernel,) = parse_files(program.name, files).kernels
    return kernel.text


async def looked_up(
    knowledge: Knowledge, asked: Sequence[tuple[Verdict, str]]
) -> list[ResearchFindings]:
    """What the Research agent finds for verdicts and kernels."""
    async with Toolbox({"knowledge": build_server(lambda: knowledge)}) as toolbox:
        return [await research(toolbox, verdict, kernel) for verdict, kernel in asked]


SIZES = (1_000, 10_000, 100_000, 500_000)

ROUNDS = 2
"""Of all questions; the first is not timed: it reads pages from disk and plans statements."""


def sizes() -> None:
    """Print ingest rate and time of a search by the number of passages.

    The passages are words drawn from the built-in notes by their frequency, 120 each, with a seed:
    every question finds its words everywhere, which is the worst that a real source could do. A
    size is reached by adding one source. Processor time is that of this process and of the server:
    other work on the machine moves it less than the time of day.
    """
    asked = [q for q in questions() if q.answers]
    words = " ".join(note.body for note in builtin_notes()).split()
    draw = random.Random(1)
    most = next((int(word) for word in sys.argv if word.isdigit()), SIZES[-1])
    with knowledge_base() as knowledge:
        knowledge.search(QUERY, 1)
        passages = 0
        for size in (each for each in SIZES if each <= most):
            origin, new = f"/drawn/{size}", size - passages
            notes = [drawn(origin, i, words, draw) for i in range(new // 20)]
            passages = size
            clock = Clock(knowledge)
            knowledge._store.sync(origin, notes, knowledge._embedder)
            print(
                f"{size:8,d} passages: ingest {new / clock.wall_s:.0f} a second, {clock.per(new)}"
            )
            times: list[float] = []
            for _ in range(ROUNDS):
                times.clear()
                clock = Clock(knowledge)
                for question in asked:
                    started = time.perf_counter()
                    knowledge.search(question.text, CITED, question.subtype)
                    times.append(1e3 * (time.perf_counter() - started))
            ordered = sorted(times)
            print(
                f"{'':18s} {len(times)} searches, median {statistics.median(times):.1f} ms,"
                f" p95 {ordered[int(0.95 * len(times))]:.1f} ms, most {ordered[-1]:.1f} ms,"
                f" {clock.per(len(times))}",
                flush=True,
            )


class Clock:
    """Time since it was made, and the processor's time that it took here and in the server."""

    def __init__(self, knowledge: Knowledge) -> None:
        folder = Path(knowledge.status().database.removeprefix("embedded in "))
        self._server = int(next(folder.glob("*/postmaster.pid")).read_text().split()[0])
        self._started = time.perf_counter(), time.process_time(), self._server_s()

    @property
    def wall_s(self) -> float:
        """Seconds by the clock."""
        return time.perf_counter() - self._started[0]

    def per(self, n: int) -> str:
        """Processor time each of `n` things took, and the load average."""
        client_ms = 1e3 * (time.process_time() - self._started[1]) / n
        server_ms = 1e3 * (self._server_s() - self._started[2]) / n
        return (
            f"processor {client_ms:.2f} ms here and {server_ms:.2f} ms in the server each,"
            f" load average {os.getloadavg()[0]:.1f}"
        )

    def _server_s(self) -> float:
        """Of the postmaster, of its children that ended, and of those that run."""
        ticks = 0
        for process in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = process.read_text().rsplit(")", 1)[1].split()
            except OSError:  # it ended
                continue
            if int(process.parent.name) == self._server:
                ticks += sum(map(int, fields[11:15]))
            elif int(fields[1]) == self._server:
                ticks += sum(map(int, fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")


def drawn(origin: str, number: int, words: Sequence[str], draw: random.Random) -> Note:
    """A document of twenty sections of drawn words."""
    body = "\n\n".join(
        f"## {' '.join(draw.choices(words, k=4))}\n{' '.join(draw.choices(words, k=120))}"
        for _ in range(20)
    ).replace("```", "")
    name = f"{number}.md"
    return Note(f"{origin}/{name}", origin, "document", name, (), (), (name,), body, "documents")


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
    modes = {"quality": quality, "classes": classes, "sizes": sizes}
    next((modes[word] for word in sys.argv if word in modes), first_and_warm)()
