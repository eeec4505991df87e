# Everything here sets itself up in .venv, without root. `make help` lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.run-installed
DEV    := $(VENV)/.dev-installed
ARGS   ?=
# Many tests wait for processes, so two workers for each processor; each file of tests stays with one worker, which keeps
# its servers, and the files that take long go first (tests/shared/durations.txt).
WORKERS ?= $(shell echo $$(( $$(nproc) * 2 )))
# The quick tests keep their files in memory where the machine has such a place: half of their time was waiting for a disk
# to sync, which says nothing about the code. The campaigns, which pull the plug, stay on the disk.
QUICK_FILES := $(shell [ -w /dev/shm ] && [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 2097152 ] && echo TMPDIR=/dev/shm)
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
CAMPAIGNS := slow or containerd
# Byte code is kept, whatever the caller's habit: tests start hundreds of processes, and each would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=
ROUNDS ?= 3
SEED   ?=
SEEDS  ?= 0-19

.PHONY: help up test test-campaigns test-stock test-stock-all test-vm test-all explore check format conformance bench soak exclusive torture badinput docs dist proto lock durations kubectl stock clean image

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

up: $(RUN) ## start a cluster on this machine
	@$(BIN)/kubeqos up $(ARGS)

test: $(DEV) ## the quick tests: the same examples every time
	@$(QUICK_FILES) $(PYTEST) -m "not ($(CAMPAIGNS) or stock or vm)" $(ARGS)

test-campaigns: $(DEV) ## the long tests: crashes by the hundred, soaks, real containerd
	@$(PYTEST) -m "($(CAMPAIGNS)) and not (stock or vm)" $(ARGS)

# Where they cannot be built, what was said about it stands above, and the tests are skipped. One after the other: a real
# control plane fills two cores.
test-stock: $(DEV) ## real Kubernetes parts on our API server, and ours on a real one (root, Linux, Go)
	@$(BIN)/python -m tools.stock >/dev/null || true
	@$(BIN)/python -m pytest -q -m "stock and not slow" tests/stock $(ARGS)

test-stock-all: $(DEV) ## the same with what takes long there: all of critest, which is not in CI (a quarter of an hour more)
	@$(BIN)/python -m tools.stock >/dev/null || true
	@$(BIN)/python -m pytest -q -m "stock" tests/stock $(ARGS)

# One machine at a time, and one after the other: emulated processors share the real ones.
test-vm: $(DEV) ## tests in booted machines with NUMA, cgroup v2 and systemd (qemu, root); CORE=1 only what CI runs
	@$(BIN)/python -m pytest -q --timeout 1800 -m "vm$(if $(CORE), and not slow)" tests/vm $(ARGS)

test-all: $(DEV) ## all tests, but those in booted machines
	@$(PYTEST) -m "not vm" $(ARGS)

explore: $(DEV) ## property tests with random seeds, ROUNDS of them; SEED=… repeats one
	@for round in $$(seq $(if $(SEED),1,$(ROUNDS))); do \
		seed=$(or $(SEED),$$($(BIN)/python -c 'import secrets; print(secrets.randbelow(1 << 32))')); \
		echo "round $$round with seed $$seed: again with make explore SEED=$$seed"; \
		KUBEQOS_FUZZ=10 KUBEQOS_FUZZ_SEED=$$seed $(PYTEST) -m "hypothesis or explore" \
			--hypothesis-profile explore --hypothesis-seed $$seed $(ARGS) || exit 1; \
	done

check: $(DEV) ## format, lint, types, import contracts, locked versions, generated code and pictures, purity
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tools.locks --check
	@$(BIN)/python -m tools.protogen --check
	@$(BIN)/python tools/schemagen.py --check
	@$(BIN)/python -m tools.docgen --check
	@$(BIN)/python -m tools.rooms --check
	@$(BIN)/python -m tools.diagrams --check
	@$(BIN)/python -m tools.purity

format: $(DEV) ## rewrite the sources in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

conformance: $(DEV) ## replay the recorded answers of real Kubernetes
	@$(BIN)/python -m pytest tests/conformance -q $(ARGS)

bench: $(DEV) ## measure, and print the figures beside the machine they ran on
	@$(BIN)/python -m bench $(ARGS)

soak: $(DEV) ## twenty minutes of pod churn on 1,000 nodes, and the proof that nothing is left
	@$(BIN)/python -m bench.soak $(ARGS)

exclusive: $(DEV) ## ten minutes of kills, lies and lost state, while a stranger watches that no owned core is shared
	@$(BIN)/python -m bench.exclusive $(ARGS)

torture: $(DEV) ## a cluster in virtual time under drawn faults: SEEDS=0-99, MINUTES=…, RECORD=1 writes the figures down
	@$(BIN)/python -m tests.torture $(SEEDS) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(RECORD),--record) $(ARGS)

badinput: $(DEV) ## bad requests and messages: REQUESTS=1000000, MINUTES=…, RUNS=… messages for each edge, RECORD=1
	@$(BIN)/python -m tests.badinput --requests $(or $(REQUESTS),20000) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(RECORD),--record) $(ARGS)
	@$(BIN)/python -m tests.badinput.messages --runs $(or $(RUNS),50000) $(if $(RECORD),--record)
	@$(BIN)/python -m pytest -q -m explore tests/apiserver/test_generated.py

docs: $(DEV) ## build the documentation as a site, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q
	@echo "site/index.html"

image: ## build the container image from Debian's packages with buildah, and try it (root; pulls no image)
	@tools/image.sh

dist: $(DEV) ## build sdist and wheel into dist/, check them, and try the wheel in a clean environment
	@rm -rf dist
	@$(BIN)/python -m build -q --no-isolation --outdir dist .
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/python -m tools.wheel dist

proto: $(DEV) ## regenerate the protobuf code from the .proto files
	@$(BIN)/python -m tools.protogen

# The test tools are the pickier ones, so they choose first, and what is run takes the versions that they leave. All of them
# must install on the oldest Python that we take, as Debian 12 has it, whatever runs here.
OLDEST := --python-version 3.11
lock: ## refresh the locked versions; LOCK=--upgrade takes newer ones
	@$(BIN)/pip install -q uv
	@$(BIN)/uv pip compile -q --no-header $(OLDEST) $(LOCK) pyproject.toml --group dev -o requirements/dev.lock
	@$(BIN)/uv pip compile -q --no-header $(OLDEST) $(LOCK) pyproject.toml -c requirements/dev.lock -o requirements/run.lock
	@$(BIN)/python -m tools.locks --check

durations: $(DEV) ## run all tests and write down how long each file takes
	@$(PYTEST) -m "not vm" --record-durations $(ARGS)

kubectl: $(DEV) ## build the real kubectl where there is none (needs Go), outside the tree
	@$(BIN)/python -m tools.kubectl

stock: $(DEV) ## build real Kubernetes, containerd 2, critest and Helm for the tests (needs Go), outside the tree
	@$(BIN)/python -m tools.stock

clean: ## remove what the targets above made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache site dist

$(VENV)/bin/python:
	@echo "creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kubeqos needs Python 3.11 or newer: set PYTHON=…"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "the venv module is missing: install python3-venv"; exit 1; }

$(RUN): requirements/run.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing kubeqos (about half a minute the first time)"
	@$(BIN)/python tools/install.py -r requirements/run.lock
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(DEV): requirements/dev.lock $(RUN)
	@echo "installing the test tools"
	@$(BIN)/python tools/install.py -r requirements/dev.lock
	@touch $@
