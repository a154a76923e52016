# Every target sets up the virtual environment it needs; the second run finds it ready.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

# The real data sets are used where they are at hand; nothing is downloaded by the tests.
ifndef GRAPHMATERN_DATA
ifneq ($(wildcard ../shared/data/README.md),)
export GRAPHMATERN_DATA := $(abspath ../shared/data)
endif
endif

# A constraints file given through the environment also binds the build environment.
export PIP_CONSTRAINT := $(abspath constraints.txt)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Parallel test workers share two cores: one BLAS and OpenMP thread each.
export OMP_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: help demo test lint format browser unit mpi petsc4py minimum evidence bench docs dist clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --editable '.[io,dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/pip install -qq --editable '.[io,dev,docs]'
	@touch $@

demo: $(VENV)/.ready  ## the main job on a generated city; pictures in demo/
	$(BIN)/graphmatern demo --out demo

test: lint unit  ## lint, types, unit and property tests, docstring examples

lint: $(VENV)/.ready  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Pages are tested in a browser. Where there is none and none can be installed, those tests are skipped, and say so.
browser:
	@command -v chromium >/dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  { apt-get install -y -qq --no-install-recommends chromium || \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }; } >/dev/null 2>&1; } || \
	  echo "there is no chromium: the pages will not be tested in a browser"

unit: $(VENV)/.ready browser
	$(BIN)/pytest -n $(JOBS) -q

# PETSc and MPI from Debian, and petsc4py built against them, which takes three minutes; its build wants tools older
# than ours, in an environment of their own.
MPI_PACKAGES := libpetsc-real-dev libopenmpi-dev openmpi-bin gcc libc6-dev
PETSC_DIR ?= $(firstword $(wildcard /usr/lib/petscdir/petsc*/*-real))
mpi: $(VENV)/.ready  ## PETSc and MPI, for graphs beyond one machine
	@{ command -v mpiexec && test -n "$(PETSC_DIR)"; } >/dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  { apt-get install -y -qq --no-install-recommends $(MPI_PACKAGES) || \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $(MPI_PACKAGES); }; } >/dev/null 2>&1; } || \
	  { echo "PETSc and MPI are not installed; as root: apt-get install $(MPI_PACKAGES)"; exit 1; }
	@$(BIN)/python -c "import mpi4py, petsc4py" 2>/dev/null || $(MAKE) --no-print-directory petsc4py

# (A variable emptied for the target `mpi` would be empty for its prerequisite too, and leave the environment unpinned.)
petsc4py: PIP_CONSTRAINT :=
petsc4py:
	test -n "$(PETSC_DIR)"
	$(PYTHON) -m venv .venv-mpi-build
	.venv-mpi-build/bin/pip install -qq 'cython<3' 'setuptools<70' wheel $$($(BIN)/pip freeze | grep '^numpy==')
	PETSC_DIR=$(PETSC_DIR) .venv-mpi-build/bin/pip wheel -qq --no-build-isolation --no-deps --wheel-dir build/mpi \
	  petsc4py==$$(awk '/define PETSC_VERSION_(MAJOR|MINOR|SUBMINOR) /{printf "%s%s", dot, $$3; dot = "."}' \
	  $(PETSC_DIR)/include/petscversion.h)
	$(BIN)/pip install -qq mpi4py build/mpi/petsc4py-*.whl

minimum: PIP_CONSTRAINT := $(abspath tests/minimum-constraints.txt)
minimum:  ## the tests with the oldest supported dependencies, in their own environment
	test -e .venv-minimum/.ready || { \
	  $(PYTHON) -m venv .venv-minimum && \
	  .venv-minimum/bin/pip install -qq --editable '.[io,dev]' && \
	  touch .venv-minimum/.ready; }
	.venv-minimum/bin/pytest -n $(JOBS) -q

.venv-mcmc/.ready: evidence/mcmc/requirements.txt
	$(PYTHON) -m venv .venv-mcmc
	PIP_CONSTRAINT= .venv-mcmc/bin/pip install -qq --requirement evidence/mcmc/requirements.txt
	@touch $@

evidence: $(VENV)/.ready .venv-mcmc/.ready browser  ## slow proofs; figures in evidence/*.md
	set -e; for proof in evidence/[a-z]*.py; do echo "$$proof"; $(BIN)/python $$proof; done

bench: $(VENV)/.ready  ## next to other libraries, on a quiet machine, for about 50 minutes; BENCH=--quick to try it
	$(BIN)/python benchmarks/run.py $(BENCH)

docs: $(VENV)/.docs  ## the documentation, in docs/_build/html
	rm -rf docs/api/generated  # pages of objects that are gone would be warned of
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

# Each archive is installed into an empty environment and used in an empty folder, far from the sources.
dist: $(VENV)/.ready  ## wheel and source archive in dist/, each tried in an empty environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	set -e; for archive in $(abspath .)/dist/*; do \
	  folder=$$(mktemp -d); trap "rm -rf $$folder" EXIT; \
	  $(PYTHON) -m venv $$folder/venv; \
	  $$folder/venv/bin/pip install -qq $$archive; \
	  cp tests/smoke.py $$folder; \
	  (cd $$folder && venv/bin/python smoke.py && venv/bin/graphmatern demo --out demo); \
	  rm -rf $$folder; echo "$$archive works"; \
	done

clean:  ## remove environments, caches and generated output
	rm -rf .venv .venv-minimum .venv-mcmc .venv-mpi-build .venv-bench-* build dist demo results docs/_build docs/api docs/gallery docs/changelog.rst docs/sg_execution_times.rst .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
