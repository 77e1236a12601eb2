"""`cudaops serve`, `cudaops token` and `cudaops worker`: the service, its tokens, its workers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from cudaops import __version__
from cudaops.domain.options import ExecutorName
from cudaops.errors import InputError
from cudaops.settings import Settings, load_settings

if TYPE_CHECKING:
    from cudaops.service.store import Store
    from cudaops.service.worker import WorkerOptions

T = TypeVar("T")

token_app = typer.Typer(
    help="Create, list and revoke the service's access tokens.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_RESERVED = ("anyone", "admin")
"""Owners of jobs that need no token of the database."""
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-fA-F:]+\](:\d{1,5})?")
MIN_ADMIN_TOKEN_CHARS = 32

JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8080,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="Worker processes to start; 0: none [default: one per GPU, at least one].",
        ),
    ] = None,
    executor: Annotated[
        Literal[ExecutorName, "all"] | None,
        typer.Option(help="Jobs that these workers run [default: what this machine can]."),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(help="Scheme, host and port that browsers see, behind a proxy with TLS."),
    ] = None,
    reads_per_minute: Annotated[
        int, typer.Option(min=0, help="Requests of one token or address; 0: no limit.")
    ] = 600,
    submits_per_minute: Annotated[
        int, typer.Option(min=0, help="New jobs of one token or address; 0: no limit.")
    ] = 60,
) -> None:
    """Serve the HTTP API and its web page, with a worker that runs the jobs."""
    settings = load_settings()
    from cudaops.service import logs, tracing
    from cudaops.service.auth import ServiceOptions
    from cudaops.service.server import ListenAddress
    from cudaops.service.server import serve as serve_until_stopped

    place = ListenAddress(host=host, port=port)
    options = ServiceOptions(
        version=__version__,
        public_url=_origin(public_url),
        tokens="once_one_exists" if place.loopback else "always",
        admin_token=_admin_token(settings),
        reads_per_minute=reads_per_minute,
        submits_per_minute=submits_per_minute,
    )
    logs.configure(settings.log, secrets=logs.secrets_of(settings))
    tracing.configure(settings.otlp_endpoint, "cudaops-serve")
    commands = worker_commands(workers, executor, settings)
    try:
        asyncio.run(serve_until_stopped(settings, place, options, commands, typer.echo))
    finally:
        tracing.close()


def worker_commands(
    count: int | None, executor: Literal[ExecutorName, "all"] | None, settings: Settings
) -> list[list[str]]:
    """Command lines of the workers: where there are several GPUs they go round them."""
    from cudaops.service.worker import gpus_here

    command = [sys.executable, "-m", "cudaops", "worker"]
    if executor is not None:
        command += ["--executor", executor]
    uses_gpu = (executor or what_works_here(settings)) != "cpu"
    gpus = len(gpus_here(os.environ)) if uses_gpu else 0
    wanted = max(1, gpus) if count is None else count
    return [
        [*command, "--gpu", str(number % gpus)] if gpus > 1 else command for number in range(wanted)
    ]


@token_app.command("add")
def add_token(
    name: Annotated[str, typer.Argument(help="Owner; their jobs are stored under this name.")],
    scope: Annotated[
        Literal["read", "run", "admin"],
        typer.Option(help="read: own jobs; run: start and cancel them; admin: all jobs."),
    ] = "run",
    days: Annotated[
        int | None, typer.Option(min=1, max=3650, help="Days until it expires [default: never].")
    ] = None,
) -> None:
    """Create a token and print it once; only its hash is stored."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", name) or name in _RESERVED:
        raise InputError(
            f"{name!r} cannot name a token: letters, digits and . _ @ -, at most 64, and not"
            f" {' or '.join(_RESERVED)}"
        )
    typer.echo(_with_store(lambda store: store.add_token(name, scope, days)))


@token_app.command("list")
def list_tokens(as_json: JsonOption = False) -> None:
    """List names, scopes and last use of tokens, not the tokens."""
    found = _with_store(lambda store: store.tokens())
    if as_json:
        typer.echo(json.dumps([row.model_dump(mode="json") for row in found], indent=2))
        return
    for row in found:
        ends = f"until {row.expires_at:%Y-%m-%d}" if row.expires_at else "no end"
        used = f"used {row.last_used_at:%Y-%m-%d %H:%M}" if row.last_used_at else "never used"
        typer.echo(f"{row.name:24}  {row.scope:5}  {ends:16}  {used}")
    if not found:
        typer.echo("there is no token; a service on loopback asks for none")


@token_app.command("remove")
def remove_token(
    name: Annotated[str, typer.Argument(help="As `cudaops token list` shows it.")],
) -> None:
    """Revoke a token; running services notice within seconds."""
    if not _with_store(lambda store: store.remove_token(name)):
        raise InputError(f"there is no token {name!r}; `cudaops token list` shows them")


def _with_store(ask: Callable[[Store], Awaitable[T]]) -> T:
    """The answer of the service's database."""
    from cudaops.service.store import open_store

    async def asked() -> T:
        store = await open_store(load_settings(), pool_size=2)
        try:
            return await ask(store)
        finally:
            await store.close()

    return asyncio.run(asked())


def _origin(url: str | None) -> str | None:
    if url is not None and not _ORIGIN.fullmatch(url.rstrip("/")):
        raise InputError("--public-url is scheme, host and port: https://kernels.example.org")
    return url


def _admin_token(settings: Settings) -> str | None:
    if settings.admin_token is None:
        return None
    token = settings.admin_token.get_secret_value()
    if len(token) < MIN_ADMIN_TOKEN_CHARS:
        raise InputError(
            f"CUDAOPS_ADMIN_TOKEN has fewer than {MIN_ADMIN_TOKEN_CHARS} characters; make one:"
            ' python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    return token


def worker(
    executor: Annotated[
        Literal[ExecutorName, "all"] | None,
        typer.Option(help="Executor of its jobs [default: all that this machine has]."),
    ] = None,
    gpu: Annotated[
        int | None,
        typer.Option(
            min=0, help="The GPU to use, counted from 0 as CUDA counts [default: the first]."
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Jobs at once.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="Name of the worker [default: host and process].")
    ] = None,
    lease: Annotated[
        float,
        typer.Option(
            min=1.0, help="Seconds after which another worker takes a dead worker's jobs."
        ),
    ] = 30.0,
    job_limit: Annotated[
        float, typer.Option(min=1.0, help="Seconds that one attempt at a job may take.")
    ] = 7200.0,
) -> None:
    """Run jobs from the service's database until stopped."""
    from cudaops.service import logs, tracing
    from cudaops.service import worker as service
    from cudaops.service.worker import use_gpu

    settings = load_settings()
    service.check_settings(settings)
    logs.configure(settings.log, secrets=logs.secrets_of(settings))
    tracing.configure(settings.otlp_endpoint, service="cudaops-worker")
    if gpu is not None:
        if executor == "cpu":
            raise InputError("--gpu chooses a GPU, and --executor cpu uses none; leave one out")
        use_gpu(gpu, os.environ)
    options = service.WorkerOptions(
        name=name or service.default_name(),
        executors=service.executors_of(executor or what_works_here(settings)),
        all_must_work=executor is not None,
        folder=service.service_folder(settings),
        concurrency=concurrency,
        lease_s=lease,
        job_limit_s=job_limit,
        dcgm_url=settings.dcgm_url,
    )
    try:
        asyncio.run(_work(settings, options))
    finally:
        tracing.close()


async def _work(settings: Settings, options: WorkerOptions) -> None:
    from cudaops.service.store import open_store
    from cudaops.service.worker import Worker

    # One connection listens for deliveries; the rest serve the jobs at work here.
    store = await open_store(settings, pool_size=3 + options.concurrency)
    try:
        await Worker(store, settings, options).run()
    finally:
        await store.close()


def what_works_here(settings: Settings) -> Literal[ExecutorName, "all"]:
    """What this machine can run on, where neither `--executor` nor a setting says it."""
    if settings.executor in ("cpu", "cuda"):
        return settings.executor
    from cudaops.graph.resolve_options import place

    return "all" if place("auto", None, None).executor == "cuda" else "cpu"
