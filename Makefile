# `make help` lists the targets. Every target sets up what it needs; a second run starts at once.

BIN := .venv/bin
READY := .venv/.ready
UV = $(firstword $(wildcard .build/uv/bin/uv) $(shell command -v uv 2>/dev/null))
BENCHES := $(sort $(wildcard bench/*.py))

.DEFAULT_GOAL := help
.PHONY: help setup demo docs test test-slow test-mcp-typescript check lint format bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | while read -r name what; do \
		printf '  make %-10s %s\n' "$$name" "$$what"; done

setup: $(READY) ## install what the project needs into .venv

$(READY): pyproject.toml uv.lock scripts/setup
	@PYTHON='$(PYTHON)' scripts/setup
	@touch $@

demo: $(READY) ## walk through what the product does
	@$(BIN)/omnigraph demo

docs: $(READY) ## build the documentation site into .build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open .build/site/index.html"

test: $(READY) ## run the tests
	@$(BIN)/python -m pytest -m 'not slow' -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(READY) ## run campaigns, kills and models, an hour and more
	@$(BIN)/python -m pytest -m 'slow and not typescript' -n 2 --dist loadfile --no-loadscope-reorder

test-mcp-typescript: $(READY) ## run the TypeScript client of MCP against a server (Node.js, npm)
	@mkdir -p .build/mcp-typescript
	@cp tests/server/mcp/typescript/* .build/mcp-typescript/
	@cd .build/mcp-typescript && npm ci --silent
	@$(BIN)/python -m pytest -m typescript tests/server/mcp/test_typescript_client.py

lint: $(READY) ## check formatting, style, types, imports and the lock file
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(UV) lock --check --offline --quiet --python $(BIN)/python

check: lint ## everything CI runs: lint, then test
	@$(MAKE) --no-print-directory test

format: $(READY) ## rewrite the sources in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY) ## run the benchmarks
	@set -e; for script in $(BENCHES); do $(BIN)/python "$$script"; done

clean: ## remove everything that setup and the tools made
	rm -rf .venv .build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
