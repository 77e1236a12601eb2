"""Text to vectors: NeMo Retriever on NIM with a key, static vectors otherwise."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cudaops.errors import ModelUnavailable

if TYPE_CHECKING:
    from langchain_nvidia_ai_endpoints import NVIDIAEmbeddings, NVIDIARerank
    from wordllama.inference import WordLlamaInference

EMBEDDING_MODEL = "nvidia/llama-nemotron-embed-1b-v2"
"""Default of langchain-nvidia-ai-endpoints 1.5 for a hosted NIM."""

RERANK_MODEL = "nvidia/llama-nemotron-rerank-1b-v2"
"""Default of langchain-nvidia-ai-endpoints 1.5 for a hosted NIM."""


class Embedder(Protocol):
    """Turns texts into vectors of one model. Vectors of two models are never compared."""

    @property
    def model_id(self) -> str:
        """Names the model; the same id means comparable vectors."""

    @property
    def dimension(self) -> int:
        """Length of every vector. May ask the model once. Raises ModelUnavailable."""

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, in order. Raises ModelUnavailable."""

    def embed_query(self, text: str) -> list[float]:
        """The vector to search with; all zeros where the model knows no word of it.

        Raises ModelUnavailable.
        """


class Reranker(Protocol):
    """Reads question and passages together and says which passages answer it best."""

    @property
    def model_id(self) -> str:
        """Names the model."""

    def order(self, query: str, passages: Sequence[str]) -> list[int]:
        """Indices of `passages`, best first, each once. Raises ModelUnavailable."""


class WordLlamaEmbedder:
    """WordLlama's static 256-dimensional token vectors: in its wheel, no download, no network."""

    model_id = "wordllama/l2_supercat_256"
    dimension = 256

    def __init__(self) -> None:
        self._model: WordLlamaInference | None = None

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """One unit vector a text; zeros for a text with no known token."""
        if not texts:
            return []
        import numpy as np

        model = self._load()
        encoded = model.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        sums = np.zeros((len(texts), model.embedding.shape[1]), dtype=np.float32)
        for row, text in zip(sums, encoded, strict=True):
            model.embedding[text.ids].sum(axis=0, out=row)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        vectors: list[list[float]] = np.divide(sums, lengths, out=sums, where=lengths > 0).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The same as for a passage: the model is symmetric."""
        return self.embed_passages([text])[0]

    def _load(self) -> WordLlamaInference:
        if self._model is None:
            try:
                wordllama = _wordllama()
                # load() looks for the tokenizer in a folder the wheel does not have; naming the
                # package itself as the cache finds both files.
                home = Path(wordllama.__file__).parent
                self._model = wordllama.WordLlama.load(cache_dir=home, disable_download=True)
                # Its own embed() pads every text to the longest: twice the processor's time.
                self._model.tokenizer.no_padding()
            except (ImportError, OSError) as error:
                raise ModelUnavailable(
                    f"the embedding model of wordllama cannot be loaded: {error}",
                    "pip install --force-reinstall wordllama==0.4.0.post1",
                ) from error
        return self._model


def _wordllama() -> Any:
    """The package. Importing it configures the root logger, by which every library of this process
    would write to stderr (0.4.0.post1): that is taken back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        import wordllama
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return wordllama


class NvidiaEmbedder:
    """A NeMo Retriever embedding model on NIM, hosted or one's own."""

    def __init__(
        self, *, api_key: str | None, base_url: str | None = None, model: str | None = None
    ) -> None:
        """Opens no connection. `base_url` None means NVIDIA's hosted endpoint."""
        self._api_key = api_key
        self._base_url = base_url
        self._model = model or EMBEDDING_MODEL
        self._client: NVIDIAEmbeddings | None = None
        self._dimension: int | None = None

    @property
    def model_id(self) -> str:
        """`nim/` and the model's name."""
        return f"nim/{self._model}"

    @property
    def dimension(self) -> int:
        """Found by embedding one word, once."""
        if self._dimension is None:
            self._dimension = len(self.embed_passages(["kernel"])[0])
        return self._dimension

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Embedded as passages, cut at the model's limit, in batches of 50."""
        if not texts:
            return []
        try:
            vectors = self._connect().embed_documents(list(texts))
        except Exception as error:  # the client raises bare Exception
            raise self._unavailable(error) from error
        return self._checked(vectors, len(texts))

    def embed_query(self, text: str) -> list[float]:
        """Embedded as a query: NeMo Retriever models tell the two apart."""
        try:
            vector = self._connect().embed_query(text)
        except Exception as error:  # the client raises bare Exception
            raise self._unavailable(error) from error
        return self._checked([vector], 1)[0]

    def _connect(self) -> NVIDIAEmbeddings:
        if self._client is None:
            from langchain_nvidia_ai_endpoints import NVIDIAEmbeddings

            self._client = NVIDIAEmbeddings(
                model=self._model,
                api_key=self._api_key,
                base_url=self._base_url,
                truncate="END",
                usage_telemetry_enabled=False,
            )
        return self._client

    def _checked(self, vectors: list[list[float]], expected: int) -> list[list[float]]:
        lengths = {len(vector) for vector in vectors} | (
            {self._dimension} if self._dimension else set()
        )
        finite = all(math.isfinite(x) for vector in vectors for x in vector)
        if len(vectors) != expected or len(lengths) != 1 or 0 in lengths or not finite:
            raise ModelUnavailable(
                f"the embedding model {self._model} answered with unusable vectors",
                "check that the model is an embedding model and that the endpoint serves it",
            )
        return vectors

    def _unavailable(self, error: Exception) -> ModelUnavailable:
        return nim_unavailable("embedding", self._model, self._base_url, error)


class NvidiaReranker:
    """A NeMo Retriever reranking model on NIM."""

    def __init__(
        self, *, api_key: str | None, base_url: str | None = None, model: str | None = None
    ) -> None:
        """Opens no connection."""
        self._api_key = api_key
        self._base_url = base_url
        self._model = model or RERANK_MODEL
        self._client: NVIDIARerank | None = None

    @property
    def model_id(self) -> str:
        """`nim/` and the model's name."""
        return f"nim/{self._model}"

    def order(self, query: str, passages: Sequence[str]) -> list[int]:
        """Passages the model left out follow in their given order."""
        from langchain_core.documents import Document

        documents = [Document(text, metadata={"index": i}) for i, text in enumerate(passages)]
        try:
            ranked = self._connect(len(documents)).compress_documents(documents, query)
        except Exception as error:  # the client raises bare Exception
            raise nim_unavailable("reranking", self._model, self._base_url, error) from error
        best = list(dict.fromkeys(int(d.metadata["index"]) for d in ranked))
        return best + [i for i in range(len(passages)) if i not in best]

    def _connect(self, top_n: int) -> NVIDIARerank:
        if self._client is None:
            from langchain_nvidia_ai_endpoints import NVIDIARerank

            self._client = NVIDIARerank(
                model=self._model,
                api_key=self._api_key,
                base_url=self._base_url,
                truncate="END",
                usage_telemetry_enabled=False,
            )
        self._client.top_n = top_n
        return self._client


def choose_embedder(
    api_key: str | None, base_url: str | None = None, model: str | None = None
) -> Embedder:
    """NIM where there is a key or an endpoint of one's own, else the static vectors.

    `base_url` is the endpoint that serves the embedding model.
    """
    if api_key or base_url:
        return NvidiaEmbedder(api_key=api_key, base_url=base_url, model=model)
    return WordLlamaEmbedder()


def choose_reranker(
    api_key: str | None, base_url: str | None = None, model: str | None = None
) -> Reranker | None:
    """NIM where there is a key or an endpoint of one's own; None: the fused order stands."""
    if api_key or base_url:
        return NvidiaReranker(api_key=api_key, base_url=base_url, model=model)
    return None


def nim_unavailable(
    what: str, model: str, base_url: str | None, error: Exception
) -> ModelUnavailable:
    """The client's error as one with a remedy; it tells statuses apart in its text only."""
    text = str(error).strip() or type(error).__name__
    found = re.match(r"\[(\d{3})\]", text)
    status = found.group(1) if found else ""
    remedy = {
        "401": "check NVIDIA_API_KEY",
        "403": "check that NVIDIA_API_KEY may use this model",
        "404": f"check the model's name and that {base_url or 'the endpoint'} serves it",
        "429": "wait, or use a NIM of your own",
    }.get(status, f"check the network and that {base_url or 'the hosted NIM'} answers")
    first = text.splitlines()[0][:200]
    return ModelUnavailable(f"the {what} model {model} cannot be reached: {first}", remedy)
