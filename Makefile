.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

VENV := .venv
# uv from PATH, else from a small environment of its own beside the cache.
CACHE := $(or $(GPUFLEET_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/gpufleet,$(HOME)/.cache/gpufleet))
UV := $(shell command -v uv 2>/dev/null || echo $(CACHE)/uv/bin/uv)
RUN := $(VENV)/bin
export PYTHONDONTWRITEBYTECODE :=
TRACE ?=
SEED ?= 8

help: ## Show this help
	@echo "make TARGET, where TARGET is one of:"
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^/  /; s/:.*## /\t/' | expand -t 14

$(CACHE)/uv/bin/uv:
	@echo "installing uv into $(CACHE)/uv"
	@python3 -m venv $(CACHE)/uv && $(CACHE)/uv/bin/python -m pip install --quiet uv

install: $(VENV)/.installed ## Install the project and its development tools into .venv

$(VENV)/.installed: pyproject.toml uv.lock $(UV)
	@$(UV) sync --quiet --frozen
	@touch $@

up: install ## Start the embedded stack, deploy it, replay a trace (TRACE=file.csv, SEED=8)
	@$(RUN)/gpufleet up --seed $(SEED) $(if $(TRACE),--trace "$(TRACE)")

down: install ## Stop the embedded stack and remove its state
	@$(RUN)/gpufleet down

check: install ## Lint, types, import rules, generated files up to date
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check --quiet .
	@$(RUN)/mypy
	@$(RUN)/lint-imports --no-cache --no-logo
	@$(RUN)/gpufleet schema | diff -u stacks/fleet.schema.json - || { echo "run 'make generate'"; exit 1; }
	@$(RUN)/gpufleet schema --teams | diff -u stacks/teams.schema.json - || { echo "run 'make generate'"; exit 1; }
	@$(RUN)/gpufleet reference | diff -u docs/config.md - || { echo "run 'make generate'"; exit 1; }
	@echo "check: ok"

generate: install ## Write generated files (schemas, reference of settings)
	@$(RUN)/gpufleet schema > stacks/fleet.schema.json
	@$(RUN)/gpufleet schema --teams > stacks/teams.schema.json
	@$(RUN)/gpufleet reference > docs/config.md

tools: install ## Find, download or build the binaries of the embedded stack
	@$(RUN)/gpufleet tools

test: check tools ## Run the checks and the tests
	@$(RUN)/pytest tests/unit tests/mocks tests/editor tests/engine tests/e2e

test-all: check tools ## Run everything, long tests included
	@$(RUN)/pytest tests --long

bench: tools ## Run every benchmark
	@for file in tests/bench/*.py; do [ "$$(basename $$file)" = __init__.py ] || $(RUN)/python $$file; done

sbom: install ## Write what is in the agent's image as a CycloneDX document (sbom.cdx.json)
	@$(UV) export --quiet --locked --no-default-groups --group agent --group node --no-emit-project --format cyclonedx1.5 -o sbom.cdx.json

clean: ## Remove the environment (not the cache of tools, which checkouts share)
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis

.PHONY: help install up down check generate tools test test-all bench sbom clean
