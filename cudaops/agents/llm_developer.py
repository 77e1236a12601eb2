"""The developer that is a language model: plans, writes, mends, and says what was learnt; it may
look things up with tools before it answers.

Roles are prompts (`cudaops.prompts.roles`) and the functions here; what a model answers is text
until it was read (`cudaops.prompts.answers`), compiled and judged."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from cudaops.agents.developer import Plan, RunView, Written
from cudaops.agents.tools import Toolbox
from cudaops.domain.hypothesis import Hypothesis
from cudaops.domain.judgement import Attempt
from cudaops.domain.model_use import ModelRole
from cudaops.domain.model_use import ModelRole as Role
from cudaops.domain.rewrite import Rewrite
from cudaops.errors import InputError
from cudaops.executors.ledger import LEDGER
from cudaops.gates.precheck import Precheck
from cudaops.mcp_servers.sandbox import StrippedProgram
from cudaops.models.caller import ModelCaller
from cudaops.models.journal import Journal
from cudaops.program.fingerprint import near_duplicate
from cudaops.program.plans import make_rewrite
from cudaops.prompts.answers import CoderAnswer, Unusable, read_rewrite, unusable
from cudaops.prompts.digests import read_digest
from cudaops.prompts.hypotheses import read_hypotheses, read_lesson, read_nothing
from cudaops.prompts.prompt import Prompt
from cudaops.prompts.roles import (
    Briefing,
    coder_prompt,
    fixer_prompt,
    planner_prompt,
    reask,
    reasoner_prompt,
    reflector_prompt,
)
from cudaops.prompts.text import fenced

Result = TypeVar("Result")

TOOLS = {
    "knowledge": ("search_knowledge", "read_note", "read_expert_note"),
    "profiler": ("explain_metric",),
    "sandbox": ("compile_rewrite",),
}
"""What a model may call while it writes, by server. Nothing here times or judges: what a candidate
is worth is found out after the answer."""

SERVERS: Mapping[Role, tuple[str, ...]] = {
    "planner": ("knowledge", "profiler"), "coder": tuple(TOOLS), "fixer": tuple(TOOLS),
}  # fmt: skip
"""Whose tools a role may call: who plans has nothing to compile."""
TOOL_CALLS = 4
"""Calls a model may make before one answer. Chosen: a search, a note and two compiles; what it
does not know then it will not find by asking more."""

TOOL_CHARACTERS = 4000
"""Longest result a model is shown, some 1,000 tokens: five such results fit beside a prompt."""

NO_MORE = "No further tool call is possible. Give the complete answer now, in the requested form."

REASKS = 2
"""How often an answer that cannot be used is asked for again. Chosen: a model that misses the form
three times will miss it a fourth time; every try is paid for."""
FIXES = 2
"""How often one rewrite that the precheck refuses is fixed before it is given up. Chosen: as
`REASKS`."""


class _Writing(NamedTuple):
    """One hypothesis being written."""

    view: RunView
    briefing: Briefing
    hypothesis: Hypothesis
    scope: str


@dataclass(frozen=True, kw_only=True)
class ModelDeveloper:
    """Implements `cudaops.agents.developer.Developer` with one chat model."""

    model: str
    """Name as the user gave it; `Rewrite.proposer` is `llm:` and this."""
    conversation: Conversation
    toolbox: Toolbox
    journal: Journal
    brief: Callable[[RunView], Briefing]
    """What prompts are made of, with all that does not change in a run filled in."""
    beside: Callable[[str], str]
    """A rewrite's text as it is beside the author's program."""
    say: Callable[[str], None]

    async def plan(self, view: RunView, wanted: int, scope: str) -> Plan:
        """Hypotheses; none where no usable answer came. Raises ModelUnavailable."""

        briefing = self.brief(view)

        async def read(text: str) -> Plan | Unusable:
            found = read_hypotheses(text, wanted, briefing.transformations)
            if isinstance(found, Unusable):
                return found
            return Plan(found, "" if found else read_nothing(text))

        found = await self._answer("planner", planner_prompt(briefing, wanted), scope, read)
        if isinstance(found, Unusable):
            return Plan(())
        if found.nothing:
            self.say(f"the planner has no hypothesis: {found.nothing}")
        return found

    async def write(
        self,
        view: RunView,
        hypothesis: Hypothesis,
        scope: str,
        parents: tuple[Rewrite, ...] = (),
    ) -> Written:
        """One rewrite, compiled and fixed within bounds. Raises ModelUnavailable."""
        self.say(f"the model writes {hypothesis.title}: {hypothesis.why}")
        writing = _Writing(view, self.brief(view), hypothesis, scope)
        prompt = coder_prompt(writing.briefing, hypothesis, parents)
        return await self._written(writing, "coder", prompt)

    async def mend(
        self, view: RunView, hypothesis: Hypothesis, rewrite: Rewrite, gate: str, scope: str
    ) -> Written:
        """The same rewrite without what a gate refused it for. Raises ModelUnavailable."""
        self.say(f"the model fixes {rewrite.title}: {gate}")
        writing = _Writing(view, self.brief(view), hypothesis, scope)
        prompt = fixer_prompt(writing.briefing, hypothesis, rewrite.source, gate, "")
        return await self._written(writing, "fixer", prompt)

    async def reflect(self, view: RunView, attempt: Attempt, scope: str) -> str:
        """One line on what an attempt taught; empty where the model has none. Raises
        ModelUnavailable."""
        prompt = reflector_prompt(self.brief(view), attempt)
        messages = first_messages(prompt.system, prompt.user)
        return read_lesson((await self.conversation.ask("reflector", messages, scope)).text)

    async def digest(self, view: RunView, scope: str) -> str:
        """What the passages found come to for the kernel; empty where no sentence of the answer
        names one. Raises ModelUnavailable."""
        briefing = self.brief(view)
        if briefing.research is None or briefing.verdict is None:
            return ""
        prompt = reasoner_prompt(briefing)
        messages = first_messages(prompt.system, prompt.user)
        answer = (await self.conversation.ask("reasoner", messages, scope)).text
        return read_digest(answer, briefing.research.citations)

    async def _answer(
        self,
        role: Role,
        prompt: Prompt,
        scope: str,
        read: Callable[[str], Awaitable[Result | Unusable]],
    ) -> Result | Unusable:
        """What was read of the answer, asked for again where it cannot be used; else why not."""
        messages = first_messages(prompt.system, prompt.user)
        reply = await self.conversation.ask(role, messages, scope, servers=SERVERS.get(role, ()))
        for left in range(REASKS, -1, -1):
            found = await read(reply.text)
            if not isinstance(found, Unusable):
                return found
            refused = found
            self.say(f"the {role}'s answer cannot be used: {refused.detail}")
            if left:
                again = (*reply.messages, HumanMessage(reask(refused.reask)))
                reply = await self.conversation.ask(role, again, scope)
        return refused._replace(detail=f"no usable answer in {REASKS + 1} tries: {refused.detail}")

    async def _draft(self, writing: _Writing, role: Role, prompt: Prompt) -> CoderAnswer | Unusable:
        async def read(text: str) -> CoderAnswer | Unusable:
            return await self._drafted(writing, text)

        return await self._answer(role, prompt, writing.scope, read)

    async def _drafted(self, writing: _Writing, text: str) -> CoderAnswer | Unusable:
        view, briefing = writing.view, writing.briefing
        found = read_rewrite(
            text,
            kernel=view.kernel,
            allow_libraries=briefing.allow_libraries,
            allow_ptx=briefing.allow_ptx,
            authors_ptx=briefing.authors_ptx,
            device=briefing.device,
        )
        if isinstance(found, CoderAnswer):
            draft = found
        elif found.kind != "whole_program":
            return found
        else:
            try:
                stripped = await self.toolbox.call(
                    "sandbox", "strip_program", StrippedProgram, {"text": found.program}
                )
            except InputError as refusal:
                detail = f"a complete program without usable kernels: {refusal}"
                return found._replace(detail=detail)
            self.say(
                "the answer is a complete program: its kernels are used, its host code is ignored"
            )
            draft = CoderAnswer(stripped.source, "kernels of a whole program", found.detail)
        draft = draft._replace(source=self.beside(draft.source))
        twin = near_duplicate(draft.source, view.sources)
        if twin is None:
            return draft
        return unusable("repeated", f"this is {twin.label} again but for names, comments or layout")

    async def _written(self, writing: _Writing, role: Role, prompt: Prompt) -> Written:
        """The answer once the precheck finds nothing. What still does not build or apply after the
        last fix is given up, and no candidate; what is only wrong is for the judge to say."""
        hypothesis, scope = writing.hypothesis, writing.scope
        draft = await self._draft(writing, role, prompt)
        if isinstance(draft, Unusable):
            return Written(None, hypothesis.family, draft.detail)
        report = await self._precheck(scope, draft.source)
        for _ in range(FIXES):
            if report.ok:
                break
            where = f"{report.location}: " if report.location else ""
            self.say(f"it goes back to the model: {where}{report.message}")
            prompt = fixer_prompt(
                writing.briefing, hypothesis, draft.source, where + report.message, report.log
            )
            fixed = await self._draft(writing, "fixer", prompt)
            if isinstance(fixed, Unusable):
                break
            draft = fixed
            report = await self._precheck(scope, draft.source)
        problem = None if report.ok else report.message
        if problem is not None and report.stage != "results":
            return Written(None, hypothesis.family, problem)
        return Written(self._rewrite(draft, hypothesis), hypothesis.family, problem)

    def _rewrite(self, draft: CoderAnswer, hypothesis: Hypothesis) -> Rewrite:
        return make_rewrite(
            draft.source,
            f"llm:{self.model}",
            draft.title or hypothesis.title,
            draft.why or hypothesis.why,
        )

    async def _precheck(self, scope: str, source: str) -> Precheck:
        """Journalled: the log goes into the next prompt, which must be the same on a resume."""
        arguments = {"source": source}
        known = self.journal.recall_tool(scope, "compile_rewrite:report", arguments)
        if known is not None:
            return Precheck.model_validate_json(known)
        try:
            report = await self.toolbox.call("sandbox", "compile_rewrite", Precheck, arguments)
        except InputError as refusal:
            report = Precheck(ok=False, stage="text", message=str(refusal))
        self.journal.record_tool(
            scope, "compile_rewrite:report", arguments, report.model_dump_json()
        )
        return report


class Reply(NamedTuple):
    """A model's answer and the dialogue that led to it, to go on from."""

    text: str
    messages: tuple[BaseMessage, ...]


class Conversation:
    """Asks one model in one run. Tool results are journalled as answers are, so that a run that is
    resumed says the same things again and pays for none of them."""

    def __init__(
        self, caller: ModelCaller, toolbox: Toolbox, journal: Journal, say: Callable[[str], None]
    ) -> None:
        self._caller = caller
        self._toolbox = toolbox
        self._journal = journal
        self._say = say
        self._schemas: dict[tuple[str, ...], tuple[dict[str, Any], ...]] = {}

    async def ask(
        self,
        role: ModelRole,
        messages: Sequence[BaseMessage],
        scope: str,
        *,
        servers: Sequence[str] = (),
    ) -> Reply:
        """The model's answer, after at most `TOOL_CALLS` calls of these servers' tools.

        Raises ModelUnavailable where no answer comes or no money is left.
        """
        dialogue = list(messages)
        schemas = await self._tools(tuple(servers)) if servers else ()
        left = TOOL_CALLS if servers else 0
        while True:
            with LEDGER.working("the model"):
                answer = await self._caller.ask(
                    role, dialogue, scope=scope, tools=schemas if left else ()
                )
            if not answer.tool_calls or not left:
                return Reply(answer.text, (*dialogue, AIMessage(answer.text)))
            dialogue.append(answer.message)
            for call in answer.tool_calls:
                text = NO_MORE
                if left:
                    left -= 1
                    text = fenced(await self.tool(scope, call["name"], call["args"]))
                dialogue.append(ToolMessage(text, tool_call_id=call["id"] or call["name"]))
            if not left:
                dialogue.append(HumanMessage(NO_MORE))

    async def tool(self, scope: str, name: str, arguments: dict[str, Any]) -> str:
        """The result of a tool as a model sees it, from the journal where it was called before."""
        known = self._journal.recall_tool(scope, name, arguments)
        if known is not None:
            return known
        server = next((server for server, names in TOOLS.items() if name in names), None)
        if server is None:
            offered = ", ".join(name for names in TOOLS.values() for name in names)
            return f"there is no tool {name!r}; there are {offered}"
        self._say(f"the model calls {name} {_short(arguments)}")
        result = await self._toolbox.ask(server, name, arguments)
        text = ("refused: " if result.failed else "") + result.text
        if len(text) > TOOL_CHARACTERS:
            text = text[:TOOL_CHARACTERS] + f"\n(cut after {TOOL_CHARACTERS} characters)"
        self._journal.record_tool(scope, name, arguments, text)
        return text

    async def _tools(self, servers: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
        if servers not in self._schemas:
            wanted = {server: TOOLS[server] for server in servers}
            self._schemas[servers] = await self._toolbox.schemas(wanted)
        return self._schemas[servers]


def first_messages(system: str, user: str) -> tuple[BaseMessage, ...]:
    """The start of a dialogue."""
    return (SystemMessage(system), HumanMessage(user))


def _short(arguments: dict[str, Any]) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
