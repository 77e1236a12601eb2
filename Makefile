# Everything stays in this folder: the virtual environment is .venv, nothing is installed globally.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Where it is set, every process would compile cudaops and its tests anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# The first Python >= 3.11 found; 3.11 leads because constraints.txt was tested with it.
# Override it: make demo PYTHON=/path/to/python
PYTHON = $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

# A file of tests at a time, longest first (tests/lanes.py).
WORKERS ?= $(shell nproc)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Which share of the slow tests; TURN= for all of them.
TURN ?= $(shell cat .ci/turn)
AT_TURN = $(if $(TURN),--turn=$(TURN))
LANE ?= test

.PHONY: help demo test test-fast test-deep test-part durations coverage turn exploits eval-knowledge lint format wheel clean system

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS=$$'\t' read -r name text; do \
		printf '  make %-10s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.run ## Install into .venv and optimise examples/naive_matmul.cu (no GPU, no key)
	$(BIN)/python -m cudaops run examples/naive_matmul.cu

test: $(VENV)/.dev ## Install into .venv and run the tests that CI runs: of slow ones a share
	$(PYTEST) --lane=test $(AT_TURN) $(PYTEST_OPTIONS)

test-fast: $(VENV)/.dev ## Those that take less than 0.1 s each
	$(PYTEST) --lane=fast $(PYTEST_OPTIONS)

test-deep: $(VENV)/.dev ## Everything: all exploits on all executors, hypothesis in thousands of examples
	$(PYTEST) --lane=all $(PYTEST_OPTIONS)

test-part: $(VENV)/.dev ## Of what only test-deep runs, the part that is this turn's
	$(PYTEST) --lane=deep $(AT_TURN) $(PYTEST_OPTIONS)

durations: $(VENV)/.dev ## Run everything once and record how long each test takes
	$(PYTEST) --record

coverage: $(VENV)/.dev ## Lines that `make test` reaches, and those that everything does
	$(BIN)/python -m tests.coverage_of $(LANE)

turn: ## Move to the next share of the slow tests: once in every submission
	@echo $$(($$(cat .ci/turn) + 1)) > .ci/turn

exploits: $(VENV)/.dev ## Every cheat and every honest kernel of tests/exploits through all gates
	$(BIN)/python -m tests.exploits.suite

eval-knowledge: $(VENV)/.run ## Whether searches of the knowledge base find what answers a question
	$(BIN)/python benchmarks/knowledge.py quality

lint: $(VENV)/.dev ## ruff check, ruff format --check, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## Let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.run ## Build dist/cudaops-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## Remove what make made; runs/ stays
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

system:
	@command -v g++ >/dev/null || { printf '%s\n' \
		'cudaops: g++ is missing; kernels run on the processor through it. Install it:' \
		'    sudo apt-get install g++        (Debian, Ubuntu)' \
		'    sudo dnf install gcc-c++        (Fedora, RHEL)' >&2; exit 3; }
	@[ -x $(BIN)/python ] || [ -n "$(PYTHON)" ] || { printf '%s\n' \
		'cudaops: no Python 3.11 or newer found. Install one:' \
		'    sudo apt-get install python3.11 python3.11-venv      (Debian 12, Ubuntu 22.04)' \
		'    sudo dnf install python3.11                          (Fedora, RHEL)' \
		'or name one you have:  make demo PYTHON=/path/to/python3.11' >&2; exit 3; }
	@[ -x $(BIN)/python ] || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { printf '%s\n' \
		'cudaops: $(PYTHON) has no venv module. Install it:' \
		"    sudo apt-get install $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" >&2; exit 3; }

$(BIN)/python: | system
	@echo "cudaops: making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "cudaops: installing into $(VENV); the first time takes a minute or two"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "cudaops: installing the tools for tests and lint into $(VENV)"
	@$(INSTALL) --editable '.[dev]'
	@touch $@
