# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
# Compiled files are kept: many tests start processes that import the library.
export PYTHONDONTWRITEBYTECODE :=
# One more than two cores: deployments wait for their processes. Each takes neighbouring tests, which share fixtures.
WORKERS ?= -n 3 --dist worksteal

.PHONY: setup demo test coverage lint campaign clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch .venv/ready

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(BIN)/python -m pytest $(WORKERS)

coverage: setup
	$(BIN)/python -m pytest $(WORKERS) --cov=holdfast --cov-report=term-missing:skip-covered --cov-fail-under=90

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

campaign: setup
	$(BIN)/python -m campaign --minutes 4 --out docs/reliability.md

clean:
	rm -rf .venv
