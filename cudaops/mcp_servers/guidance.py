"""The edge of every server: our errors as answers, and what to do instead of a wrong call."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

import mcp.types as mt
from fastmcp.exceptions import NotFoundError, PromptError, ResourceError, ToolError, ValidationError
from fastmcp.prompts import PromptResult
from fastmcp.resources import ResourceResult
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from pydantic import ValidationError as WrongArguments

from cudaops.errors import CudaOpsError, InputError
from cudaops.mcp_servers.payloads import error_result, error_text
from cudaops.mcp_servers.sessions import SessionPool, SessionProvider

_REWRITE = (
    "// @launch mm_tiled grid=(ceil_div(N,16), ceil_div(N,16)) block=(16,16) args=(A, B, C, N)\n"
    "__global__ void mm_tiled(const float* A, const float* B, float* C, int N) { ... }"
)

_PROGRAM = "#include <cstdio>\n__global__ void mm(...) {...}\nint main() {...}"

EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "open_program": {"source": _PROGRAM},
    "describe_program": {},
    "profile_kernel": {},
    "profile_rewrite": {"source": _REWRITE},
    "explain_metric": {"name": "dram__throughput.avg.pct_of_peak_sustained_elapsed"},
    "search_knowledge": {"query": "too many loads from L1", "subtype": "l1_load_throughput"},
    "read_note": {"note": "l1-load-throughput"},
    "read_expert_note": {"id": "stall_wait"},
    "knowledge_status": {},
    "propose_rewrites": {},
    "search_transformations": {"max_trials": 40},
    "compile_rewrite": {"source": _REWRITE},
    "screen_rewrite": {"source": _REWRITE},
    "tune_rewrite": {"source": "// @tune TILE = 8, 16, 32\n" + _REWRITE, "max_trials": 6},
    "judge_rewrite": {"source": _REWRITE, "title": "shared-memory tiles"},
    "benchmark_rewrite": {"source": _REWRITE},
    "accept_rewrite": {"rewrite_id": "0123456789ab"},
    "strip_program": {"text": _PROGRAM},
    "verify_programs": {"baseline": "the program's text", "candidate": "the rewrite's text"},
    "optimize_kernel": {"source": "the program's text", "executor": "cpu", "max_iterations": 3},
    "read_run": {"run_id": "mm-20261122T101500Z", "part": "report"},
}
"""A call of every tool, as its arguments."""


class Guide(Middleware):
    """Turns our errors into answers, and wrong calls into such an error that says what to do; keeps
    a session that is at work. Any other exception is a fault of ours and stays one."""

    def __init__(self, sessions: SessionProvider) -> None:
        self._sessions = sessions

    async def on_call_tool(
        self,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """An error is a result with its payload; name the argument that is wrong, or the tools
        that there are."""
        name = context.message.name
        try:
            if isinstance(self._sessions, SessionPool):
                with self._sessions.at_work():
                    return await call_next(context)
            return await call_next(context)
        except ValidationError as error:
            return error_result(InputError(_wrong_arguments(name, error)))
        except NotFoundError:
            server = context.fastmcp_context
            tools = await server.fastmcp.list_tools() if server else ()
            known = [tool.name for tool in tools]
            return error_result(InputError(_unknown("tool", name, known)))
        except ToolError as error:
            cause = error.__cause__
            if not isinstance(cause, CudaOpsError):
                raise
            return error_result(cause)

    async def on_read_resource(
        self,
        context: MiddlewareContext[mt.ReadResourceRequestParams],
        call_next: CallNext[mt.ReadResourceRequestParams, ResourceResult],
    ) -> ResourceResult:
        """What is wrong, with its remedy; name the resources that there are."""
        try:
            return await call_next(context)
        except ResourceError as error:
            cause = error.__cause__
            if isinstance(cause, CudaOpsError):
                raise ResourceError(error_text(cause)) from error
            raise
        except NotFoundError as error:
            server, known = context.fastmcp_context, []
            if server:
                known = [str(r.uri) for r in await server.fastmcp.list_resources()]
                templates = await server.fastmcp.list_resource_templates()
                known += [template.uri_template for template in templates]
            raise ResourceError(_unknown("resource", str(context.message.uri), known)) from error

    async def on_get_prompt(
        self,
        context: MiddlewareContext[mt.GetPromptRequestParams],
        call_next: CallNext[mt.GetPromptRequestParams, PromptResult],
    ) -> PromptResult:
        """Name the prompts that there are."""
        try:
            return await call_next(context)
        except NotFoundError as error:
            server = context.fastmcp_context
            prompts = await server.fastmcp.list_prompts() if server else ()
            known = [prompt.name for prompt in prompts]
            raise PromptError(_unknown("prompt", context.message.name, known)) from error


def call_text(tool: str) -> str:
    """A call of the tool as a model may copy it."""
    arguments = ", ".join(f"{k}={json.dumps(v)}" for k, v in EXAMPLES.get(tool, {}).items())
    return f"{tool}({arguments})"


def _wrong_arguments(tool: str, error: ValidationError) -> str:
    cause = error.__cause__
    said = str(error)
    if isinstance(cause, WrongArguments):
        found = cause.errors(include_url=False, include_input=False)
        said = "; ".join(f"`{_place(e['loc'])}`: {e['msg']}" for e in found[:5])
    return f"{tool} was called with invalid arguments. {said}. Example: {call_text(tool)}"


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "arguments"


def _unknown(kind: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"there is no {kind} {name[:80]!r} here{hint} There are: {', '.join(sorted(known))}"
