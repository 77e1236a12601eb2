"""What cudaops asks of others: PostgreSQL for its notes, NIM, a service to run on, and the language
model that would propose rewrites; and what runs remember.
"""

from __future__ import annotations

import difflib
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from cudaops.doctor.ladder import CheckContext, CheckOutcome, PlannedCheck, failed, missing, ok
from cudaops.doctor.machine import Machine, Response
from cudaops.errors import InputError, ModelUnavailable
from cudaops.rag.embedding import EMBEDDING_MODEL, RERANK_MODEL, choose_embedder
from cudaops.service.api_client import TOKEN_REMEDY, UPDATE
from cudaops.service.operation import Readiness
from cudaops.service.records import JobSummary, Problem
from cudaops.settings import Settings

if TYPE_CHECKING:
    from cudaops.models.clients import ModelAccess
    from cudaops.models.names import ModelName, Provider

SOON_S = 6.0
OFFLINE = "check the network and its proxy (HTTPS_PROXY); cudaops works without it, on what it has"

KEYS_FROM = {
    "NVIDIA_API_KEY": "build.nvidia.com",
    "OPENAI_API_KEY": "platform.openai.com",
    "ANTHROPIC_API_KEY": "platform.claude.com",
    "GOOGLE_API_KEY": "aistudio.google.com",
}
"""Where a new one is made."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where `GET models` is asked."""

    base: str
    """Up to and with `/v1`, or what is in its place."""
    key_variable: str | None = None
    address_variable: str | None = None
    """Names a server of one's own; None for a provider's."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    query: str = ""

    @property
    def shown(self) -> str:
        """The address for messages, without a name and a password that may be in it."""
        try:
            parts = urlsplit(self.base)
        except ValueError:
            return f"the address in {self.address_variable}"
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=host, query="", fragment="").geturl()


def bearer_header(key: str | None) -> dict[str, str]:
    """The header that OpenAI's protocol carries a key in; none without a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def listed_models(machine: Machine, endpoint: Endpoint) -> tuple[str, ...] | CheckOutcome:
    """Ids of the models that the endpoint serves, or what is wrong."""
    try:
        answer = machine.get(
            f"{endpoint.base.rstrip('/')}/models{endpoint.query}", endpoint.headers, SOON_S
        )
    except OSError as error:
        reason = f"{endpoint.shown} cannot be reached ({type(error).__name__})"
        if endpoint.address_variable is None:
            return failed(reason, OFFLINE)
        return failed(reason, f"start that server, or correct {endpoint.address_variable}")
    if answer.status in (401, 403):
        return failed(
            f"{endpoint.shown} refuses the key (HTTP {answer.status})",
            _refused_key_remedy(endpoint),
        )
    if answer.status != 200:
        return failed(
            f"{endpoint.shown}/models answered HTTP {answer.status}",
            _address_remedy(endpoint, answer),
        )
    try:
        return tuple(str(model["id"]) for model in json.loads(answer.text)["data"])
    except (ValueError, KeyError, TypeError):
        return failed(
            f"{endpoint.shown}/models did not answer with a list",
            _address_remedy(endpoint, answer),
        )


def nearest_model(model: str, ids: Sequence[str]) -> str | None:
    """The listed id that a mistyped one may have meant."""
    return next(iter(difflib.get_close_matches(model, ids, n=1, cutoff=0.6)), None)


def _refused_key_remedy(endpoint: Endpoint) -> str:
    variable = endpoint.key_variable
    if variable is None:
        return f"let {endpoint.address_variable} name a server that asks for no key"
    if endpoint.address_variable is not None:
        return f"set {variable} to the key that this server wants; without quotes or spaces"
    return (
        f"make a new key at {KEYS_FROM[variable]} and set {variable}; "
        "without quotes or spaces around it"
    )


def _address_remedy(endpoint: Endpoint, answer: Response) -> str:
    variable = endpoint.address_variable
    if variable is None:
        return OFFLINE
    if answer.status == 404 and not endpoint.base.rstrip("/").endswith("/v1"):
        return f"let {variable} end in /v1"
    if answer.status in (200, 404):
        return f"correct {variable}: the server does not implement NIM's or OpenAI's API"
    return f"look into that server's log; {variable} names it"


HOSTED_NIM = "https://integrate.api.nvidia.com/v1"
"""Where a key of build.nvidia.com is good. Source: langchain-nvidia-ai-endpoints 1.5, its default
base URL."""
NVIDIA_KEY = "NVIDIA_API_KEY"


def knowledge(site: CheckContext) -> CheckOutcome:
    """Search the notes."""
    from cudaops.graph.toolbox import open_knowledge

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


def nim_key(site: CheckContext) -> CheckOutcome:
    """Whether there is a key, and from where."""
    here = Path.cwd() / ".env"
    if site.settings.nvidia_api_key is not None:
        where = "the environment" if site.machine.variable(NVIDIA_KEY) else str(here)
        return ok(f"{NVIDIA_KEY} is set in {where} and handed to every client by value")
    if site.settings.nvidia_base_url is not None:
        return ok("not set; a NIM of one's own may not need one")
    detail = f"{NVIDIA_KEY} is not set; notes are searched with static word vectors"
    for folder in here.parent.parents:
        if any(NVIDIA_KEY in text for _, text in site.machine.read(str(folder / ".env"))):
            return missing(
                f"{detail}. {folder / '.env'} has it, and is not read: cudaops reads the .env of"
                " the working folder alone",
                f"run cudaops in {folder}, or: set -a; source {folder / '.env'}; set +a",
            )
    return missing(detail, f"set {NVIDIA_KEY} in the environment or in {here}")


def nim_models(site: CheckContext) -> CheckOutcome:
    """Whether the endpoint lists the models that the knowledge base asks for, and the embedding
    model answers."""
    own = site.settings.nvidia_embed_url or site.settings.nvidia_base_url
    base = (own or HOSTED_NIM).rstrip("/")
    secret = site.settings.nvidia_api_key
    key = secret.get_secret_value() if secret is not None else None
    endpoint = Endpoint(
        base=base,
        key_variable=NVIDIA_KEY,
        address_variable=_embedding_variable(site) if own else None,
        headers=bearer_header(key),
    )
    ids = listed_models(site.machine, endpoint)
    if isinstance(ids, CheckOutcome):
        return ids
    embedding = site.settings.nvidia_embed_model or EMBEDDING_MODEL
    reranking = site.settings.nvidia_rerank_model or RERANK_MODEL
    # Only the hosted endpoint is known to serve both.
    elsewhere = own or site.settings.nvidia_rerank_url
    wanted = (embedding,) if elsewhere else (embedding, reranking)
    for model in wanted:
        if model not in ids:
            return _not_served(model, endpoint, ids)
    try:
        size = len(choose_embedder(key, own, embedding).embed_query("kernel"))
    except ModelUnavailable as error:
        return failed(error.problem, error.remedy)
    return ok(
        f"{endpoint.shown} lists {len(ids)} models, {' and '.join(wanted)} among them; "
        f"{embedding} answered with {size} numbers"
    )


def _embedding_variable(site: CheckContext) -> str:
    return "NVIDIA_EMBED_URL" if site.settings.nvidia_embed_url else "NVIDIA_BASE_URL"


def _not_served(model: str, endpoint: Endpoint, ids: Sequence[str]) -> CheckOutcome:
    near = nearest_model(model, ids)
    hint = f"; the nearest it has is {near}" if near else ""
    return failed(
        f"{endpoint.shown} does not serve {model}{hint} (a wrong id answers with 404, which looks"
        " like a key's fault; some ids hold the vendor's name twice)",
        "update cudaops, or let NVIDIA_BASE_URL name an endpoint that serves it",
    )


def service(site: CheckContext) -> CheckOutcome:
    """Whether the service that `--executor remote` would use is there, knows the token and has a
    worker."""
    server, secret = site.settings.server, site.settings.token
    if server is None:
        return missing(
            "CUDAOPS_SERVER is not set; only --executor remote needs it",
            "set CUDAOPS_SERVER to the address of a service, http://host:port (docs/remote.md)",
        )
    address = server.rstrip("/")
    headers = bearer_header(secret.get_secret_value() if secret is not None else None)
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
            return failed(
                f"{address} answers, and: {problem.detail}", "fix the cause on that service"
            )
        found = Readiness.model_validate_json(ready.text)
    except ValueError:
        return failed(
            f"{address} is not a cudaops service (HTTP {jobs.status})",
            f"correct CUDAOPS_SERVER, or {UPDATE}",
        )
    workers = f"{found.workers} worker{'' if found.workers == 1 else 's'}"
    return ok(f"{address} has {workers}, on {' and '.join(found.executors)}")


MODEL = "CUDAOPS_MODEL"
NVIDIA_URL = "NVIDIA_BASE_URL"
GOOGLE_URL = "https://generativelanguage.googleapis.com/v1beta/openai"
"""Google's models in OpenAI's protocol. Source: developers.googleblog.com, Gemini is now accessible
from the OpenAI library; the path as in community.n8n.io/t/113590; both read 2026-11-20."""
OLLAMA_URL = "http://localhost:11434"
"""Where Ollama answers unless told otherwise. Source: docs.ollama.com/api, read 2026-11-20."""
ANTHROPIC_VERSION = "2023-06-01"
"""What the header `anthropic-version` must hold. Source: anthropic 2.11.0, its default headers."""
ANTHROPIC_PAGE = "?limit=1000"
"""Models on one page, at most. Source: platform.claude.com/docs/en/api/models-list, read
2026-11-20; by default there are 20."""


def model(site: CheckContext) -> CheckOutcome:
    """Which model a run without --model and --optimizer would ask, and its client's package."""
    from cudaops.models.clients import INSTALL
    from cudaops.models.names import DEFAULT_MODEL, PACKAGES

    try:
        name = _model_name(site.settings)
    except InputError as error:
        return failed(str(error), f"correct {MODEL}")
    if name is None:
        return missing(
            f"no model, recipes propose: neither {MODEL} nor NVIDIA_API_KEY nor {NVIDIA_URL} "
            "is set",
            f"set NVIDIA_API_KEY for {DEFAULT_MODEL}, or {MODEL} (docs/language-models.md)",
        )
    if name.provider == "scripted":
        return _script(name)
    wanted = PACKAGES[name.provider]
    for package in (wanted.package, "langchain") if wanted.optional else (wanted.package,):
        if not site.machine.package(package):
            return missing(f"{name} needs the Python package {package}", INSTALL)
    chosen = f"as {MODEL} says" if site.settings.model else "the default"
    return ok(f"{name}, {chosen}, asked through {wanted.package}")


def _model_name(settings: Settings) -> ModelName | None:
    """The model that `cudaops run` chooses with these settings. Raises InputError."""
    from cudaops.graph.resolve_options import choose
    from cudaops.models.names import parse_model

    chosen = choose("auto", None, settings).model
    return None if chosen is None else parse_model(chosen)


def _asked_model(site: CheckContext) -> tuple[ModelName, ModelAccess]:
    """The model of the rung `model`, which the others need."""
    from cudaops.graph.model_setup import access_of

    name = _model_name(site.settings)
    assert name is not None
    return name, access_of(site.settings)


def _script(name: ModelName) -> CheckOutcome:
    from cudaops.models.scripted import read_script

    try:
        answers = len(read_script(Path(name.model)).answers)
    except InputError as error:
        return failed(str(error), f"correct the file, or let {MODEL} name another")
    several = "" if answers == 1 else "s"
    return ok(f"{name}, {answers} answer{several} scripted: no model is called")


def model_key(site: CheckContext) -> CheckOutcome:
    """Whether there is a key or a server of one's own, and whether its address can be right."""
    from cudaops.models.names import KEY_VARIABLES

    name, access = _asked_model(site)
    if name.provider == "scripted":
        return ok("a script needs none")
    key = KEY_VARIABLES.get(name.provider)
    address = _address_variable(name.provider, access)
    if address is not None:
        wrong = _wrong_address(name.provider, address, access)
        if wrong is not None:
            return wrong
        also = f", and {key} for it" if access.key(name.provider) else "; called without a key"
        return ok(f"{address} names a server of one's own{also}")
    if key is None:
        return ok(f"none is needed; {OLLAMA_URL} unless OLLAMA_HOST names another place")
    if access.key(name.provider):
        return ok(f"{key} is set, for {name}")
    return missing(f"no key for {name}: recipes propose instead", _model_key_remedy(name.provider))


def _address_variable(provider: Provider, access: ModelAccess) -> str | None:
    """The variable that names a server of one's own; None where none does."""
    from cudaops.models.names import URL_VARIABLE

    if provider == "nvidia":
        return NVIDIA_URL if access.nvidia_base_url else None
    own = access.base_url and access.own_server(provider)
    return URL_VARIABLE if own else None


def _model_address(provider: Provider, access: ModelAccess) -> str:
    found = access.nvidia_base_url if provider == "nvidia" else access.base_url
    return (found or "").rstrip("/")


def _wrong_address(provider: Provider, variable: str, access: ModelAccess) -> CheckOutcome | None:
    address = _model_address(provider, access)
    try:
        parts = urlsplit(address)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        whole = False
    if not whole:
        return failed(f"{variable} is no address", f"let {variable} be like http://HOST:PORT/v1")
    at_v1 = address.endswith("/v1")
    if provider == "nvidia" and not at_v1:
        return failed(f"{variable} does not end in /v1", f"let {variable} end in /v1")
    if provider == "ollama" and at_v1:
        return failed(
            f"{variable} ends in /v1, and Ollama's own protocol is not there",
            f"leave /v1 out of {variable}, or write the model openai:MODEL",
        )
    return None


def _model_key_remedy(provider: Provider) -> str:
    from cudaops.models.names import KEY_VARIABLES, URL_VARIABLE

    own = {"nvidia": NVIDIA_URL, "openai": URL_VARIABLE}.get(provider)
    server = f", or {own} to a server of your own" if own else ""
    return f"set {KEY_VARIABLES[provider]} in the environment or in {Path.cwd() / '.env'}{server}"


def model_server(site: CheckContext) -> CheckOutcome:
    """Whether the server lists the model. No question is asked of it: that would cost."""
    name, access = _asked_model(site)
    if name.provider == "scripted":
        return ok("none is asked")
    endpoint = _model_endpoint(site, name.provider, access)
    ids = listed_models(site.machine, endpoint)
    if isinstance(ids, CheckOutcome):
        return ids
    if _serves(name, ids):
        return ok(f"{endpoint.shown} lists {name.model} among {len(ids)} models")
    lacks = f"{endpoint.shown} does not list {name.model} among {len(ids)} models"
    if not ids:
        return failed(lacks, "wait until that server has loaded its model")
    near = nearest_model(name.model, ids)
    if near is None:
        return failed(
            lacks,
            f"set {MODEL} to one that it lists, {_written_name(name, ids[0])} or another",
        )
    return failed(f"{lacks}; the nearest is {near}", f"set {MODEL}={_written_name(name, near)}")


def _written_name(name: ModelName, listed_id: str) -> str:
    """How a user names another model of the same server."""
    if name.provider == "nvidia" and "/" in listed_id:
        return listed_id
    return f"{name.provider}:{listed_id.removeprefix('models/')}"


def _model_endpoint(site: CheckContext, provider: Provider, access: ModelAccess) -> Endpoint:
    from cudaops.models.clients import OFFICIAL_URLS
    from cudaops.models.names import KEY_VARIABLES

    key, variable = access.key(provider), _address_variable(provider, access)
    base = _model_address(provider, access) if variable else OFFICIAL_URLS.get(provider, GOOGLE_URL)
    headers, query = bearer_header(key), ""
    if provider == "anthropic":
        base, query = f"{base}/v1", ANTHROPIC_PAGE
        headers = {"x-api-key": key or "", "anthropic-version": ANTHROPIC_VERSION}
    elif provider == "ollama":
        base = f"{base if variable else _ollama(site)}/v1"
        variable = variable or "OLLAMA_HOST"
    return Endpoint(
        base=base,
        key_variable=KEY_VARIABLES.get(provider),
        address_variable=variable,
        headers=headers,
        query=query,
    )


def _ollama(site: CheckContext) -> str:
    """Where Ollama's client looks for it by itself."""
    host = site.machine.variable("OLLAMA_HOST")
    if not host:
        return OLLAMA_URL
    address = host if "://" in host else f"http://{host}"
    ported = re.search(r":\d+$", address) is not None or "://" in host
    return address if ported else f"{address}:11434"


def _serves(name: ModelName, ids: Sequence[str]) -> bool:
    """Whether the list has the model, under its name or what its provider takes for the same."""
    wanted = re.escape(name.model)
    forms: dict[Provider, str] = {
        "ollama": rf"{wanted}(:latest)?",
        "anthropic": rf"{wanted}(-\d{{8}})?",
        "google_genai": rf"(models/)?{wanted}",
    }
    form = re.compile(forms.get(name.provider, wanted))
    return any(form.fullmatch(known) for known in ids)


def model_price(site: CheckContext) -> CheckOutcome:
    """Whether `--max-cost` could be used."""
    from cudaops.models.names import PRICE_VARIABLE
    from cudaops.models.prices import known_price, parse_price

    name, access = _asked_model(site)
    form = f'{PRICE_VARIABLE}="INPUT,OUTPUT[,CACHED[,WRITTEN]]", US dollars per million tokens'
    try:
        text = site.settings.model_price
        price = (
            parse_price(text)
            if text
            else known_price(name, own_server=access.own_server(name.provider))
        )
    except InputError as error:
        return failed(str(error), f"set {form}")
    if price is None:
        return missing(
            f"none is known for {name}: --max-cost is refused; --max-tokens needs none",
            f"set {form}",
        )
    return ok(
        f"${price.input_usd_per_mtok:g} in, ${price.output_usd_per_mtok:g} out for a million "
        f"tokens of {name} ({price.source})"
    )


def memory_folder(site: CheckContext) -> CheckOutcome:
    """Whether what runs learn can be kept."""
    from cudaops.memory.store import MemoryStore

    folder = site.settings.memory_folder
    if folder is None:
        return ok("off, as CUDAOPS_MEMORY says: runs do not share results")
    folder = folder.absolute()
    remedy = "set CUDAOPS_MEMORY to a folder you may write to, or to off"
    try:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(b"\0")
    except OSError as error:
        return failed(f"{folder} cannot be written to: {error.strerror}", remedy)
    known = len(MemoryStore(folder).kernels())
    return ok(f"{folder}, {known} kernel{'' if known == 1 else 's'} known")


STEPS = (
    PlannedCheck("knowledge", knowledge, bound_s=60.0),
    PlannedCheck("nim key", nim_key),
    PlannedCheck("nim models", nim_models, (), ("nim key",), bound_s=15.0),
    PlannedCheck("service", service, bound_s=15.0),
    PlannedCheck("model", model),
    PlannedCheck("model key", model_key, (), ("model",)),
    PlannedCheck("model server", model_server, (), ("model key",), bound_s=15.0),
    PlannedCheck("model price", model_price, (), ("model",)),
    PlannedCheck("memory folder", memory_folder),
)
