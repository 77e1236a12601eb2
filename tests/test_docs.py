"""What the documents say exists, and what exists is documented."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from cudaops.cli import COMMANDS, app, document
from cudaops.settings import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "cli.md").read_text("utf-8")
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
)


def commands() -> dict[str, set[str]]:
    """Every command of the CLI with its options."""
    return {
        name: {opt for param in leaf.params for opt in param.opts if opt.startswith("--")}
        for name, leaf in document.leaves().items()
    }


def settings() -> set[str]:
    return {str(field.validation_alias) for field in Settings.model_fields.values()}


@pytest.mark.parametrize("command", commands())
def test_every_command_is_documented_and_has_help(command: str) -> None:
    assert f"`cudaops {command}" in REFERENCE
    leaf = get_command(app)
    for word in command.split():
        leaf = leaf.commands[word]  # type: ignore[attr-defined]
    assert leaf.help


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_line_in_help_is_the_first_of_its_own_help(name: str) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    assert command.help.splitlines()[0] == COMMANDS[name].summary


def test_every_option_is_documented_where_its_command_is() -> None:
    """In the page as it is, and as `python -m cudaops.cli.document` writes it now."""
    for page in (REFERENCE, document.page()):
        sections = dict(
            re.findall(r"^## cudaops ([a-z ]+)\n(.*?)(?=^## )", page, flags=re.M | re.S)
        )
        assert set(sections) == set(commands())
        for name, options in commands().items():
            assert {o for o in options if not re.search(rf"[` ]{o}\b", sections[name])} == set()


def test_the_reference_links_from_commands_and_options_that_exist() -> None:
    named = {name for name in document.READ_ON if name.isupper()}
    assert named <= settings()
    words = {f"{name} {option}" for name, options in commands().items() for option in options}
    assert set(document.READ_ON) - named <= {*commands(), *words}


def test_readme_and_reference_name_no_command_that_does_not_exist() -> None:
    text = re.sub(r"^```.*?^```", "", README + REFERENCE, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"cudaops ([a-z]+(?: [a-z]+)?)", " ".join(re.findall(r"`[^`]+`", text))))
    fenced = "\n".join(re.findall(r"^```sh\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL))
    named |= set(re.findall(r"^cudaops ([a-z]+)", fenced, flags=re.MULTILINE))
    known = set(commands()) | {name.split()[0] for name in commands()}
    assert {name for name in named if name not in known and name.split()[0] not in known} == set()


def test_every_setting_is_documented_and_in_the_example() -> None:
    example = (ROOT / ".env.example").read_text("utf-8")
    in_example = set(re.findall(r"^#?([A-Z_]+)=", example, flags=re.MULTILINE))
    compose = (ROOT / "docker-compose.yml").read_text("utf-8")
    of_compose = set(re.findall(r"\$\{([A-Z_]+)", compose))
    assert in_example == settings() | of_compose
    assert {name for name in settings() if f"`{name}`" not in REFERENCE} == set()
    assert all(field.description for field in Settings.model_fields.values())


def test_the_two_commands_of_the_first_screen_are_make_targets() -> None:
    first_screen = "\n".join(README.splitlines()[:40])
    named = set(
        re.findall(
            r"\bmake ([a-z-]+)", first_screen + (ROOT / "CONTRIBUTING.md").read_text("utf-8")
        )
    )
    assert {"demo", "test"} <= named
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)
    )
    assert named <= targets
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_transcript_is_there_and_says_modelled() -> None:
    transcript = README.split("<!-- transcript:begin -->")[1].split("<!-- transcript:end -->")[0]
    assert "python -m cudaops run examples/naive_matmul.cu" in transcript
    assert "PROVISIONAL" in transcript
    assert "(modelled for A10)" in transcript
    assert re.search(r"/(root|home|work|tmp)/", transcript) is None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_documents_point_at_exists(document: Path) -> None:
    text = document.read_text("utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"
    # What a page has its reader write (tests/test_adding.py follows it) is not there yet.
    written = set(re.findall(r"^```python (\S+)$", text, flags=re.MULTILINE))
    for named in re.findall(r"`((?:cudaops|tests|docs|examples|benchmarks)/[\w./-]+)`", text):
        exists = named in written or (ROOT / named).exists()
        assert exists, f"{document.name} names {named}"


def anchors(document: Path) -> set[str]:
    """GitHub's anchors of a page's headings: lower case, words and hyphens."""
    text = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_headings_that_links_name_exist(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text("utf-8"))
    pages = [(document.parent / page if page else document, anchor) for page, anchor in links]
    assert [f"{page.name}#{a}" for page, a in pages if a not in anchors(page)] == []


def test_vocabulary_defines_every_word_it_uses_in_the_code() -> None:
    words = re.findall(
        r"^\| (\w+) \|", (ROOT / "docs" / "vocabulary.md").read_text("utf-8"), flags=re.MULTILINE
    )
    source = "\n".join(p.read_text("utf-8") for p in (ROOT / "cudaops").rglob("*.py"))
    capitalised = [word for word in words if word[0].isupper()]
    assert len(capitalised) > 10
    assert [word for word in capitalised if word not in source and word.lower() not in source] == []


def test_compose_file_is_complete() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    postgres = compose["services"]["postgres"]
    assert re.fullmatch(r"pgvector/pgvector:[\d.]+-pg17", postgres["image"])
    assert "pg_isready" in " ".join(postgres["healthcheck"]["test"])
    volume = postgres["volumes"][0].split(":")[0]
    assert volume in compose["volumes"]
    assert all(port.startswith("127.0.0.1:") for port in postgres["ports"])
    assert "${POSTGRES_PASSWORD:?" in postgres["environment"]["POSTGRES_PASSWORD"]


def test_make_help_lists_the_targets() -> None:
    done = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    for target in ("demo", "test", "test-fast", "lint", "wheel", "clean"):
        assert f"make {target}" in done.stdout
