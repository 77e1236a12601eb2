"""Search over the real corpus: the right page, stable order, nothing a query can break."""

from __future__ import annotations

import pytest

from cudaops.cuda.subtypes import SUBTYPES
from cudaops.rag.embedding import WordLlamaEmbedder
from cudaops.rag.knowledge import Knowledge
from cudaops.rag.retrieval import PASSAGES_PER_NOTE, search
from cudaops.rag.store import Store

PARAPHRASES = {
    "fma_pipe": "the multiply-add units are saturated, how to do less arithmetic",
    "fp64_pipe": "float kernel accidentally computes in double precision",
    "tensor_pipe": "tensor cores are busy nearly every cycle",
    "sfu_pipe": "too many expf and divisions, special function units are the limit",
    "integer_pipe": "index computations with modulo and division dominate the instructions",
    "issue_slots": "schedulers issue every cycle and no pipe is saturated",
    "divergence": "threads of a warp take different branches",
    "l1_load_throughput": "naive matrix multiplication saturates the load path into L1 with hits",
    "shared_throughput": "shared memory data path full without bank conflicts",
    "l2_bandwidth": "blocks re-read the same data from the L2 cache",
    "dram_bandwidth": "streaming kernel limited by device memory bandwidth, fuse kernels",
    "uncoalesced_access": "strided global loads touch too many sectors per request",
    "shared_bank_conflicts": "column access of a shared tile serialises on one bank",
    "register_spills": "local memory traffic because values do not fit into registers",
    "atomic_contention": "histogram where all threads add to few addresses",
    "occupancy_registers": "too many registers per thread, few warps resident",
    "occupancy_shared": "shared memory per block lets only one block live on an SM",
    "occupancy_block_size": "blocks of 32 threads reach the maximum number of blocks per SM",
    "occupancy_grid": "fewer blocks than multiprocessors, part of the GPU is idle",
    "low_parallelism": "nothing is busy, not enough eligible warps to hide latency",
    "stall_long_scoreboard": "warps wait for global loads to return, prefetch",
    "stall_short_scoreboard": "warps wait for the result of shared memory loads",
    "stall_mio_throttle": "shared memory instruction queue is full",
    "stall_lg_throttle": "queue of global and local memory instructions is full",
    "stall_barrier": "warps wait at __syncthreads for the slowest",
    "stall_membar": "__threadfence makes warps wait until writes are visible",
    "stall_branch": "short loops and switch statements, waiting for branch targets",
    "stall_wait": "dependent chain of instructions with one accumulator",
    "tail_effect": "the last wave of blocks is only partly filled",
    "many_waves": "hundreds of waves of tiny blocks that each do almost nothing",
    "launch_bound": "many tiny kernels, overhead of launching",
    "near_peak": "kernel is close to the roofline already",
    "unknown": "metrics are missing, no rule fired, what to collect",
}


def test_a_paraphrase_for_every_subtype() -> None:
    assert set(PARAPHRASES) == set(SUBTYPES)


@pytest.mark.parametrize("subtype", sorted(SUBTYPES))
def test_the_subtypes_own_page_leads(knowledge: Knowledge, subtype: str) -> None:
    query = SUBTYPES[subtype].title  # type: ignore[index]
    found = knowledge.search(query, 5, subtype)
    assert found[0].note == subtype.replace("_", "-")
    assert len({citation.note for citation in found}) >= 2


@pytest.mark.parametrize("subtype", sorted(SUBTYPES))
def test_the_name_alone_finds_it_first(knowledge: Knowledge, subtype: str) -> None:
    found = knowledge.search(subtype.replace("_", " "), 5)
    assert subtype.replace("_", "-") in [citation.note for citation in found][:3]


@pytest.mark.parametrize("subtype", sorted(SUBTYPES))
def test_other_words_find_it_among_the_first_three_notes(
    knowledge: Knowledge, subtype: str
) -> None:
    found = knowledge.search(PARAPHRASES[subtype], 8)
    notes = list(dict.fromkeys(citation.note for citation in found))[:3]
    assert subtype.replace("_", "-") in notes


def test_citations_are_complete_and_the_order_is_stable(knowledge: Knowledge) -> None:
    first = knowledge.search("how to hide memory latency", 10)
    assert first == knowledge.search("how to hide memory latency", 10)
    assert [c.score for c in first] == sorted((c.score for c in first), reverse=True)
    assert all(c.title and c.heading and c.text and c.source for c in first)
    for citation in first:
        assert sum(c.note == citation.note for c in first) <= PASSAGES_PER_NOTE


def test_an_empty_corpus_gives_an_empty_list(store: Store, embedder: WordLlamaEmbedder) -> None:
    assert search(store, embedder, "anything", 5, "fma_pipe") == []


@pytest.mark.parametrize(
    "query",
    [
        "'; DROP SCHEMA cudaops_knowledge CASCADE; --",
        "%s %(query)s {nearest} $1",
        "a & b | !c <-> d:* ( ' \\' \\",
        "",
        "   ",
        "\0\ud800 memory",
        "the of and",
        "🙂🙂🙂",
        "word " * 50_000,
        "http://host/path?a=1&b=2 & 'x & y'",
    ],
)
def test_hostile_queries_are_only_text(knowledge: Knowledge, query: str) -> None:
    before = knowledge.status()
    assert len(knowledge.search(query, 5)) <= 5
    assert len(knowledge.search("memory", 5, query)) == 5
    assert knowledge.status() == before


def test_limits(knowledge: Knowledge) -> None:
    assert knowledge.search("memory", 0) == ()
    assert len(knowledge.search("memory", 1)) == 1
