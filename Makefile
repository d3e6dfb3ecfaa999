# Every target sets up what it needs in .venv; a second call only does what changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-slow test-numpyro lint bench reproduce yardstick docs clean

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

demo: $(VENV)/.installed-page
	@$(BIN)/consilience run gmm --out "demo/$$(date +%Y%m%d-%H%M%S)"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A worker more than cores: quick tests wait for disks and processes a third of their time.
test: lint
	$(BIN)/pytest -n 3 --dist worksteal -m "not slow"

test-slow: $(VENV)/.installed-test
	$(BIN)/pytest -n 2 --dist worksteal -m slow

# Both ends of the range in pyproject.toml, each installed beside .venv; 0.22.* is the newest that was tried.
test-numpyro: $(VENV)/.installed-test
	for version in 0.21.0 '0.22.*'; do \
		$(PIP) --no-deps --upgrade --target build/numpyro "numpyro==$$version" && \
		PYTHONPATH=build/numpyro $(BIN)/pytest tests/adapters -m "not slow" || exit 1; \
	done

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks

reproduce: $(VENV)/.installed
	@$(BIN)/consilience reproduce --out runs/reproduce

# Where tests look too for files that are not inside the package, as that of diamonds; CONSILIENCE_DATA has the say.
yardstick: export CONSILIENCE_DATA ?= $(wildcard ../shared/data)
yardstick: $(VENV)/.installed
	@$(BIN)/consilience run posteriordb --graph ring,path,star,complete --split natural,random --out runs/yardstick

docs: $(VENV)/.installed-docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
