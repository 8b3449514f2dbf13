# make train   install into .venv and train the shipped model with Never Give Up and leverage (a few minutes on two cores)
# make test    the quick tests (under eight minutes)
# make check   lint, types, import contracts

PYTHON ?= python3
VENV ?= .venv
# A CUDA machine may want another build: make train TORCH=torch
TORCH ?= torch==2.13.0
ARGS ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install train test test-slow test-gpu check format docs clean

train: $(STAMP)
	$(BIN)/gumption train $(ARGS)

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not gpu" $(ARGS)

test-slow: $(STAMP)
	OMP_NUM_THREADS=2 $(BIN)/python -m pytest -m "slow and not gpu" $(ARGS)

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gumption needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }
	@echo "installing into $(VENV) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet "$(TORCH)"
	@$(BIN)/python -m pip install --quiet --editable ".[all]" --group dev
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
