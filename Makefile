# Everything here sets itself up in .venv, without root. `make help` lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.run-installed
DEV    := $(VENV)/.dev-installed
ARGS   ?=

.PHONY: help up test check format conformance bench soak docs proto lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

up: $(RUN) ## start a cluster on this machine
	@$(BIN)/kubeqos up $(ARGS)

test: $(DEV) ## run all tests
	@$(BIN)/python -m pytest $(ARGS)

check: $(DEV) ## format, lint, types, import contracts, generated code and pictures
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tools.protogen --check
	@$(BIN)/python -m tools.docgen --check
	@$(BIN)/python -m tools.rooms --check
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

docs: $(DEV) ## build the documentation as a site, into site/
	@$(BIN)/mkdocs build -q
	@echo "site/index.html"

proto: $(DEV) ## regenerate the protobuf code from the .proto files
	@$(BIN)/python -m tools.protogen

lock: ## refresh the locked versions
	@$(BIN)/pip install -q uv
	@cd requirements && ../$(BIN)/uv pip compile -q --no-header ../pyproject.toml -o run.lock
	@cd requirements && ../$(BIN)/uv pip compile -q --no-header ../pyproject.toml --group ../pyproject.toml:dev -o dev.lock

clean: ## remove what the targets above made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache site

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
