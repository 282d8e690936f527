# Every target does its own set-up: Python >= 3.11 with venv and pip is all it asks of the machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
CYCLES ?= 200
REBALANCES ?= 1000000
ONLY ?=
MINUTES ?= 60
PYTHONS ?= 3.11 3.12 3.13 3.14
# Processes of pytest. Tests wait for other programs more than they compute, so there are more of them than cores.
WORKERS ?= 3

.PHONY: help setup run test test-anywhere lint format messages supported docs docs-serve map lock interop bench dist chaos soak coverage changes hooks clean

help: ## the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s'|'

setup: $(STAMP) ## virtual environment with pinned dependencies and `kohort`

$(STAMP): requirements/dev.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Kohort needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

run: setup ## the demo: a broker, a group whose members come and go, a pipeline on Spark; ends by itself
	$(BIN)/kohort demo

test: setup ## all tests that need PyPI and Debian packages only (ONLY=tests/wire: a part); runs what fails once more
	@$(BIN)/python -m tests.twice -n $(WORKERS) --dist worksteal -m "not interop and not chaos" $(ONLY)

test-anywhere: setup ## parts of them as on other machines: behind a proxy, a blank in the path, not root, PYTHONS="3.11 3.14?" …
	@$(BIN)/python -m tests.anywhere --pythons "$(PYTHONS)"

lint: setup ## ruff, formatting, types (sources, helpers of the tests, benchmarks)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

messages: setup ## generate src/kohort/wire/messages and codecs from src/kohort/wire/schema
	$(BIN)/python -m kohort.wire.compiler.generate

supported: setup ## generate SUPPORTED.md, and settings, errors and pictures in docs/, from the tables that the code runs on
	$(BIN)/python -m kohort.cli.supported > SUPPORTED.md
	$(BIN)/python -m kohort.cli.reference docs/*.md
	$(BIN)/python -m kohort.cli.metric_tables docs/metrics.md
	$(BIN)/python -m docs.site.pictures

docs: setup ## build the site of the documentation in .cache/site, without the network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open .cache/site/index.html"

docs-serve: setup ## the same at http://127.0.0.1:8000, built anew when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --strict --dev-addr 127.0.0.1:8000

map: setup ## generate the map of files in ARCHITECTURE.md from the first docstring line of each module
	$(BIN)/python -m tests.architecture_map

interop: setup ## Apache Kafka's client and tools, kafkajs, kcat, Apicurio Registry (Maven Central, npm, Debian)
	$(BIN)/python -m pytest -m interop $(or $(ONLY),tests)

bench: setup ## side by side with Apache Kafka, other clients and Spark's connector; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.clients
	$(BIN)/python -m benchmarks.spark
	$(BIN)/python -m benchmarks.spark_filters
	$(BIN)/python -m benchmarks.spark_formats
	$(BIN)/python -m benchmarks.serde
	$(BIN)/python -m benchmarks.metrics
	$(BIN)/python -m benchmarks.tls
	$(BIN)/python -m benchmarks.authorizer
	$(BIN)/python -m benchmarks.transactions

dist: setup ## sdist and wheel in dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

chaos: setup ## long runs: SIGKILL (CYCLES=200) and the simulator (REBALANCES=1000000)
	KOHORT_CHAOS_CYCLES=$(CYCLES) KOHORT_CHAOS_REBALANCES=$(REBALANCES) $(BIN)/python -m pytest -m chaos -s tests

soak: setup ## new seeds for MINUTES=60: simulator, property tests, SIGKILL; says how to repeat what failed
	@$(BIN)/python -m tests.soak --minutes $(MINUTES)

coverage: setup ## run the tests of `make test` and report their coverage, in .cache/coverage/html too
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not interop and not chaos" --cov --cov-report=term --cov-report=html $(ONLY)

changes: setup ## show the release notes that the fragments in changes/ make
	@$(BIN)/towncrier build --draft

hooks: setup ## from now on check each commit of this clone: lint, and its subject line
	$(BIN)/pre-commit install

lock: $(STAMP) ## pin requirements/dev.lock again
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --python-version 3.11 pyproject.toml requirements/dev.in -o requirements/dev.lock

clean: ## delete the environment and caches
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .ruff_cache
