"""A language model's rewrites of a Triton kernel: asked one at a time, told what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from cudaops.agents.llm_developer import REASKS, first_messages
from cudaops.domain.judgement import Attempt
from cudaops.domain.model_use import ModelUse
from cudaops.domain.run import RunOptions
from cudaops.errors import InputError, ModelUnavailable, PrerequisiteError
from cudaops.graph.model_setup import CALLS, access_of, open_caller
from cudaops.models.caller import ModelCaller
from cudaops.models.journal import Journal
from cudaops.prompts.answers import MAX_ANSWER, title_and_why
from cudaops.prompts.prompt import render
from cudaops.prompts.text import answer_text, fenced_blocks
from cudaops.settings import Settings
from cudaops.triton.bench import TritonBench
from cudaops.triton.hygiene import why_refused
from cudaops.triton.worker_process import TensorBuffer

MAX_WORDS = 60
"""Outside of the code. Chosen: a title and a line."""


class Tried(NamedTuple):
    """A candidate that was judged, as the next question tells of it."""

    title: str
    outcome: str
    reason: str
    source: str


class Written(NamedTuple):
    """What a model's answer holds."""

    source: str
    title: str
    why: str


class Unusable(NamedTuple):
    """Why an answer is no rewrite."""

    why: str


class TritonWriter:
    """Asks the model of one run."""

    def __init__(self, caller: ModelCaller, say: Callable[[str], None]) -> None:
        self._caller, self._say = caller, say

    @property
    def proposer(self) -> str:
        """As records name it."""
        return f"llm:{self._caller.name.text}"

    def use(self, fell_back: str | None = None) -> ModelUse:
        """What was asked so far. `fell_back`: why no more was."""
        return self._caller.use(fell_back)

    def write(self, bench: TritonBench, tried: Sequence[Tried]) -> Written | Unusable:
        """A rewrite that `why_refused` has nothing against, or why the last of `REASKS` + 1 answers
        is none. Raises ModelUnavailable where no answer comes, or a budget is spent."""
        return asyncio.run(self._write(bench, tried))

    async def _write(self, bench: TritonBench, tried: Sequence[Tried]) -> Written | Unusable:
        kernel = bench.kernel.name
        system = render("triton_rules.j2", kernel=kernel, max_words=MAX_WORDS)
        source, launches = bench.program.module(kernel).strip(), launches_told(bench)
        user = render(
            "triton_task.j2", kernel=kernel, source=source, launches=launches, tried=tried
        )
        messages: list[BaseMessage] = [*first_messages(system, user)]
        scope, found = f"{len(tried) + 1:02d}", Unusable("nothing was asked")
        for _ in range(REASKS + 1):
            answer = await self._caller.ask("coder", messages, scope=scope)
            read = read_answer(answer.text, bench)
            if isinstance(read, Written):
                return read
            self._say(f"it goes back to the model: {read.why}")
            found = read
            again = f"This cannot be used: {read.why}. Give the complete answer in the same form."
            messages += [AIMessage(answer.text), HumanMessage(again)]
        return found


def open_writer(
    options: RunOptions, settings: Settings, deadline: float, say: Callable[[str], None]
) -> TritonWriter | str:
    """The model of the options, or in a line why it cannot be asked at all. Opens no connection.

    Raises InputError where its name, script or price is wrong.
    """
    try:
        journal = Journal(Path(options.out) / CALLS, access_of(settings).secrets)
        return TritonWriter(open_caller(options, settings, journal, deadline, say), say)
    except (ModelUnavailable, PrerequisiteError) as error:
        return f"no model is used: {error.problem} ({error.remedy})"


def tried_of(attempt: Attempt, source: str) -> Tried:
    """An attempt as the next question tells of it."""
    decided = attempt.judgement
    return Tried(attempt.title, decided.outcome, decided.reason, source)


def launches_told(bench: TritonBench) -> list[str]:
    """The captured launches that are judged: grid, arguments and meta-parameters, a line each."""
    lines = []
    for workload in bench.workloads:
        launch = workload.launch
        given = ", ".join(
            f"{name}={_argument(value, launch.buffers)}" for name, value in launch.args.items()
        )
        time = f", {launch.time_us:.1f} us" if launch.time_us is not None else ""
        metas = ", ".join(f"{n}={v}" for n, v in launch.options.items())
        lines.append(
            f"{launch.launches}x grid {launch.grid}{time}: {given}{f'; {metas}' if metas else ''}"
        )
    return lines


def _argument(value: dict[str, Any] | None, buffers: Sequence[TensorBuffer]) -> str:
    if value is None:
        return "None"
    if "buffer" not in value:
        return str(value.get("value", value.get("dtype")))
    buffer = buffers[value["buffer"]]
    return f"{buffer.element} tensor in {buffer.bytes} bytes"


def read_answer(text: str, bench: TritonBench) -> Written | Unusable:
    """The one rewrite that an answer holds."""
    if len(text) > MAX_ANSWER:
        return Unusable(f"it has {len(text):,} characters")
    answer = answer_text(text)
    kernel = bench.kernel.name
    blocks = [b for b in fenced_blocks(answer) if f"def {kernel}(" in b.text]
    if len(blocks) != 1:
        count = f"{len(blocks)} fenced blocks hold" if blocks else "no fenced block holds"
        return Unusable(f"{count} `def {kernel}(`; there must be one")
    source = blocks[0].text
    if blocks[0].is_open:
        return Unusable("its block is not closed; it seems cut off")
    try:
        problems = why_refused(source, "rewrite.py", bench.program, bench.kernel)
    except InputError as error:
        return Unusable(str(error))
    if problems:
        return Unusable("; ".join(problems[:3]))
    title, why = title_and_why(answer)
    return Written(source, title or "a rewrite", why or "by the model")
