# Every target sets up what it needs in .venv; a second call only does what changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-slow lint bench reproduce docs clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Consilience needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing Consilience into $(VENV) (a minute or two, once) ..."
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo "Installing Consilience and what 'make $*' needs into $(VENV) (a minute or two, once) ..."
	$(PIP) -e '.[$*]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	@$(BIN)/consilience run gmm --out "demo/$$(date +%Y%m%d-%H%M%S)"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(VENV)/.installed-test
	$(BIN)/pytest -n 2 --dist worksteal -m slow

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks

reproduce: $(VENV)/.installed
	@$(BIN)/consilience reproduce --out runs/reproduce

docs: $(VENV)/.installed-docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
