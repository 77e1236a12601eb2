"""The host's own model, asked by MCP sampling, as something that may be asked from any thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING

import anyio.from_thread
import mcp.types as mt
from fastmcp import Context
from mcp.shared.exceptions import McpError

from cudaops.errors import ModelUnavailable

if TYPE_CHECKING:
    from cudaops.models.host import HostAnswer, HostModel, HostQuestion

CANNOT_SAMPLE = (
    "the host's model is not asked: {client} does not offer MCP sampling; recipes propose"
)
ALLOW = "allow sampling for this server in the host, or ask for optimizer=recipes"


def host_model(context: Context) -> HostModel | str:
    """The host's model, or why it cannot be asked, in one line. Call it in a tool's thread."""
    from cudaops.models.host import HostModel

    session = context.session
    told = session.client_params
    client = told.clientInfo.name if told else "this host"
    wanted = mt.ClientCapabilities(sampling=mt.SamplingCapability())
    if not session.check_client_capability(wanted):
        return CANNOT_SAMPLE.format(client=client)
    loop = anyio.from_thread.run_sync(asyncio.get_running_loop)
    request = context.request_id

    async def sampled(question: HostQuestion) -> HostAnswer:
        return await _sampled(context, question, request)

    def ask(question: HostQuestion) -> Future[HostAnswer]:
        return asyncio.run_coroutine_threadsafe(sampled(question), loop)

    return HostModel(ask=ask, client=client)


async def _sampled(context: Context, question: HostQuestion, request: str) -> HostAnswer:
    """One request. Raises ModelUnavailable where the host refuses or gives no text."""
    from cudaops.models.host import HostAnswer

    messages = [
        mt.SamplingMessage(role=turn.role, content=mt.TextContent(type="text", text=turn.text))
        for turn in question.turns
    ]
    try:
        answer = await context.session.create_message(
            messages,
            max_tokens=question.max_tokens,
            system_prompt=question.system or None,
            include_context="none",
            related_request_id=request,
        )
    except McpError as error:
        said = error.error.message.splitlines()[0][:200] if error.error.message else "no reason"
        raise ModelUnavailable(f"the host refused to ask its model: {said}", ALLOW) from error
    if not isinstance(answer.content, mt.TextContent):
        raise ModelUnavailable(
            f"the host's model answered with {answer.content.type}, not with text", ALLOW
        )
    return HostAnswer(answer.content.text, answer.model, answer.stopReason == "maxTokens")
