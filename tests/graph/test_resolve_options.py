"""What was asked for becomes RunOptions: where, by whom, into which folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.errors import InputError
from cudaops.graph import resolve_options
from cudaops.settings import Settings


def test_target_follows_from_either_option() -> None:
    assert resolve_options.target(None, None)[:3] == ("cpu", "A10", "sm_86")
    assert resolve_options.target("h200", None).device == "H200"
    assert resolve_options.target(None, "sm_86")[:3] == ("cpu", "A10", "sm_86")
    assert resolve_options.target("H200", "sm_86")[:3] == ("cpu", "H200", "sm_86")


def test_where_a_run_happens() -> None:
    assert resolve_options.place("cuda", None, None) == ("cuda", "", "", None)
    assert resolve_options.place("cuda", None, "sm_90a") == ("cuda", "", "sm_90a", None)
    assert resolve_options.place("auto", "L4", None)[:3] == ("cpu", "L4", "sm_89")
    with pytest.raises(InputError, match="on cuda it is the GPU's own"):
        resolve_options.place("cuda", "A10", None)
    with pytest.raises(InputError, match="an nvcc target looks like sm_86"):
        resolve_options.place("cuda", None, "90")


def test_new_folder_names_the_kernel_and_never_reuses(tmp_path: Path) -> None:
    first = resolve_options.new_folder(None, tmp_path, Path("x/naive matmul.cu"), None)
    assert first.parent == tmp_path / "naive_matmul"
    first.mkdir(parents=True)
    assert resolve_options.new_folder(None, tmp_path, Path("x/naive matmul.cu"), None) != first
    named = resolve_options.new_folder(None, tmp_path, Path("a.cu"), "ns::k")
    assert named.parent == tmp_path / "ns_k"


def test_who_proposes() -> None:
    without = Settings()
    assert resolve_options.choose("recipes", None, without) == resolve_options.Proposer()
    assert resolve_options.choose("auto", None, without).no_model == resolve_options.NO_MODEL
    named = resolve_options.choose("auto", "scripted:answers.json", without)
    assert (named.optimizer, named.model, named.no_model) == ("llm", "scripted:answers.json", None)
    with pytest.raises(InputError, match="recipes ask no model"):
        resolve_options.choose("recipes", "scripted:answers.json", without)
