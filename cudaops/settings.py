"""What a user may set from outside. Only entry points construct Settings; the rest gets values.

Source of each value, first found wins: the process environment, `.env` in the working folder
(opened by that path, never searched for upwards), the default below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from cudaops.domain.options import ExecutorChoice
from cudaops.domain.run import IsolationChoice
from cudaops.errors import InputError


def default_cache() -> Path:
    """The platform's cache folder for cudaops."""
    return Path(platformdirs.user_cache_path("cudaops", appauthor=False))


class Settings(BaseSettings):
    """Values from the environment. An empty variable counts as not set."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        use_attribute_docstrings=True,
        populate_by_name=True,
    )

    cache: Path = Field(default_factory=default_cache, validation_alias="CUDAOPS_CACHE")
    """Folder for compiled code and the embedded database's data; may be deleted at any time."""

    builds: Path | None = Field(default=None, validation_alias="CUDAOPS_BUILDS")
    """Folder for compiler output. Default: `builds` in the cache."""

    builds_gib: float = Field(default=4.0, gt=0, validation_alias="CUDAOPS_BUILDS_GIB")
    """Limit of that folder in GiB; the least recently used entries are deleted."""

    capture_gib: float | None = Field(default=None, gt=0, validation_alias="CUDAOPS_CAPTURE_GIB")
    """Limit in GiB of the buffer contents that a capture on a GPU keeps for one kernel. Default:
    twice the GPU's memory. Never more than 60 % of the free disk, or an eighth of the free memory
    if the temporary folder is in memory."""

    runs: Path = Field(default=Path("runs"), validation_alias="CUDAOPS_RUNS")
    """Folder for run folders, relative to the working folder. Default: `runs`."""

    executor: ExecutorChoice = Field(default="auto", validation_alias="CUDAOPS_EXECUTOR")
    """Default of `--executor`; `auto`: the GPU if there is one."""

    gpu_driver: str = Field(default="nvidia", validation_alias="CUDAOPS_GPU_DRIVER")
    """`nvidia`, or `package.module:Class` of a stand-in driver for tests, whose times are never
    accepted (`executors/cuda/platform.py`)."""

    isolation: IsolationChoice = Field(default="auto", validation_alias="CUDAOPS_ISOLATION")
    """Confinement of programs, candidates and compilers: `auto` (the best this machine supports),
    `S1`, `S2`, `S3` (at least that) or `off`, which needs `--trust-source`."""

    database_url: SecretStr | None = Field(default=None, validation_alias="DATABASE_URL")
    """PostgreSQL with pgvector, `postgresql://user:password@host:port/name`. Default: an embedded
    server."""

    nvidia_api_key: SecretStr | None = Field(default=None, validation_alias="NVIDIA_API_KEY")
    """Key for NVIDIA NIM: the model, and embedding and reranking of the notes. Without it, static
    word vectors embed them."""

    nvidia_base_url: str | None = Field(default=None, validation_alias="NVIDIA_BASE_URL")
    """Your own NIM, with `/v1` at the end. Default: NVIDIA's hosted one."""

    nvidia_embed_url: str | None = Field(default=None, validation_alias="NVIDIA_EMBED_URL")
    """Your own NIM for the embedding model. Default: `NVIDIA_BASE_URL`."""

    nvidia_embed_model: str | None = Field(default=None, validation_alias="NVIDIA_EMBED_MODEL")
    """The embedding model. Default: that of NVIDIA's client."""

    nvidia_rerank_url: str | None = Field(default=None, validation_alias="NVIDIA_RERANK_URL")
    """Your own NIM for the reranking model. Default: NVIDIA's hosted one with a key, none with
    `NVIDIA_BASE_URL`."""

    nvidia_rerank_model: str | None = Field(default=None, validation_alias="NVIDIA_RERANK_MODEL")
    """The reranking model. Default: that of NVIDIA's client."""

    model: str | None = Field(default=None, validation_alias="CUDAOPS_MODEL")
    """Default of `--model`: `nvidia/...`, `openai:...`,
    `anthropic:...`, `google_genai:...`, `ollama:...` or `scripted:FILE`."""

    model_url: str | None = Field(default=None, validation_alias="CUDAOPS_MODEL_URL")
    """Server of that model, if not its provider's: vLLM, Ollama, a gateway."""

    model_price: str | None = Field(default=None, validation_alias="CUDAOPS_MODEL_PRICE")
    """US dollars per million tokens, `INPUT,OUTPUT[,CACHED[,WRITTEN]]`; `--max-cost` needs it if
    cudaops knows no price."""

    gpu_price: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, validation_alias="CUDAOPS_GPU_PRICE"
    )
    """US dollars per GPU hour, for a run's `cost_usd_approx`. Default: no GPU cost is given."""

    openai_api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    """Key for `openai:` models and compatible servers."""

    anthropic_api_key: SecretStr | None = Field(default=None, validation_alias="ANTHROPIC_API_KEY")
    """Key for `anthropic:` models."""

    google_api_key: SecretStr | None = Field(default=None, validation_alias="GOOGLE_API_KEY")
    """Key for `google_genai:` models."""

    server: str | None = Field(default=None, validation_alias="CUDAOPS_SERVER")
    """Address of a cudaops service, `http://host:port`, for `--executor remote`."""

    token: SecretStr | None = Field(default=None, validation_alias="CUDAOPS_TOKEN")
    """Bearer token for that service, from its `cudaops token add`; `cudaops mcp --transport http`
    requires it from callers."""

    service_folder: Path | None = Field(default=None, validation_alias="CUDAOPS_SERVICE_FOLDER")
    """Working folder of workers. Default: `service` in the cache."""

    keep_days: int | None = Field(default=None, ge=1, validation_alias="CUDAOPS_KEEP_DAYS")
    """Days after which workers remove a finished job with its artefacts. Default: never."""

    admin_token: SecretStr | None = Field(default=None, validation_alias="CUDAOPS_ADMIN_TOKEN")
    """An admin token of the service, for deployments that cannot run `cudaops token add` first. At
    least 32 characters."""

    log: Literal["text", "json"] = Field(default="text", validation_alias="CUDAOPS_LOG")
    """Log format of `serve` and `worker` on stderr: `text` or `json`."""

    dcgm_url: str | None = Field(
        default=None, pattern=r"^https?://", validation_alias="CUDAOPS_DCGM_URL"
    )
    """DCGM exporter on a worker's machine, `http://127.0.0.1:9400/metrics`; the service's
    `/metrics` includes its GPU metrics. Default: none."""

    otlp_endpoint: str | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """Endpoint for traces (OTLP over HTTP; extra `otel`). Default: no traces."""

    memory: str | None = Field(default=None, validation_alias="CUDAOPS_MEMORY")
    """Folder for the results of runs by kernel, or `off`. Default: `memory` in the user's data
    folder for cudaops; `cudaops memory path` prints it."""

    signing_key: Path | None = Field(default=None, validation_alias="CUDAOPS_SIGNING_KEY")
    """Private key (Ed25519, PEM) that signs certificates; the first use creates it. Default:
    `signing.key` in the user's configuration folder for cudaops."""

    @property
    def builds_folder(self) -> Path:
        """Where what compilers made is kept, absolute."""
        return (self.builds or self.cache / "builds").absolute()

    @property
    def builds_bytes(self) -> int:
        """The size it keeps to."""
        return int(self.builds_gib * 1024**3)

    @property
    def capture_bytes(self) -> int | None:
        """Contents that a capture may keep; None where nobody says."""
        return None if self.capture_gib is None else int(self.capture_gib * 1024**3)

    @property
    def memory_folder(self) -> Path | None:
        """Where memory is kept; None where it is switched off."""
        if self.memory is None:
            return Path(platformdirs.user_data_path("cudaops", appauthor=False)) / "memory"
        return None if self.memory == "off" else Path(self.memory)

    @property
    def knowledge_folder(self) -> Path | None:
        """Where the embedded database keeps its data: under the cache folder that was chosen.

        None where none was chosen: `cudaops.rag` then picks a place that the database's own
        account may enter, which for root is not the home folder.
        """
        return self.cache / "knowledge" if "cache" in self.model_fields_set else None


def load_settings(folder: Path | None = None) -> Settings:
    """Settings from the environment and `folder`/.env (default: the working folder).

    Raises InputError where a value cannot be used, naming the variable and never its value.
    """
    env_file = (folder or Path.cwd()) / ".env"
    try:
        return Settings(_env_file=env_file, _env_file_encoding="utf-8")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{name} cannot be used: {first['msg']}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{env_file} cannot be read: {error}") from error
