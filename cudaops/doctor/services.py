"""What cudaops asks of others: PostgreSQL for its notes, NIM for models, a service to run on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from cudaops.doctor.ladder import Site, Step
from cudaops.doctor.listing import SOON_S, Endpoint, bearer, listed, nearest
from cudaops.doctor.records import Finding, failed, missing, ok
from cudaops.errors import ModelUnavailable
from cudaops.rag.embedding import EMBEDDING_MODEL, RERANK_MODEL, choose_embedder
from cudaops.service.api_client import TOKEN_REMEDY, UPDATE
from cudaops.service.health import Readiness
from cudaops.service.records import JobSummary, Problem

HOSTED_NIM = "https://integrate.api.nvidia.com/v1"
"""Where a key of build.nvidia.com is good. Source: langchain-nvidia-ai-endpoints 1.5, its default
base URL."""
KEY = "NVIDIA_API_KEY"


def knowledge(site: Site) -> Finding:
    """Search the notes."""
    from cudaops.graph.services import open_knowledge

    store = open_knowledge(site.settings)
    try:
        found = store.search("shared memory tiling", limit=1)
        state = store.status()
    finally:
        store.close()
    text = (
        f"PostgreSQL with pgvector {state.database}; "
        f"{state.notes} notes, searched with {state.embedding_model}"
    )
    if not found:
        return failed(f"{text}: a search found nothing", "python -m cudaops knowledge status")
    return ok("; ".join([text, *state.notices]))


def nim_key(site: Site) -> Finding:
    """Whether there is a key, and from where."""
    here = Path.cwd() / ".env"
    if site.settings.nvidia_api_key is not None:
        where = "the environment" if site.machine.variable(KEY) else str(here)
        return ok(f"{KEY} is set in {where} and handed to every client by value")
    if site.settings.nvidia_base_url is not None:
        return ok("not set; a NIM of one's own may not need one")
    detail = f"{KEY} is not set; notes are searched with static word vectors"
    for folder in here.parent.parents:
        if any(KEY in text for _, text in site.machine.read(str(folder / ".env"))):
            return missing(
                f"{detail}. {folder / '.env'} has it, and is not read: cudaops reads the .env of"
                " the working folder alone",
                f"run cudaops in {folder}, or: set -a; source {folder / '.env'}; set +a",
            )
    return missing(detail, f"set {KEY} in the environment or in {here}")


def nim_models(site: Site) -> Finding:
    """Whether the endpoint lists the models that the knowledge base asks for, and the embedding
    model answers."""
    own = site.settings.nvidia_base_url
    base = (own or HOSTED_NIM).rstrip("/")
    secret = site.settings.nvidia_api_key
    key = secret.get_secret_value() if secret is not None else None
    endpoint = Endpoint(
        base=base,
        key_variable=KEY,
        address_variable="NVIDIA_BASE_URL" if own else None,
        headers=bearer(key),
    )
    ids = listed(site.machine, endpoint)
    if isinstance(ids, Finding):
        return ids
    wanted = (EMBEDDING_MODEL,) if own else (EMBEDDING_MODEL, RERANK_MODEL)
    for model in wanted:
        if model not in ids:
            return _not_served(model, endpoint, ids)
    try:
        size = len(choose_embedder(key, own).embed_query("kernel"))
    except ModelUnavailable as error:
        return failed(error.problem, error.remedy)
    return ok(
        f"{endpoint.shown} lists {len(ids)} models, {' and '.join(wanted)} among them; "
        f"{EMBEDDING_MODEL} answered with {size} numbers"
    )


def _not_served(model: str, endpoint: Endpoint, ids: Sequence[str]) -> Finding:
    near = nearest(model, ids)
    hint = f"; the nearest it has is {near}" if near else ""
    return failed(
        f"{endpoint.shown} does not serve {model}{hint} (a wrong id answers with 404, which looks"
        " like a key's fault; some ids hold the vendor's name twice)",
        "update cudaops, or let NVIDIA_BASE_URL name an endpoint that serves it",
    )


def service(site: Site) -> Finding:
    """Whether the service that `--executor remote` would use is there, knows the token and has a
    worker."""
    server, secret = site.settings.server, site.settings.token
    if server is None:
        return missing(
            "CUDAOPS_SERVER is not set; only --executor remote needs it",
            "set CUDAOPS_SERVER to the address of a service, http://host:port (docs/remote.md)",
        )
    address = server.rstrip("/")
    headers = bearer(secret.get_secret_value() if secret is not None else None)
    try:
        jobs = site.machine.get(f"{address}/jobs?limit=1", headers, SOON_S)
        ready = site.machine.get(f"{address}/readyz", {}, SOON_S)
    except OSError as error:
        return failed(
            f"{address} cannot be reached ({type(error).__name__})",
            "start it there (`cudaops serve`), or correct CUDAOPS_SERVER",
        )
    if jobs.status in (401, 403):
        return failed(f"{address} refuses the token (HTTP {jobs.status})", TOKEN_REMEDY)
    try:
        TypeAdapter(list[JobSummary]).validate_json(jobs.text)
        if ready.status != 200:
            problem = Problem.model_validate_json(ready.text)
            return failed(f"{address} answers, and: {problem.detail}", "mend that there")
        found = Readiness.model_validate_json(ready.text)
    except ValueError:
        return failed(
            f"{address} is no service of this cudaops (HTTP {jobs.status})",
            f"correct CUDAOPS_SERVER, or {UPDATE}",
        )
    workers = f"{found.workers} worker{'' if found.workers == 1 else 's'}"
    return ok(f"{address} has {workers}, on {' and '.join(found.executors)}")


STEPS = (
    Step("knowledge", knowledge, bound_s=60.0),
    Step("nim key", nim_key),
    Step("nim models", nim_models, (), ("nim key",), bound_s=15.0),
    Step("service", service, bound_s=15.0),
)
