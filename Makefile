# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
# Compiled files are kept: many tests start processes that import the library.
export PYTHONDONTWRITEBYTECODE :=
# One more than two cores: deployments wait for their processes. Each takes neighbouring tests, which share fixtures.
WORKERS ?= -n 3 --dist worksteal

.PHONY: setup demo test coverage lint docs dist test-wheel test-lowest campaign clean

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

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "the site is in site/index.html"

dist: setup
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

# Installs the wheel and the sdist, each without extras in an empty environment, and uses them.
# LENDER=.venv downloads nothing: the wheel alone is used, with what it needs borrowed from there.
test-wheel: dist
	$(PYTHON) tests/packages/use_packages.py dist $(LENDER)

# Runs the tests with the lowest versions that pyproject.toml allows; an old torch brings gigabytes of CUDA libraries.
# Left out: what needs Flower, models of others, and the pages, whose numbers are those of the newest versions.
LOWEST ?= tests/core tests/data tests/engines tests/method tests/metrics tests/models tests/parts tests/runs tests/tasks \
	tests/training tests/tuning tests/comparison tests/advice
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --constraint constraints-lowest.txt --editable '.[test]'
	.venv-lowest/bin/python -m pytest -n 2 $(LOWEST)

campaign: setup
	$(BIN)/python -m campaign --minutes 4 --out docs/reliability.md

clean:
	rm -rf .venv .venv-lowest dist site
