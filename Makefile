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
# Commit whose hash chooses a fifth of `make rest`; all of the rest without one.
COMMIT ?=
# Where no bytecode may lie beside the code, it lies here: every test process would compile all it imports.
BYTECODE := $(if $(PYTHONDONTWRITEBYTECODE),PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath $(VENV))/bytecode)
SHARED := -n $(TESTERS) --dist worksteal --progress -o console_output_style=classic
PYTEST = $(ONE_THREAD) $(BYTECODE) $(BIN)/python -m pytest $(SHARED)
COVERAGE_FLOOR := 93
COVERED := $(VENV)/covered.json

.DEFAULT_GOAL := help
.PHONY: help install serve test test-all pytest rest covered nightly fuzz schema scale lint type fmt docs release constraints descriptors bench image clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(VENV)/.installed ## make .venv with the package and what it needs to run

serve: install ## serve the models in model_store/ on 127.0.0.1:8000
	$(BIN)/pnnx-serve serve --store model_store

# Types are checked beside the tests, some of which wait; a failure of lint is told at once.
test: lint ## lint, types and the main part of the tests: about six minutes on two cores
	@$(MAKE) --no-print-directory --jobs=2 type pytest

pytest: $(VENV)/.installed-test
	$(PYTEST) --part=main

rest: $(VENV)/.installed-test ## what make test leaves out (tests/parts.py); with COMMIT=<hash>, the fifth that the hash chooses
	$(PYTEST) --part=rest $(if $(COMMIT),--fifth-of=$(COMMIT))

test-all: lint type covered ## make test and make rest in one run, with branch coverage and its floor

covered: $(VENV)/.installed-test
	$(ONE_THREAD) $(BYTECODE) $(BIN)/python -m slipcover --json --out $(COVERED) -m pytest $(SHARED)
	@$(BIN)/python -m slipcover --merge $(COVERED) --out $(COVERED) --fail-under $(COVERAGE_FLOOR) || { echo "less than $(COVERAGE_FLOOR) % are covered" >&2; exit 1; }

nightly: $(VENV)/.installed-test ## all tests, with a hundred times as many examples of every property, parameters in all combinations
	$(PYTEST) --hypothesis-profile=nightly --timeout=3600

fuzz: $(VENV)/.installed-test ## SECONDS (600) of hostile files (pairs, ONNX), parameters, data, bodies, protocol requests, sockets, and clients that each must get their own answers; in child processes
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
	@echo "checking types: a minute or two where mypy has no cache"
	$(BIN)/mypy

fmt: $(VENV)/.installed-test ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in site/; to read it: $(BIN)/python -m http.server --directory site 8001"

release: $(VENV)/.installed-release ## wheels and source distributions in dist/, checked in a fresh environment, and their SBOM
	.ci/release $(abspath $(BIN))/python

constraints: $(VENV)/.installed-release ## constraints.txt: the newest versions of all that the server and its extras need, with hashes
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra audio --extra fast --extra grpc --extra onnx --extra otel --extra text --upgrade pyproject.toml --output-file constraints.txt

descriptors: $(VENV)/.installed-descriptors ## descriptors of gRPC's messages from the .proto files
	cd app/protocol/grpc && $(abspath $(BIN))/python -m grpc_tools.protoc -I . --descriptor_set_out=descriptors.binpb inference.proto health.proto
	cd app/protocol/grpc && sha256sum inference.proto health.proto descriptors.binpb >descriptors.sha256

bench: install ## latency, throughput and the time of every kernel of MODEL (digits)
	$(BIN)/pnnx-serve bench $(MODEL)

image: ## build the container image
	docker build --tag $(IMAGE) $(DOCKER_BUILD_FLAGS) .

clean: ## remove .venv and everything that tools leave behind
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .hypothesis
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

# An extra is added to what is there. The server's packages keep their versions: a server may be running from them.
$(VENV)/.installed-%: $(VENV)/.installed
	@echo "installing into $(VENV), with the $* extra: some 200 MB the first time, which may take minutes"
	@$(BIN)/python .ci/requirements.py >$(VENV)/server.txt
	@$(BIN)/python .ci/requirements.py $* >$(VENV)/$*.txt
	@$(BIN)/python -m pip install --disable-pip-version-check --constraint $(VENV)/server.txt --requirement $(VENV)/$*.txt
	@touch $@

$(VENV)/.installed-scale $(VENV)/.installed-schema: $(VENV)/.installed-test
