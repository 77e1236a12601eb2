"""nvcc's command lines, as builds have them, taken apart."""

from __future__ import annotations

import pytest

from cudaops.cuda.nvcc_line import (
    NvccLine,
    folders_outside,
    nvcc_words,
    preprocessor_words,
    read_nvcc_line,
    retargeted,
)


def line(text: str) -> NvccLine:
    return read_nvcc_line(text.split())


@pytest.mark.parametrize(
    ("text", "phase", "sources", "output"),
    [
        ("-O3 -arch=sm_80 -dc -Iinc -o a.o src/a.cu", "compile", ("src/a.cu",), "a.o"),
        ("--device-c src/a.cu --output-file a.o", "compile", ("src/a.cu",), "a.o"),
        ("-x cu -c /a/kernel.inl -o k.o -MD -MF k.d", "compile", ("/a/kernel.inl",), "k.o"),
        ("a.cu b.cpp c.o -lineinfo -o app -lcublas -Lfoo", "link", ("a.cu", "b.cpp"), "app"),
        ("-rdc=true main.o -L lib -l filters", "link", (), None),
        ("-lib -o liba.a a.o b.o", "lib", (), "liba.a"),
        ("-arch sm_80 -shared -dlink a.o -o d.o", "dlink", (), "d.o"),
        ("-shared a.o -o liba.so", "link", (), "liba.so"),
        ("--version", "aside", (), None),
        ("-ptx a.cu", "aside", ("a.cu",), None),
        ("-M -MT a.o a.cu -o a.d", "aside", ("a.cu",), "a.d"),
    ],
)
def test_what_a_command_makes(text: str, phase: str, sources: tuple[str, ...], output: str) -> None:
    found = line(text)
    assert (found.phase, found.sources(), found.output) == (phase, sources, output)


def test_options_by_any_name() -> None:
    found = line(
        "--include-path a,b -I c -Id --define-macro X=1 -DY -isystem e -Xcompiler=-fPIC,-Wall"
    )
    assert found.values("I") == ("a", "b", "c", "d")
    assert found.values("D") == ("X=1", "Y")
    assert found.values("isystem") == ("e",)
    assert found.host_flags() == ("-fPIC", "-Wall")


def test_a_file_of_options_stands_for_its_words() -> None:
    found = read_nvcc_line(["--options-file", "x.rsp", "-c", "a.cu"], {"x.rsp": "-DA -Iinc"}.get)  # type: ignore[arg-type]
    assert found.values("D", "I") == ("A", "inc")


def test_one_target_in_place_of_those_that_are_named() -> None:
    words = "-gencode arch=compute_70,code=sm_70 --gpu-architecture=sm_80 -code sm_80 -c a.cu"
    assert retargeted(words.split(), "sm_90") == ["-c", "a.cu", "-arch=sm_90"]


def test_what_decides_about_a_files_code() -> None:
    text = "-O3 -Iinc -I /opt/x -DN=4 --use_fast_math -std=c++20 -maxrregcount=32 -fmad=false"
    options = line(f"{text} -lineinfo").code_options()
    assert preprocessor_words(options) == ["-Iinc", "-I/opt/x", "-DN=4", "-std=gnu++20"]
    assert nvcc_words(options) == [
        "-I", "inc", "-I", "/opt/x", "-D", "N=4", "--use_fast_math", "--std=c++20",
        "--maxrregcount=32", "--fmad=false",
    ]  # fmt: skip
    assert [str(p) for p in folders_outside(options)] == ["/opt/x"]
    assert nvcc_words(line("-std=c++14").code_options()) == []  # ours is C++17
