"""Every option of a run is declared once and is the same on every way in."""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import typer
from fastmcp import Client, FastMCP
from pydantic import Field
from typer.main import get_command
from typer.testing import CliRunner

import cudaops
from cudaops.cli import app
from cudaops.cli.options import with_options
from cudaops.domain.judgement import Policy
from cudaops.domain.options import (
    Flag,
    KernelOptions,
    OptimizeOptions,
    Positional,
    ReviewOptions,
    bounds_of,
    described,
    fields_of,
    flattened,
    plain_type,
)
from cudaops.domain.run import RunOptions
from cudaops.errors import InputError
from cudaops.graph.resolve_options import KEPT, requested_options, resolve, target
from cudaops.mcp_servers.calls import with_options as tool_options
from cudaops.service.records import REQUESTS
from cudaops.settings import load_settings
from tests.mcp_servers.serving import hosting, server_of

OPTIONS = {**fields_of(OptimizeOptions), **fields_of(ReviewOptions)}


class NewOptions(KernelOptions):
    """Options of which nothing else in this repository knows."""

    warmups: Annotated[int, Field(ge=1, le=9)] = 3
    """Launches before the first sample."""
    labels: Annotated[tuple[str, ...], Flag("--label")] = ()
    """Kept with the run."""


def new_command(*, options: NewOptions) -> str:
    """A command, a tool and a function alike."""
    text = options.model_dump_json(exclude={*KernelOptions.model_fields} - {"kernel"})
    typer.echo(text)
    return text


LOCAL = "is for the user's own machine"
SERVER = "a host may tighten what its server was started with, and the default is the server's"
WRITES = "the host's model may be the one that writes the candidate it is judged with"
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("api", "review"): "a function that is asked, where the flag asks at the terminal",
    ("http", "kernel"): "a name of C++ alone: a stranger's text, and no ncu report's long names",
    ("http", "executor"): "a service works for no other service, and says `auto`",
    ("http", "timeout_seconds"): "600 s at most: others wait for the worker",
    ("http", "model"): "a service has its own, and nobody's key",
    ("http", "review"): "a service has nobody to ask",
    ("http", "trust_source"): LOCAL,
    ("http", "clock_control"): LOCAL,
    ("http", "every_metric"): LOCAL,
    ("http", "nvcc"): LOCAL,
    ("http", "build_command"): LOCAL,
    ("http", "run_command"): LOCAL,
    ("http", "kernel_source"): LOCAL,
    ("http", "python"): LOCAL,
    ("http", "use_memory"): "memory would carry one owner's kernels to another",
    ("mcp", "executor"): SERVER,
    ("mcp", "timeout_seconds"): SERVER,
    ("mcp", "min_speedup"): SERVER,
    ("mcp", "optimizer"): "one more: `host`, the host's own model",
    ("mcp", "model"): "the server's, or the host's own with `optimizer=host`",
    ("mcp", "seed"): WRITES,
    ("mcp", "allow_precision"): WRITES,
    ("mcp", "allow_libraries"): WRITES,
    ("mcp", "allow_ptx"): WRITES,
    ("mcp", "allow_reassociation"): WRITES,
    ("mcp", "review"): "the host is who asks its user",
    ("mcp", "trust_source"): LOCAL,
    ("mcp", "clock_control"): LOCAL,
    ("mcp", "every_metric"): LOCAL,
    ("mcp", "nvcc"): LOCAL,
    ("mcp", "build_command"): LOCAL,
    ("mcp", "run_command"): LOCAL,
    ("mcp", "kernel_source"): LOCAL,
    ("mcp", "python"): LOCAL,
    ("http", "digest"): "a service's reports are told without one",
    ("mcp", "digest"): "the host reads the passages itself",
    ("mcp", "use_memory"): "as for the service, where the server works for many",
}
"""What stands differently on a way in, and why."""

MCP_NAMES = {"argv": "arguments"}
"""`argv` is no word of MCP hosts."""


def differs(way: str, name: str, is_the_same: bool) -> None:
    """An option is the same, or is a listed exception that is really one."""
    assert is_the_same != ((way, name) in EXCEPTIONS), f"{name} over {way}"


def declared(name: str) -> dict[str, Any]:
    model = OptimizeOptions if name in OptimizeOptions.model_fields else ReviewOptions
    return without_titles(model.model_json_schema()["properties"][name])


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema as it says the same everywhere: titles and line breaks left out."""
    found = {key: value for key, value in schema.items() if key != "title"}
    return {**found, "description": " ".join(found.get("description", "").split())}


@pytest.fixture(scope="module")
def mcp_parameters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    host = hosting(tmp_path_factory.mktemp("runs"), strangers=False)
    session = host.session()

    async def tools() -> dict[str, Any]:
        async with Client(server_of("all", session, host)) as client:
            found = {tool.name: tool for tool in await client.list_tools()}
            return dict(found["optimize_kernel"].inputSchema["properties"])

    try:
        return asyncio.run(tools())
    finally:
        session.close()


@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_a_flag(name: str) -> None:
    field = OPTIONS[name]
    run = get_command(app).commands["run"]  # type: ignore[attr-defined]
    (flag,) = (param for param in run.params if param.name == name)
    assert flag.help == described(field)
    if any(isinstance(note, Positional) for note in field.metadata):
        assert flag.nargs == -1
        return
    names = [note.name for note in field.metadata if isinstance(note, Flag)]
    assert [*flag.opts, *flag.secondary_opts] == (
        names[0].split("/") if names else [f"--{name.replace('_', '-')}"]
    )
    several = get_origin(plain_type(field.annotation)) is tuple
    assert flag.default == (None if several else field.get_default())
    bounds = bounds_of(field.rebuild_annotation())
    assert (flag.min, flag.max) == (bounds.get("ge"), bounds.get("le"))
    kind = plain_type(field.annotation)
    kind = list[get_args(kind)[0]] if several else kind  # type: ignore[misc]
    assert flag.type_descriptor.annotation | None == kind | None


@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_an_argument_in_python(name: str) -> None:
    field = OPTIONS[name]
    keyword = inspect.signature(cudaops.optimize).parameters[name]
    assert keyword.kind is inspect.Parameter.KEYWORD_ONLY
    same = keyword.annotation == plain_type(field.annotation)
    assert same == (keyword.default == field.get_default())
    assert f"    {name}: " in (cudaops.optimize.__doc__ or "")
    if same:
        assert f"    {name}: {described(field)}" in (cudaops.optimize.__doc__ or "")
        for wrong in {"ge": -1, "le": 1e9}.keys() & bounds_of(field.rebuild_annotation()).keys():
            with pytest.raises(InputError, match=rf"optimize: {name}.*than or equal"):
                cudaops.optimize("k.cu", **{name: {"ge": -1, "le": 10**9}[wrong]})
    differs("api", name, same)


@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_a_field_over_http(name: str) -> None:
    fields = REQUESTS["optimize"].model_json_schema()["properties"]
    differs("http", name, without_titles(fields.get(name, {})) == declared(name))


@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_a_parameter_over_mcp(name: str, mcp_parameters: dict[str, Any]) -> None:
    found = mcp_parameters.get(MCP_NAMES.get(name, name), {})
    differs("mcp", name, without_titles(found) == declared(name))


def test_no_exception_is_of_an_option_that_is_gone() -> None:
    assert {name for _, name in EXCEPTIONS} <= OPTIONS.keys()


_PROJECT = {
    "nvcc": None, "build_command": "make", "run_command": "./app", "kernel_source": None,
    "python": None,
}  # fmt: skip
_PROBLEM = {"nvcc": None, "build_command": None, "run_command": None, "python": "/usr/bin/python3"}
_SINGLE = {**_PROBLEM, "nvcc": "-DN=4", "kernel_source": None, "python": None}


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("/k.cu", {**_PROJECT, "odd_sizes": True, "argv": ("1",), "argument_lines": ()}),
        ("/k.cu", {**_SINGLE, "odd_sizes": False, "argv": ("1",), "argument_lines": ()}),
        (
            "/k.cu",
            {
                **_PROJECT,
                "odd_sizes": True,
                "argv": (),
                "argument_lines": ("judged: 5", "timed*2: 6 'a b'"),
            },
        ),
        (
            "/k.py",
            {
                **_PROBLEM,
                "odd_sizes": False,
                "argv": (),
                "argument_lines": (),
                "kernel_source": str(Path(__file__).parents[1] / "examples" / "naive_matmul.cu"),
            },
        ),
    ],
)
def test_every_option_reaches_the_run_and_comes_back(
    source: str, arguments: dict[str, Any]
) -> None:
    """What is asked for is in RunOptions under one name or another, and a service is told all."""
    values: dict[str, Any] = {
        **arguments, "warm_ups": "count", "kernel": "k", "exit_code": 3,
        "timeout_seconds": 9.0, "executor": "cpu", "arch": "sm_80",
        "device": "A100", "optimizer": "llm", "model": "scripted:answers.json", "strategy": "beam",
        "beam_width": 7, "beam_rounds": 8, "max_iterations": 9, "max_cost_usd": 1.5,
        "max_tokens": 77, "max_trials": 6, "budget_minutes": 3.5, "min_speedup": 1.5, "seed": 5,
        "allow_precision": "tf32", "allow_libraries": True, "allow_ptx": True,
        "allow_reassociation": True,
        "clock_control": "base", "every_metric": True, "trust_source": True, "use_memory": False,
        "digest": True,
    }  # fmt: skip
    assert values.keys() == OptimizeOptions.model_fields.keys()
    asked = OptimizeOptions(**values)
    where = target("A100 40GB", "sm_80")
    resolved = resolve(asked, Path(source), Path("/out"), where, load_settings())
    assert {name: getattr(resolved, name) for name in KEPT} == {n: values[n] for n in KEPT}
    policy = {name: getattr(resolved.policy, name) for name in Policy.model_fields}
    assert policy.items() >= {n: v for n, v in values.items() if n in policy}.items()
    back = requested_options(resolved)
    not_told = {
        "executor",
        "model",
        "clock_control",
        "every_metric",
    }  # of a service: its own, or refused
    assert {name for name in values if name not in back} == not_told
    device = {"device": resolved.device}
    assert {n: back[n] for n in values if n in back} == {
        n: v for n, v in {**values, **device}.items() if n in back
    }


def test_what_a_run_keeps_is_what_was_asked() -> None:
    """An option more in one of these classes is in every record from then on."""
    assert RunOptions.model_fields.keys() > KEPT
    assert {"max_trials", "argv", "trust_source", "use_memory"} <= KEPT


NEW = {"kernel": "k", "warmups": 4, "labels": ["a", "b"]}


def test_a_new_option_is_a_repeated_flag_with_its_bounds() -> None:
    command = typer.Typer()
    command.command()(with_options(new_command))
    runner = CliRunner()
    flags = ["--kernel", "k", "--warmups", "4", "--label", "a", "--label", "b"]
    assert json.loads(runner.invoke(command, flags).stdout) == NEW
    assert runner.invoke(command, ["--warmups", "10"]).exit_code == 2
    assert "Launches before" in runner.invoke(command, ["--help"]).stdout


def test_a_new_option_is_a_keyword_with_its_bounds() -> None:
    call = flattened(new_command)
    assert json.loads(call(kernel="k", warmups=4, labels=("a", "b"))) == NEW
    assert inspect.signature(call).parameters["warmups"].default == 3
    with pytest.raises(InputError, match="warmups: Input should be less than or equal to 9"):
        call(warmups=10)


def test_a_new_option_is_a_parameter_over_mcp() -> None:
    server = FastMCP("new")
    server.tool(tool_options(new_command))

    async def asked() -> tuple[dict[str, Any], str]:
        async with Client(server) as client:
            (tool,) = await client.list_tools()
            answer = await client.call_tool("new_command", NEW)
            return tool.inputSchema["properties"]["warmups"], answer.data

    schema, text = asyncio.run(asked())
    assert schema == {
        "type": "integer", "minimum": 1, "maximum": 9, "default": 3,
        "description": "Launches before the first sample.",
    }  # fmt: skip
    assert json.loads(text) == NEW
