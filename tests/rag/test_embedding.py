"""Embedders: the static one, and NIM's client against a local server that speaks its protocol."""

from __future__ import annotations

import logging
import math
import subprocess
import sys

import pytest

from cudaops.errors import ModelUnavailable
from cudaops.graph.toolbox import open_knowledge
from cudaops.rag.embedding import (
    NvidiaEmbedder,
    NvidiaReranker,
    WordLlamaEmbedder,
    choose_embedder,
)
from cudaops.rag.knowledge import Knowledge
from cudaops.settings import Settings
from tests.nim import Nim
from tests.nim import nim as nim

KEY = "test-key"


def nvidia(nim: Nim, key: str = KEY, model: str = "test/embed") -> NvidiaEmbedder:
    return NvidiaEmbedder(api_key=key, base_url=nim.url, model=model)


def test_static_vectors_need_no_network(embedder: WordLlamaEmbedder) -> None:
    near, far, query = embedder.embed_passages(
        ["shared memory bank conflicts", "a recipe for soup", "conflicts of banks in shared memory"]
    )
    assert len(query) == embedder.dimension == 256
    assert math.isclose(math.sqrt(math.fsum(x * x for x in query)), 1.0, rel_tol=1e-3)
    assert sum(a * b for a, b in zip(near, query, strict=True)) > sum(
        a * b for a, b in zip(far, query, strict=True)
    )
    assert embedder.embed_passages([]) == []
    assert all(map(math.isfinite, embedder.embed_query("")))


def test_the_static_model_leaves_the_log_as_it_was() -> None:
    looked = (
        "import logging; from cudaops.rag.embedding import WordLlamaEmbedder;"
        "WordLlamaEmbedder().embed_query('bank');"
        "root = logging.getLogger(); print(root.level, root.handlers)"
    )
    command = [sys.executable, "-c", looked]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{logging.WARNING} []\n", "")


def test_nim_gets_passages_and_queries_as_such(nim: Nim) -> None:
    embedder = nvidia(nim)
    assert embedder.dimension == 8
    nim.asked.clear()
    assert len(embedder.embed_passages([f"text {i}" for i in range(60)])) == 60
    assert len(embedder.embed_query("why")) == 8
    bodies = [asked.body for asked in nim.asked]
    kinds = [(body["input_type"], len(body["input"]), body["truncate"]) for body in bodies]
    assert kinds == [("passage", 50, "END"), ("passage", 10, "END"), ("query", 1, "END")]
    assert embedder.model_id == "nim/test/embed"


@pytest.mark.parametrize(
    ("key", "model", "remedy"),
    [("wrong", "test/embed", "NVIDIA_API_KEY"), (KEY, "other/embed", "model's name")],
)
def test_nim_refuses(nim: Nim, key: str, model: str, remedy: str) -> None:
    embedder = nvidia(nim, key, model)
    for ask in (lambda: embedder.embed_query("x"), lambda: embedder.embed_passages(["x"])):
        with pytest.raises(ModelUnavailable) as caught:
            ask()
        assert remedy in caught.value.remedy
        assert "\n" not in caught.value.problem


def test_nobody_listens() -> None:
    embedder = NvidiaEmbedder(api_key=KEY, base_url="http://127.0.0.1:1/v1", model="test/embed")
    with pytest.raises(ModelUnavailable, match="cannot be reached") as caught:
        embedder.embed_query("x")
    assert "network" in caught.value.remedy


def test_vectors_of_changing_length_are_refused(nim: Nim) -> None:
    embedder = nvidia(nim)
    assert embedder.dimension == 8
    nim.dimension = 4
    with pytest.raises(ModelUnavailable, match="unusable vectors"):
        embedder.embed_query("x")


def test_the_choice() -> None:
    assert isinstance(choose_embedder(None), WordLlamaEmbedder)
    assert isinstance(choose_embedder(KEY), NvidiaEmbedder)
    assert isinstance(choose_embedder(None, "http://127.0.0.1:1/v1"), NvidiaEmbedder)


def test_knowledge_is_embedded_by_nim(nim: Nim, database_url: str) -> None:
    knowledge = Knowledge.open(database_url=database_url, data_folder=None, embedder=nvidia(nim))
    found = knowledge.search("bank conflicts", 3, "shared_bank_conflicts")
    assert found[0].note == "shared-bank-conflicts"
    status = knowledge.status()
    assert (status.embedding_model, status.notices) == ("nim/test/embed", ())
    assert status.embedded == status.chunks > 100
    knowledge.close()


def test_knowledge_falls_back_with_a_notice(nim: Nim, database_url: str) -> None:
    knowledge = Knowledge.open(database_url=database_url, data_folder=None, embedder=nvidia(nim))
    assert knowledge.search("bank conflicts", 3)
    nim.down = True
    found = knowledge.search("bank conflicts", 3)
    assert found[0].note == "shared-bank-conflicts"
    assert len(knowledge.notices) == 1
    assert "built-in model" in knowledge.notices[0]
    assert knowledge.status().embedding_model.startswith("wordllama/")
    knowledge.close()


def test_a_reranker_orders_but_the_subtypes_page_still_leads(nim: Nim, database_url: str) -> None:
    reranker = NvidiaReranker(api_key=KEY, base_url=nim.url, model="test/rank")
    knowledge = Knowledge.open(
        database_url=database_url, data_folder=None, embedder=WordLlamaEmbedder(), reranker=reranker
    )
    lengths = [len(citation.text) for citation in knowledge.search("memory", 6)]
    assert lengths == sorted(lengths)
    assert knowledge.search("memory", 6, "fma_pipe")[0].note == "fma-pipe"
    nim.down = True
    assert len(knowledge.search("memory", 6)) == 6
    assert "not reranked" in knowledge.notices[0]
    assert knowledge.searched_with.endswith("not reranked")
    knowledge.close()


def test_settings_name_an_endpoint_for_each_model(nim: Nim, database_url: str) -> None:
    with Nim() as reranking:
        reranking.models = ("own/rank",)
        settings = Settings(
            _env_file=None,
            DATABASE_URL=database_url,
            NVIDIA_API_KEY=KEY,
            NVIDIA_EMBED_URL=nim.url,
            NVIDIA_EMBED_MODEL="test/embed",
            NVIDIA_RERANK_URL=reranking.url,
            NVIDIA_RERANK_MODEL="own/rank",
        )
        knowledge = open_knowledge(settings)
        assert knowledge.search("bank conflicts of shared memory", 3)
        assert knowledge.notices == ()
        assert knowledge.searched_with == (
            "words and vectors of nim/test/embed, reranked by nim/own/rank"
        )
        assert {asked.path for asked in reranking.asked} == {"/v1/ranking"}
        assert {asked.path for asked in nim.asked} == {"/v1/embeddings"}
        knowledge.close()


def test_a_key_for_a_nim_of_ones_own_is_not_sent_to_the_hosted_reranker(
    nim: Nim, database_url: str
) -> None:
    settings = Settings(
            _env_file=None,

        DATABASE_URL=database_url, NVIDIA_API_KEY=KEY, NVIDIA_BASE_URL=nim.url,
        NVIDIA_EMBED_MODEL="test/embed",
    )  # fmt: skip
    knowledge = open_knowledge(settings)
    assert knowledge.searched_with == "words and vectors of nim/test/embed, not reranked"
    knowledge.close()
