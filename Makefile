# One verb per target, the same here and in CI. Needs Python 3.11 or newer, make and git.
# A stamp in .venv says what is installed there; it is older than pyproject.toml when that has changed.

PYTHON ?= python3
VENV ?= .venv
MODEL ?= digits
IMAGE ?= pnnx-serve
DOCKER_BUILD_FLAGS ?=
SECONDS ?= 600

BIN := $(VENV)/bin
# Two test processes on two cores: a BLAS that starts a thread per core in each of them only makes both wait.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# One more than there are cores: tests that wait for a server or a child process leave theirs to another.
TESTERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# Where no bytecode may lie beside the code, it lies here: every test process would compile all it imports.
BYTECODE := $(if $(PYTHONDONTWRITEBYTECODE),PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath $(VENV))/bytecode)
COVERAGE_FLOOR := 93
COVERED := $(VENV)/covered.json

.DEFAULT_GOAL := help
.PHONY: help install serve test pytest nightly fuzz schema scale lint type fmt bench image clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(VENV)/.installed ## make .venv with the package and what it needs to run

serve: install ## serve the models in model_store/ on 127.0.0.1:8000
	$(BIN)/pnnx-serve serve --store model_store

test: lint type pytest ## lint, types, and all tests with branch coverage

pytest: $(VENV)/.installed-test
	$(ONE_THREAD) $(BYTECODE) $(BIN)/python -m slipcover --json --out $(COVERED) -m pytest -n $(TESTERS) --dist worksteal
	@$(BIN)/python -m slipcover --merge $(COVERED) --out $(COVERED) --fail-under $(COVERAGE_FLOOR) || { echo "less than $(COVERAGE_FLOOR) % are covered" >&2; exit 1; }

nightly: $(VENV)/.installed-test ## the tests with fifty times as many examples of every property, parameters in all combinations
	$(ONE_THREAD) $(BYTECODE) $(BIN)/python -m pytest -n $(TESTERS) --dist worksteal --hypothesis-profile=nightly --timeout=3600

fuzz: $(VENV)/.installed-test ## SECONDS (600) of hostile files (pairs, ONNX), parameters, data, bodies, protocol requests and sockets, each in child processes under limits
	$(ONE_THREAD) $(BIN)/python -m tests.fuzz --seconds $(SECONDS)

schema: $(VENV)/.installed-schema ## servers held against their own OpenAPI document by schemathesis
	$(ONE_THREAD) $(BIN)/python -m tests.schema

scale: $(VENV)/.installed-scale ## the tests that need large packages: stores in S3 and GCS, Ray Serve
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto --dist loadfile --timeout=900 tests/app/remote
	$(ONE_THREAD) WITH_RAY=1 $(BIN)/python -m pytest -p no:warnings --timeout=900 tests/app/scale

lint: $(VENV)/.installed-test ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(VENV)/.installed-test ## mypy --strict on every package
	$(BIN)/mypy

fmt: $(VENV)/.installed-test ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## latency, throughput and the time of every kernel of MODEL (digits)
	$(BIN)/pnnx-serve bench $(MODEL)

image: ## build the container image
	docker build --tag $(IMAGE) $(DOCKER_BUILD_FLAGS) .

clean: ## remove .venv and everything that tools leave behind
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is: $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "$(PYTHON) could not make $(VENV); on Debian and Ubuntu 'apt install python3-venv' brings what is missing" >&2; exit 1; }
	@touch $@

# Editable: a change to the code needs no second install, and coverage sees the files of this folder.
$(VENV)/.installed: $(VENV)/.made pyproject.toml
	@echo "installing into $(VENV): some 100 MB the first time, which may take minutes"
	@$(BIN)/python -m pip install --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.made pyproject.toml
	@echo "installing into $(VENV), with the test extra: some 200 MB the first time, which may take minutes"
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-scale: $(VENV)/.installed-test pyproject.toml
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[scale]'
	@touch $@

$(VENV)/.installed-schema: $(VENV)/.installed-test pyproject.toml
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[schema]'
	@touch $@
