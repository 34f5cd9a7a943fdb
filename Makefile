# Needs Python 3.11 or newer and nothing else; everything goes into .venv.
# The first interpreter that runs and is new enough; `make PYTHON=/path/to/python3` chooses another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
NEWS ?= news
TICKS ?= 2
# Tests wait for processes and sockets a fifth of their time: half as many again as there are processors.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(max(2, (os.cpu_count() or 1) * 3 // 2))')

HARNESSES := @anthropic-ai/claude-code @openai/codex @mariozechner/pi-coding-agent opencode-ai @google/gemini-cli \
	@zed-industries/claude-code-acp @zed-industries/codex-acp

# uv installs in a tenth of pip's time. Of how pip is configured, it is told the constraints; where pip has an index of
# its own or a proxy, and where uv cannot, pip does it.
INSTALL = extras() { \
	{ pip=$$($(BIN)/pip config list); ! echo "$$pip" | grep -qE '[.](index-url|no-index|proxy)=' && \
	$(BIN)/pip install -qq --disable-pip-version-check --only-binary :all: uv && \
	UV_CONSTRAINT=$$(echo "$$pip" | sed -n "s/.*[.]constraint='\(.*\)'/\1/p") UV_SYSTEM_CERTS=1 \
	$(BIN)/uv pip install -q --python $(BIN)/python --editable ".[$$1]"; } 2>/dev/null || \
	$(BIN)/pip install -qq --disable-pip-version-check --editable ".[$$1]"; }; extras

# What uv installs is compiled when it is first imported, and stays so.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test lint style format harnesses bench crash docs site clean

help: ## Show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: $(VENV)/run ## Run two ticks of a newsroom in news/ on the embedded model
	@$(BIN)/lemming models pull --if-missing
	@test -d $(NEWS)/agents || $(BIN)/lemming init $(NEWS) --quiet
	@$(BIN)/lemming -C $(NEWS) run-forever --max-ticks $(TICKS) --interval 0
	@echo "next, in this terminal:"
	@echo "  . $(BIN)/activate && cd $(NEWS)"
	@echo "  lemming status"

# Types are checked while tests wait; what is wrong with them is said as soon as it is found, and at the end.
# In a fresh clone one process compiles all tests; workers that begin together would each do it. A model is fetched
# meanwhile.
test: $(VENV)/dev style ## Lint, types and tests
	@$(BIN)/lemming models pull --if-missing & model=$$!; \
	$(BIN)/mypy >$(VENV)/types.txt 2>&1 || { echo; cat $(VENV)/types.txt; exit 1; } & types=$$!; \
	test -d tests/__pycache__ || $(BIN)/python -m pytest --collect-only >/dev/null; \
	wait $$model || exit 1; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal; tests=$$?; \
	wait $$types || { tail -n 1 $(VENV)/types.txt; exit 1; }; exit $$tests

lint: $(VENV)/dev style ## Style and types
	@$(BIN)/mypy

style: $(VENV)/dev
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .

format: $(VENV)/dev ## Put the code into the house's format
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

# LEMMING_FUZZ_SECONDS=600: for how long each kind of hostile values is tried; LEMMING_CRASH_RESULTS=DIR: where is
# kept what was tried, for a run that goes on where one was interrupted (docs/durability.md).
# LEMMING_TEST_WEIGHTS=FILE: the weights of Qwen2.5-Coder 0.5B, where the models' folder has none; else its tests are skipped.
crash: $(VENV)/site ## Every crash point and every long test, not the sample that `make test` takes
	@LEMMING_CRASH_POINTS=all $(BIN)/python -m pytest -m "crash or long or sample" -n auto --dist worksteal

harnesses: ## Install the coding harnesses that long tests run, in ~/.cache/lemming-harnesses (about 1 GB)
	@npm install --silent --no-fund --no-audit --prefix $(HOME)/.cache/lemming-harnesses $(HARNESSES)

bench: $(VENV)/dev ## Measure the engine against bare file writing
	@$(BIN)/python -m benchmarks

docs: $(VENV)/dev ## Write the generated pages of docs/
	@$(BIN)/python -m docs.reference docs
	@$(BIN)/python -m docs.manual docs

site: $(VENV)/site ## Build the documentation as a site, in site/
	@rm -rf site
	@$(BIN)/python -m docs.site site
	@echo "open site/index.html"

clean: ## Remove what make has made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pip:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: https://www.python.org/downloads/"; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/run: $(VENV)/pip pyproject.toml
	@echo "installing lemming and what it needs into $(VENV): about 75 MB to fetch, a minute or less"
	@$(INSTALL) local,serve
	@touch $@

$(VENV)/dev: $(VENV)/pip pyproject.toml
	@echo "installing the tools for tests into $(VENV): about 170 MB to fetch, a minute or less"
	@$(INSTALL) local,dev
	@touch $@ $(VENV)/run

$(VENV)/site: $(VENV)/dev
	@echo "installing the site's generator into $(VENV): about 15 MB to fetch"
	@$(INSTALL) local,dev,site
	@touch $@ $(VENV)/run $(VENV)/dev
