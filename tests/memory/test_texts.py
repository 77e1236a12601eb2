"""Memory as it is shown: in a prompt bounded and stable; one line a result, no time without its
source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cudaops.domain.memory import MemoryEntry, Pattern
from cudaops.memory.results import Avoided, KernelMemory
from cudaops.memory.texts import document, estimated_tokens, patterns_text, prompt_text
from tests.memory.made import KEY, any_entry, entry


def known(
    *entries: MemoryEntry, notes: str = "", avoided: tuple[Avoided, ...] = ()
) -> KernelMemory:
    return KernelMemory(key=KEY, entries=entries, notes=notes, avoided=avoided)


def test_nothing_known_is_no_text() -> None:
    assert prompt_text(known(), 1000) == ""
    assert patterns_text((), 1000) == ""


def test_notes_then_what_paid_best_first_then_what_did_not() -> None:
    group = Avoided(
        subtype="stall_barrier", family="fusion", gate="compile", source_ids=("a", "b"),
        lesson="no such function",
    )  # fmt: skip
    text = prompt_text(
        known(
            entry(
                1,
                title="first",
                lesson="first one: good",
                speedup=1.5,
                outcome="accepted",
                time_source="cuda_event",
            ),
            entry(2, title="second", speedup=4.0),
            entry(3, title="3rd", outcome="rejected", lesson="l"),
            entry(
                4,
                title="fourth",
                outcome="rejected",
                gate="compile",
                speedup=None,
                time_source=None,
            ),
            notes="N is always 1024",
            avoided=(group,),
        ),
        1000,
    )
    assert text.splitlines() == [
        "Notes of the user:",
        "N is always 1024",
        "Paid:",
        "- tiling against l1_load_throughput, provisional at 4.00x modelled: second: lesson 2",
        "- tiling against l1_load_throughput, accepted at 1.50x measured: first one: good",
        "Rejected:",
        "- tiling against l1_load_throughput, rejected by gate compile: fourth: lesson 4",
        "- tiling against l1_load_throughput, rejected at 0.90x modelled by gate speedup: 3rd: l",
        "- fusion against stall_barrier: 2 rejected by gate compile; the last: no such function",
    ]


def test_a_rewrite_stands_there_once() -> None:
    text = prompt_text(known(entry(1), entry(1, speedup=3.0)), 1000)
    assert text.count("tiling number 1") == 1
    assert "3.00x" in text
    confirmed = entry(1, outcome="rejected", time_source="cuda_event")
    text = prompt_text(known(confirmed, entry(1)), 1000)
    assert "Paid" not in text


@given(st.lists(any_entry(), max_size=8), st.text(max_size=300), st.integers(0, 300))
def test_no_text_is_longer_than_its_limit_or_has_control_characters(
    entries: list[MemoryEntry], notes: str, limit: int
) -> None:
    memory = known(*entries, notes=notes)
    text = prompt_text(memory, limit)
    assert text == "" or estimated_tokens(text) <= limit
    assert all(line.isprintable() for line in text.split("\n"))
    assert prompt_text(memory, limit) == text


def test_what_does_not_fit_is_counted() -> None:
    memory = known(*(entry(n) for n in range(20)), notes="\n".join(["a word or two"] * 50))
    text = prompt_text(memory, 300)
    assert "a word or two\n(" in text
    cut = [line for line in text.splitlines() if line.endswith("more lines are not shown)")]
    assert len(cut) == 2
    shown = sum(line.startswith("- tiling") for line in text.splitlines())
    assert 0 < shown < 20
    assert cut[1] == f"({20 - shown} more lines are not shown)"


def test_the_users_counter_of_tokens_is_used() -> None:
    memory = known(*(entry(n) for n in range(20)))
    words = prompt_text(memory, 60, lambda text: len(text.split()))
    assert len(words.split()) <= 60
    assert len(words) > len(prompt_text(memory, 60))


def test_patterns_are_one_line_each_with_their_source() -> None:
    pattern = Pattern(
        subtype="dram_bandwidth", family="tiling", device_class="sm_86", tried=3, paid=2,
        best_speedup=4.0, median_speedup=3.0,
    )  # fmt: skip
    measured = pattern.model_copy(update={"measured": 1, "device_class": "sm_90"})
    failed = pattern.model_copy(update={"paid": 0, "best_speedup": None, "median_speedup": None})
    assert patterns_text((measured, pattern, failed), 1000).splitlines() == [
        "- against dram_bandwidth on sm_90, tiling: 2 of 3 paid, median 3.00x, best 4.00x measured",
        "- against dram_bandwidth on sm_86, tiling: 2 of 3 paid, median 3.00x, best 4.00x modelled",
        "- against dram_bandwidth on sm_86, tiling: 0 of 3 paid",
    ]
    assert estimated_tokens(patterns_text((pattern,) * 99, 200)) <= 200


def test_a_person_is_shown_all_of_it() -> None:
    group = Avoided(
        subtype="stall_barrier", family="fusion", gate="compile", measured=True,
        source_ids=("a", "b"), lesson="no such function",
    )  # fmt: skip
    made = entry(7, title="a | b", outcome="rejected", lesson="two\nlines")
    untimed = entry(8, speedup=None, time_source=None, lesson="\x1b[31mred")
    assert document(known(made, untimed, notes="mine\nours", avoided=(group,))).splitlines() == [
        "# naive_matmul on sm_86",
        "",
        "structure 0123456789abcdef",
        "",
        "## Notes",
        "",
        "mine",
        "ours",
        "",
        "## Avoid",
        "",
        (
            "- avoid 2x | stall_barrier | fusion | gate compile | measured | sources a b"
            " | no such function"
        ),
        "",
        "## Tried",
        "",
        (
            "- 2026-11-20T08:00:07Z | rejected | 0.90x modelled | l1_load_throughput | tiling"
            " | a | b | by llm:nvidia/nemotron | run naive_matmul/20261120T080000Z"
            " | source 000000000007 | gate speedup | two lines"
        ),
        (
            "- 2026-11-20T08:00:08Z | provisional | untimed | l1_load_throughput | tiling"
            " | tiling number 8 | by llm:nvidia/nemotron | run naive_matmul/20261120T080000Z"
            " | source 000000000008 | gate - |  [31mred"
        ),
    ]
