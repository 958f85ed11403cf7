# Everything a fresh machine needs is installed here, by package name, into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Some minutes of tests, most of them with real processes, spread over the cores there are.
JOBS ?= auto
CODE := src tests bench examples docs

.PHONY: demo test format lint types docs check interop bench clean

demo: $(VENV)/.installed
	$(BIN)/acphold demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(JOBS) -m "not interop" $(PYTEST)

format: $(VENV)/.installed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lint: $(VENV)/.installed
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

types: $(VENV)/.installed
	$(BIN)/mypy

# The API page, from the docstrings.
docs: $(VENV)/.installed
	$(BIN)/python -m docs.api_reference

check: lint types test

# Real agents and clients of others: some hundred megabytes of downloads, kept in .interop.
interop: $(VENV)/.installed
	$(BIN)/python -m pytest -m interop $(PYTEST)

bench: $(VENV)/.installed
	$(BIN)/python -m bench $(BENCH)

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

clean:
	rm -rf $(VENV) .interop .npm .mypy_cache .pytest_cache .ruff_cache .hypothesis
