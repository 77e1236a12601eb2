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
    """Folder for what compilers made, where several users of one account or a test suite share it.
    Not set: `builds` under the cache."""

    builds_gib: float = Field(default=4.0, gt=0, validation_alias="CUDAOPS_BUILDS_GIB")
    """Size in GiB that this folder keeps to; what was unused for longest goes first."""

    capture_gib: float | None = Field(default=None, gt=0, validation_alias="CUDAOPS_CAPTURE_GIB")
    """Contents of one kernel's launches, before and after, that a capture on a GPU may keep, in
    GiB. Not set: twice what the GPU's memory holds. Never more than 60 % of the free disk, or an
    eighth of the free memory where the temporary folder is in memory."""

    runs: Path = Field(default=Path("runs"), validation_alias="CUDAOPS_RUNS")
    """Folder under which every run gets a folder of its own, relative to the working folder."""

    executor: ExecutorChoice = Field(default="auto", validation_alias="CUDAOPS_EXECUTOR")
    """Where kernels run when `--executor` is not given. `auto`: on the GPU where there is one."""

    gpu_driver: str = Field(default="nvidia", validation_alias="CUDAOPS_GPU_DRIVER")
    """`nvidia`, or `package.module:Class` of a platform with a driver of its own
    (`executors/cuda/platform.py`), for tests: the times of what is no GPU accept nothing."""

    isolation: IsolationChoice = Field(default="auto", validation_alias="CUDAOPS_ISOLATION")
    """How well programs, candidates and compilers are confined (docs/isolation.md). `off` needs
    `--trust-source` as well."""

    database_url: SecretStr | None = Field(default=None, validation_alias="DATABASE_URL")
    """PostgreSQL with pgvector, `postgresql://user:password@host:port/name`. Not set: the embedded
    server keeps the knowledge."""

    nvidia_api_key: SecretStr | None = Field(default=None, validation_alias="NVIDIA_API_KEY")
    """Key for NVIDIA NIM. Not set: static word vectors from a wheel embed the knowledge."""

    nvidia_base_url: str | None = Field(default=None, validation_alias="NVIDIA_BASE_URL")
    """A NIM of one's own, with `/v1` at the end. Not set: NVIDIA's hosted one."""

    nvidia_embed_url: str | None = Field(default=None, validation_alias="NVIDIA_EMBED_URL")
    """A NIM of one's own that serves the embedding model. Not set: `NVIDIA_BASE_URL`."""

    nvidia_embed_model: str | None = Field(default=None, validation_alias="NVIDIA_EMBED_MODEL")
    """The embedding model. Not set: the default of NVIDIA's client."""

    nvidia_rerank_url: str | None = Field(default=None, validation_alias="NVIDIA_RERANK_URL")
    """A NIM of one's own that serves the reranking model. Not set: NVIDIA's hosted one with a key,
    none where `NVIDIA_BASE_URL` names one's own."""

    nvidia_rerank_model: str | None = Field(default=None, validation_alias="NVIDIA_RERANK_MODEL")
    """The reranking model. Not set: the default of NVIDIA's client."""

    model: str | None = Field(default=None, validation_alias="CUDAOPS_MODEL")
    """Model that proposes rewrites when `--model` is not given: `nvidia/...`, `openai:...`,
    `anthropic:...`, `google_genai:...`, `ollama:...` or `scripted:FILE`."""

    model_url: str | None = Field(default=None, validation_alias="CUDAOPS_MODEL_URL")
    """Server of that model where it is not its provider's own: vLLM, Ollama, a gateway."""

    model_price: str | None = Field(default=None, validation_alias="CUDAOPS_MODEL_PRICE")
    """US dollars per million tokens, `INPUT,OUTPUT[,CACHED[,WRITTEN]]`; needed for `--max-cost`
    where cudaops knows no price."""

    gpu_price: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, validation_alias="CUDAOPS_GPU_PRICE"
    )
    """US dollars for an hour of the GPU, for a run's `cost_usd_approx`. Not set: what a GPU cost
    is not said."""

    openai_api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    """Key for `openai:` models, and for servers that speak its protocol."""

    anthropic_api_key: SecretStr | None = Field(default=None, validation_alias="ANTHROPIC_API_KEY")
    """Key for `anthropic:` models."""

    google_api_key: SecretStr | None = Field(default=None, validation_alias="GOOGLE_API_KEY")
    """Key for `google_genai:` models."""

    server: str | None = Field(default=None, validation_alias="CUDAOPS_SERVER")
    """Address of a cudaops service, `http://host:port`, for `--executor remote`."""

    token: SecretStr | None = Field(default=None, validation_alias="CUDAOPS_TOKEN")
    """Bearer token for that service (`cudaops token add` on its side makes one)."""

    service_folder: Path | None = Field(default=None, validation_alias="CUDAOPS_SERVICE_FOLDER")
    """Folder in which workers keep what they are working on. Not set: `service` under the cache."""

    keep_days: int | None = Field(default=None, ge=1, validation_alias="CUDAOPS_KEEP_DAYS")
    """Days after which the service's workers remove a job that has ended, with its artefacts. Not
    set: never."""

    admin_token: SecretStr | None = Field(default=None, validation_alias="CUDAOPS_ADMIN_TOKEN")
    """Token that a service accepts for everything from its first start on; for deployments that
    cannot run `cudaops token add` first. At least 32 characters."""

    log: Literal["text", "json"] = Field(default="text", validation_alias="CUDAOPS_LOG")
    """How `serve` and `worker` write their log to stderr."""

    dcgm_url: str | None = Field(
        default=None, pattern=r"^https?://", validation_alias="CUDAOPS_DCGM_URL"
    )
    """Page of a DCGM exporter on a worker's machine, `http://127.0.0.1:9400/metrics`; what it says
    of the GPUs is served by `/metrics` too. Not set: none is asked."""

    otlp_endpoint: str | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """Where traces go (OTLP over HTTP; extra `otel`). Not set: nowhere."""

    memory: str | None = Field(default=None, validation_alias="CUDAOPS_MEMORY")
    """Folder for what runs learn about kernels, or `off`. Not set: `memory` in the user's data
    folder for cudaops (`cudaops memory path`)."""

    signing_key: Path | None = Field(default=None, validation_alias="CUDAOPS_SIGNING_KEY")
    """Private key (Ed25519, PEM) that signs certificates, made there on first use. Not set:
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
