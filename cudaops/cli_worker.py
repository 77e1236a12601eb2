"""`cudaops worker`: takes the service's jobs and works them off."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cudaops.errors import InputError
from cudaops.settings import Settings, load_settings

if TYPE_CHECKING:
    from cudaops.service.worker import WorkerOptions


def worker(
    executor: Annotated[
        Literal["cpu", "cuda", "all"] | None,
        typer.Option(help="What jobs run on here [default: all that is there]."),
    ] = None,
    gpu: Annotated[
        int | None,
        typer.Option(
            min=0, help="The GPU to use, counted from 0 as CUDA counts [default: the first]."
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Jobs at once.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="What it is called [default: host and process].")
    ] = None,
    lease: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a dead worker's jobs are taken.")
    ] = 30.0,
    job_limit: Annotated[
        float, typer.Option(min=1.0, help="Seconds that one attempt at a job may take.")
    ] = 7200.0,
) -> None:
    """Take the service's jobs from its database and work them off, until stopped."""
    from cudaops.service import logs, tracing
    from cudaops.service import worker as service
    from cudaops.service.gpu_choice import use_gpu

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


def what_works_here(settings: Settings) -> Literal["cpu", "cuda", "all"]:
    """What this machine can run on, where neither `--executor` nor a setting says it."""
    if settings.executor in ("cpu", "cuda"):
        return settings.executor
    from cudaops.graph.placing import place

    return "all" if place("auto", None, None).executor == "cuda" else "cpu"
