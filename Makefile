# Everything a fresh machine needs is made here: Python 3.11+, make and a C++17 compiler are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo test lint format types unit corpus bench clean
.DEFAULT_GOAL := demo

$(STAMP): pyproject.toml src/crossrank/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit("crossrank needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## a real training step: its collectives on our kernels, compared with XLA's own run
	$(BIN)/crossrank run examples/sp_megatron_train.hlo --inputs examples/sp_megatron_train.npz

test: lint types unit  ## all checks

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

corpus: $(STAMP)  ## every module of the corpus through every pass and pipeline, values compared: docs/corpus.md
	$(BIN)/python -m tests.corpus_table -o docs/corpus.md

bench: $(STAMP)  ## ours against XLA:CPU's own collectives and the memory floor
	$(BIN)/python benchmarks/collectives.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
