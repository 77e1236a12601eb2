"""Which language model would propose rewrites, whether it can be asked, and what runs remember."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cudaops.doctor.ladder import Site, Step
from cudaops.doctor.listing import Endpoint, bearer, listed, nearest
from cudaops.doctor.records import Finding, failed, missing, ok
from cudaops.errors import InputError
from cudaops.settings import Settings

if TYPE_CHECKING:
    from cudaops.models.build import ModelAccess
    from cudaops.models.names import ModelName, Provider

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


def model(site: Site) -> Finding:
    """Which model a run without --model and --optimizer would ask, and its client's package."""
    from cudaops.models.build import INSTALL
    from cudaops.models.names import DEFAULT_MODEL, PACKAGES

    try:
        name = _name(site.settings)
    except InputError as error:
        return failed(str(error), f"correct {MODEL}")
    if name is None:
        return missing(
            f"none is asked, recipes propose: neither {MODEL} nor NVIDIA_API_KEY nor {NVIDIA_URL} "
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


def _name(settings: Settings) -> ModelName | None:
    """The model that `cudaops run` chooses with these settings. Raises InputError."""
    from cudaops.graph.placing import choose
    from cudaops.models.names import parse_model

    chosen = choose("auto", None, settings).model
    return None if chosen is None else parse_model(chosen)


def _asked(site: Site) -> tuple[ModelName, ModelAccess]:
    """The model of the rung `model`, on which the others stand."""
    from cudaops.graph.developing import access_of

    name = _name(site.settings)
    assert name is not None
    return name, access_of(site.settings)


def _script(name: ModelName) -> Finding:
    from cudaops.models.scripted import read_script

    try:
        answers = len(read_script(Path(name.model)).answers)
    except InputError as error:
        return failed(str(error), f"correct the file, or let {MODEL} name another")
    several = "" if answers == 1 else "s"
    return ok(f"{name}, {answers} answer{several} written down beforehand: no model is asked")


def model_key(site: Site) -> Finding:
    """Whether there is a key or a server of one's own, and whether its address can be right."""
    from cudaops.models.names import KEY_VARIABLES

    name, access = _asked(site)
    if name.provider == "scripted":
        return ok("a script needs none")
    key = KEY_VARIABLES.get(name.provider)
    address = _address_variable(name.provider, access)
    if address is not None:
        wrong = _wrong_address(name.provider, address, access)
        if wrong is not None:
            return wrong
        also = f", and {key} for it" if access.key(name.provider) else "; it is asked without a key"
        return ok(f"{address} names a server of one's own{also}")
    if key is None:
        return ok(f"none is needed; {OLLAMA_URL} unless OLLAMA_HOST names another place")
    if access.key(name.provider):
        return ok(f"{key} is set, for {name}")
    return missing(f"no key for {name}: recipes propose in its place", _key_remedy(name.provider))


def _address_variable(provider: Provider, access: ModelAccess) -> str | None:
    """The variable that names a server of one's own; None where none does."""
    from cudaops.models.names import URL_VARIABLE

    if provider == "nvidia":
        return NVIDIA_URL if access.nvidia_base_url else None
    own = access.base_url and access.own_server(provider)
    return URL_VARIABLE if own else None


def _address(provider: Provider, access: ModelAccess) -> str:
    found = access.nvidia_base_url if provider == "nvidia" else access.base_url
    return (found or "").rstrip("/")


def _wrong_address(provider: Provider, variable: str, access: ModelAccess) -> Finding | None:
    address = _address(provider, access)
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


def _key_remedy(provider: Provider) -> str:
    from cudaops.models.names import KEY_VARIABLES, URL_VARIABLE

    own = {"nvidia": NVIDIA_URL, "openai": URL_VARIABLE}.get(provider)
    server = f", or {own} to a server of your own" if own else ""
    return f"set {KEY_VARIABLES[provider]} in the environment or in {Path.cwd() / '.env'}{server}"


def model_server(site: Site) -> Finding:
    """Whether the server lists the model. No question is asked of it: that would cost."""
    name, access = _asked(site)
    if name.provider == "scripted":
        return ok("none is asked")
    endpoint = _endpoint(site, name.provider, access)
    ids = listed(site.machine, endpoint)
    if isinstance(ids, Finding):
        return ids
    if _serves(name, ids):
        return ok(f"{endpoint.shown} lists {name.model} among {len(ids)} models")
    lacks = f"{endpoint.shown} does not list {name.model} among {len(ids)} models"
    if not ids:
        return failed(lacks, "wait until that server has loaded its model")
    near = nearest(name.model, ids)
    if near is None:
        return failed(
            lacks, f"set {MODEL} to one that it lists, {_written(name, ids[0])} or another"
        )
    return failed(f"{lacks}; the nearest is {near}", f"set {MODEL}={_written(name, near)}")


def _written(name: ModelName, listed_id: str) -> str:
    """How a user names another model of the same server."""
    if name.provider == "nvidia" and "/" in listed_id:
        return listed_id
    return f"{name.provider}:{listed_id.removeprefix('models/')}"


def _endpoint(site: Site, provider: Provider, access: ModelAccess) -> Endpoint:
    from cudaops.models.build import OFFICIAL_URLS
    from cudaops.models.names import KEY_VARIABLES

    key, variable = access.key(provider), _address_variable(provider, access)
    base = _address(provider, access) if variable else OFFICIAL_URLS.get(provider, GOOGLE_URL)
    headers, query = bearer(key), ""
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


def _ollama(site: Site) -> str:
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


def model_price(site: Site) -> Finding:
    """Whether `--max-cost` could be used."""
    from cudaops.models.names import PRICE_VARIABLE
    from cudaops.models.prices import known_price, parse_price

    name, access = _asked(site)
    form = f'{PRICE_VARIABLE}="INPUT,OUTPUT[,CACHED]", US dollars for a million tokens'
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


def memory_folder(site: Site) -> Finding:
    """Whether what runs learn can be kept."""
    from cudaops.memory.store import Memory

    folder = site.settings.memory_folder
    if folder is None:
        return ok("off, as CUDAOPS_MEMORY says: runs learn nothing from each other")
    folder = folder.absolute()
    remedy = "set CUDAOPS_MEMORY to a folder you may write to, or to off"
    try:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(b"\0")
    except OSError as error:
        return failed(f"{folder} cannot be written to: {error.strerror}", remedy)
    known = len(Memory(folder).kernels())
    return ok(f"{folder}, {known} kernel{'' if known == 1 else 's'} known")


STEPS = (
    Step("model", model),
    Step("model key", model_key, (), ("model",)),
    Step("model server", model_server, (), ("model key",), bound_s=15.0),
    Step("model price", model_price, (), ("model",)),
    Step("memory folder", memory_folder),
)
