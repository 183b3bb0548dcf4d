# scripts/setup.sh installs what is missing into .venv and then runs the command of a target.
# Paths are relative, because make cannot handle a space in a path, and the checkout may have one.

IN_VENV := sh scripts/setup.sh

# More arguments for the command that a target runs: make test ARGS='tests/jobs -k census'
ARGS ?=
# Which file of benchmarks/ `make bench` runs.
WHAT ?= transform

.DEFAULT_GOAL := help
.PHONY: help setup demo ui test test-slow cluster containers matrix faults bench fuzz dist docs lint sbom format lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## install the locked packages into .venv (all other targets do this first)
	@$(IN_VENV)

demo: ## run the main job on messages from a real nats-server
	@$(IN_VENV) nats-transform demo $(ARGS)

ui: ## open the Dagster UI and show what the demo made
	@test -f demo/environment || { echo "nothing to show yet: run make demo first" >&2; exit 2; }
	@$(IN_VENV) sh -c 'set -a; . ./demo/environment; \
		python -m orchestration.reports demo/reports & trap "kill $$!" EXIT; dg dev $(ARGS)'

test: ## run all tests but the slow ones
	@$(IN_VENV) python -m pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

test-slow: ## run the slow tests, but not those that `make cluster`, `faults` and `containers` run
	@$(IN_VENV) python -m pytest -n 2 --dist worksteal -m "slow and not (cluster or fault or containers)" $(ARGS)

cluster: ## run the tests of Spark clusters and of the production set-up
	@$(IN_VENV) python -m pytest -m cluster $(ARGS)

containers: ## build the image, start compose and wait for a run in it; needs docker
	@$(IN_VENV) python -m pytest -m containers $(ARGS)

matrix: ## set up and test new clones with every Python here: ARGS='--only 3.13', or --list
	@$${PYTHON:-python3} scripts/matrix.py $(ARGS)

faults: ## cause every fault of the table in tests/faults and say which promises held
	@$(IN_VENV) python -m tests.faults $(ARGS)

bench: ## compare the speed with other tools: WHAT=transform, ingest, audit, ...
	@$(IN_VENV) python benchmarks/$(WHAT).py $(ARGS)

fuzz: ## feed random bytes to the readers and parsers for a while
	@$(IN_VENV) python -m tests.fuzz $(ARGS)

dist: ## build the wheel and the sdist into dist/
	@$(IN_VENV) python -m build --no-isolation --outdir dist .

docs: ## build the documentation's site in build/site, with a demo; fails on a dead link
	@$(IN_VENV) sh -c 'python scripts/pages.py && zensical build --strict --clean'

lint: ## check style, format and types; AUDIT=1 also looks for packages with known weaknesses
	@$(IN_VENV) sh -c 'ruff check && ruff format --check && mypy'
	@$(if $(AUDIT),sh scripts/sbom.sh)

sbom: ## write build/sbom.json, a list of the packages in the production image
	@sh scripts/sbom.sh

format: ## format the code and fix what ruff can fix
	@$(IN_VENV) sh -c 'ruff check --fix; ruff format'

lock: ## compute requirements.lock again from pyproject.toml
	@sh scripts/lock.sh

clean: ## remove .venv and everything else that the targets made
	rm -rf .venv build dist demo warehouse *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
