# Everything a fresh machine needs is installed here, by package name, into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Many tests wait, so two more run at once than there are cores; of the quick ones of `test` four
# more, of `interop` six, and of `slow` three times as many. ONE_IN=3 runs a third of the chosen tests.
# Each worker first imports all tests, which takes 6 s of CPU.
JOBS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')
CODE := src wire check tests bench examples docs release
PAGE := src/acphold/web/page

.PHONY: demo page pictures test format lint types docs conformance compared check slow heldout postgresql interop soak release bench clean

demo: $(VENV)/.product
	$(BIN)/acphold demo

# Some hundred programs are started, each of which compiles what it imports if that is not kept.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.compiled $(PAGE)/node_modules/.package-lock.json
	$(BIN)/python -m pytest -n $$(($(JOBS) + 2)) --dist worksteal -m "not interop and not slow and not postgresql" $(PYTEST)

format: $(VENV)/.installed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lint: $(VENV)/.installed
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

types: $(VENV)/.installed $(PAGE)/node_modules/.package-lock.json
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PAGE)/node_modules/.bin/tsc --project $(PAGE)
	$(MAKE) --jobs 2 mypy mypy-darwin pyright public-types

.PHONY: mypy mypy-darwin pyright public-types
mypy:; $(BIN)/mypy
mypy-darwin:; $(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin src
pyright:; $(BIN)/pyright
public-types:; $(BIN)/python -m tests.public_types

# The API page, from the docstrings; the page of rules, from the rules; the tables of options, and those
# that the page shares with the terminal.
docs: $(VENV)/.installed
	$(BIN)/python -m docs.api_reference
	cd check && ../$(BIN)/python -m docs.rule_tables
	$(BIN)/python -m docs.option_tables
	$(BIN)/python -m docs.page_tables

# Those of the README, of a real run. A test says when they are not what a run gives.
pictures: $(VENV)/.installed
	PYTHONPATH=wire $(BIN)/python -m docs.pictures

# Our own agents, before and behind wrap, and behind serve: they fail nothing. Most of it is waiting,
# so all are asked at once, the longest first; what each says stands together.
CHECKS := http websocket library-behind-wrap library agent-behind-wrap agent
.PHONY: $(CHECKS:%=conforms-%)
conformance: export PYTHONDONTWRITEBYTECODE =
conformance: $(VENV)/.installed
	$(MAKE) --jobs 6 $(CHECKS:%=conforms-%)

ACPHOLD := $(BIN)/acphold
BEHIND := --baseline check/tests/behind_acphold.txt
LIBRARY_BEHIND := --baseline check/tests/library_behind_acphold.txt
SERVED := --baseline check/tests/at_serve.txt
define checked
set -e; folder=$$(mktemp -d); trap '$(ACPHOLD) agent stop --all --yes 2>/dev/null; rm -rf "$$folder"' EXIT; \
export ACPHOLD_JOURNAL=$$folder/journal.db XDG_STATE_HOME=$$folder XDG_RUNTIME_DIR=$$folder; \
conforms() { $(ACPHOLD) check --fail-on expected --timeout 30 "$$@" >$$folder/said 2>&1 || failed=$$?; cat $$folder/said; return $${failed:-0}; };
endef
define served
$(checked) \
mkfifo $$folder/told; \
$(ACPHOLD) serve --json --listen 127.0.0.1:0 -- $(ACPHOLD) agent demo >$$folder/told & \
trap 'kill $$!; wait $$!; rm -rf "$$folder"' EXIT; \
read -r told <$$folder/told; \
url=$$(echo "$$told" | sed 's/.*"url": "\([^"]*\)".*/\1/');
endef
conforms-agent:; $(checked) conforms -- $(ACPHOLD) agent demo
conforms-agent-behind-wrap:; $(checked) conforms $(BEHIND) -- $(ACPHOLD) wrap -- $(ACPHOLD) agent demo
conforms-library:; $(checked) conforms -- $(ACPHOLD) agent run examples/echo.py
conforms-library-behind-wrap:; $(checked) conforms $(LIBRARY_BEHIND) -- $(ACPHOLD) wrap -- $(ACPHOLD) agent run examples/echo.py
conforms-websocket:; $(served) conforms $(SERVED) --server "$$url"
conforms-http:; $(served) conforms $(SERVED) --server "$$url?transport=http"

check: lint types test slow postgresql conformance

# Processes that are killed, stopped and flooded, tests that start many, and files of hundreds of
# megabytes. One at a time is handed out, those that wait for minutes (of the check) first.
slow: export PYTHONDONTWRITEBYTECODE =
slow: $(VENV)/.compiled
	$(BIN)/python -m pytest -n $$(($(JOBS) * 3)) --dist load --maxschedchunk 1 -m slow $(PYTEST)

# The correct client with all its oddities, and all faulty agents with all rules; `slow` has a
# sixteenth of them at each commit, in turn.
heldout: export HELDOUT = all
heldout: $(VENV)/.installed
	$(BIN)/python -m pytest -n $$(($(JOBS) * 3)) --dist load --maxschedchunk 1 -m slow check/tests/heldout check/tests/test_faulty_agent.py $(PYTEST)

# What `serve` shows in a browser, from src/acphold/web/page: it takes packages of npm, and is no
# part of the repository. A wheel and an sdist get theirs by hatch_build.py.
page: $(PAGE)/node_modules/.package-lock.json
	PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix $(PAGE) run --silent build

$(PAGE)/node_modules/.package-lock.json: $(PAGE)/package-lock.json | $(VENV)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix $(PAGE) ci --ignore-scripts --silent
	touch $@

# What needs a real PostgreSQL: its own tests, and those of the hub, of the server and of all stores
# once more. The slow ones of them are run by `slow`, on both stores.
postgresql: export PYTHONDONTWRITEBYTECODE =
postgresql: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "postgresql and not slow and not interop" $(PYTEST)

# Real agents and clients of others, some hundred megabytes of downloads, kept in .interop; and the
# film of the README. Most of it is waiting, for registries, agents and a browser. In the order of
# their names, files that install and wait begin first, and the short ones of the page end together.
interop: export PYTHONDONTWRITEBYTECODE =
interop: $(VENV)/.installed page
	$(BIN)/python -m pytest -n $$(($(JOBS) + 4)) --dist loadfile --no-loadscope-reorder -m interop $(PYTEST)

# The page check/docs/compared.md: the check of the SDKs' examples and of some agents of `interop`.
compared: $(VENV)/.installed
	PYTHONPATH=wire $(BIN)/python -m tests.interop.compared

# kill -9 at random in a session that many share, and while prompts wait, networks that fail, a page
# that freezes and wakes;
# `make soak ROUNDS=100` takes some minutes, and then a quarter of an hour for machines that fail;
# half of that is in network namespaces, or it is said why it cannot be.
soak: export PYTHONPATH = wire:check
soak: ROUNDS ?= 1000
soak: $(VENV)/.installed page
	SHELL_LINES=100000 $(BIN)/python -m pytest -n 2 -m slow tests/standing/test_shells.py
	$(BIN)/python -m pytest -n 2 -m "hypothesis and not interop" --hypothesis-profile=search
	$(BIN)/python -m tests.failures.soak $(ROUNDS) $(SEED)
	$(BIN)/python -m tests.failures.queue_soak $(ROUNDS) $(SEED)
	$(BIN)/python -m tests.snapshots.test_histories $(ROUNDS)
	$(BIN)/python -m tests.origins.test_histories $(ROUNDS) $(SEED)
	MOVES=200 $(BIN)/python -m pytest -m slow tests/hub/test_moves.py tests/web/test_moves.py tests/failures/test_moves_killed.py
	$(BIN)/python -m tests.web.soak $(ROUNDS) $(SEED)
	$(BIN)/python -m tests.page.soak $(ROUNDS) $(SEED)
	$(BIN)/python -m tests.web.nodes_soak 300 $(SEED)

# An sdist and a wheel in dist/, built twice, compared, checked, installed and tried. It uploads nothing.
release: $(VENV)/.installed
	$(BIN)/python -m release

bench: $(VENV)/.installed page
	$(BIN)/python -m bench $(BENCH)

# In a fresh clone each worker would compile all of the source and the tests, at the same time. What
# cannot be collected is told by the tests themselves.
$(VENV)/.compiled: $(VENV)/.installed
	-ls -d tests/*/ wire/tests check/tests | xargs -n 18 -P 2 $(BIN)/python -m pytest --collect-only -q >/dev/null
	touch $@

PROJECTS := wire check
INSTALL = ACPHOLD_FOLDERS=0 $(BIN)/python -m pip install --quiet --no-compile $(PROJECTS:%=--editable %)

$(VENV)/.installed: pyproject.toml $(PROJECTS:%=%/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)  # one that is there keeps its Python
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(INSTALL) --editable '.[all]' --group dev
	touch $(VENV)/.product $@

# The product without the developers' tools, which take five times as long.
$(VENV)/.product: pyproject.toml $(PROJECTS:%=%/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	touch $@

clean:
	rm -rf $(VENV) dist .interop .npm $(PAGE)/node_modules $(PAGE)/built .mypy_cache .pytest_cache .ruff_cache .hypothesis
