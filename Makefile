# Every target that runs something goes through scripts/setup.sh, which first makes .venv ready.
# Paths are relative: make cannot handle a space in a path, the checkout's own may have one.

IN_VENV := sh scripts/setup.sh

# More arguments for the command a target runs: make test ARGS='tests/jobs -k census'
ARGS ?=
# Which of benchmarks/ `make bench` runs.
WHAT ?= transform

.DEFAULT_GOAL := help
.PHONY: help setup demo ui test test-slow cluster containers faults bench fuzz lint sbom format lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## install the locked packages into .venv (the other targets do so by themselves)
	@$(IN_VENV)

demo: ## run the main job on messages from a real nats-server
	@$(IN_VENV) nats-transform demo $(ARGS)

ui: ## open the Dagster UI on what the demo made
	@test -f demo/environment || { echo "nothing to show yet: run make demo first" >&2; exit 2; }
	@$(IN_VENV) sh -c 'set -a && . ./demo/environment && exec dg dev $(ARGS)'

test: lint ## run lint and all tests but the slow ones
	@$(IN_VENV) python -m pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

test-slow: ## run the tests that take minutes, but not those of containers
	@$(IN_VENV) python -m pytest -m "slow and not containers" $(ARGS)

cluster: ## run the tests on Spark clusters and the production set-up
	@$(IN_VENV) python -m pytest -m cluster $(ARGS)

containers: ## build the image, start compose and see a schedule run in it; needs docker
	@$(IN_VENV) python -m pytest -m containers $(ARGS)

faults: ## inject every fault of the table in tests/faults and say which promises held
	@$(IN_VENV) python -m tests.faults $(ARGS)

bench: ## measure beside what people could use instead: WHAT=transform, ingest, audit, ...
	@$(IN_VENV) python benchmarks/$(WHAT).py $(ARGS)

fuzz: ## feed the readers and parsers with any bytes at all for a while
	@$(IN_VENV) python -m tests.fuzz $(ARGS)

lint: ## check style, format and types; with AUDIT=1 also the packages for known weaknesses
	@$(IN_VENV) sh -c 'ruff check && ruff format --check && mypy'
	@$(if $(AUDIT),sh scripts/sbom.sh)

sbom: ## write build/sbom.json, the packages of the production image
	@sh scripts/sbom.sh

format: ## format the code and fix what can be fixed
	@$(IN_VENV) sh -c 'ruff check --fix; ruff format'

lock: ## resolve pyproject.toml again into requirements.lock
	@sh scripts/lock.sh

clean: ## remove .venv and everything else that targets made
	rm -rf .venv build demo warehouse *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
