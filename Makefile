# eddyline: everything from a fresh machine with Python 3.11+ and Java 17+.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help setup demo test test-large test-all check lint type fmt sizes docs pictures release release-pairs bench bench-quick flink kernels clean java

help:  ## Show the commands.
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "eddyline needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)"; exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "Installing eddyline and the tested versions of what it needs into $(VENV) ..."
	@$(INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/.with-%: $(STAMP)
	@$(INSTALL) --editable '.[$*]'
	@touch $@

setup: $(STAMP)  ## Install everything into .venv, in tested versions.

# -I: the room's own modules, such as operator.py, do not stand before Python's.
java:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found; eddyline needs Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -I src/eddyline/spark/java.py

demo: java $(STAMP)  ## Stream a year of real flights through a badly written conjunction.
	@$(RUN) -m eddyline demo

# Workers of Spark and killed processes import the package again and again: its bytecode is kept.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(RUN) -m pytest --numprocesses 2 --dist worksteal

# Prints how long a command took, and keeps it for `make sizes`.
TIMED := tools/timed.sh

test: java $(STAMP)  ## Run the tests of every room but the large ones.
	@$(TIMED) "make test" $(PYTEST) -m "not large"

test-large: java $(STAMP)  ## Run the large tests alone.
	@$(TIMED) "make test-large" $(PYTEST) --hypothesis-profile $(EXAMPLES) -m large --one-in $(ONE_IN)

# CI runs one in three cases of each large test; each commit draws other ones.
ONE_IN := 1

# For releases: `make test-all EXAMPLES=all` draws at least eight times as many examples and runs what soaks,
# which takes hours.
EXAMPLES := few

test-all: java $(STAMP)  ## Run all tests, kills and large ones too, but those that take minutes each.
	@$(TIMED) "make test-all" $(PYTEST) --hypothesis-profile $(EXAMPLES)

lint: $(STAMP)  ## Check style, imports between rooms, empty names, and formatting.
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) tools/check_imports.py
	@$(RUN) tools/check_names.py

type: $(STAMP)  ## Check types.
	@$(RUN) -m mypy

fmt: $(STAMP)  ## Format the code.
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

check: lint type docs test test-large  ## Everything that CI runs.

sizes: $(STAMP)  ## Print how large the house is: lines, files, heads, classes, constants, and seconds of the last tests.
	@$(RUN) tools/sizes.py $(SIZES)

docs: $(VENV)/.with-docs  ## Build the site into build/docs, from docs/ and the docstrings; a warning is an error.
	@$(RUN) -m sphinx -b html -W --keep-going -q -c docs . build/docs
	@echo "build/docs/index.html"

release: java $(VENV)/.with-release  ## Build wheel and source archive into dist, check them, run the first pages with the wheel.
	@$(RUN) -m tools.release

release-pairs: java $(VENV)/.with-release  ## Try wheel and source archive with each Python found and each PySpark.
	@$(RUN) -m tools.release --pairs

pictures: java $(STAMP)  ## Draw the pictures of the docs anew; needs Chromium.
	@$(RUN) -m tools.pictures

SUITES := filters change routing sharing joins aggregates models constraints alarms page lakehouse peers

bench: java $(STAMP)  ## Run all benchmarks and print value against target.
	@for suite in $(SUITES); do $(RUN) -m benchmarks run $$suite || exit 1; done

bench-quick: java $(STAMP)  ## The same on less data: the targets may be missed.
	@for suite in $(SUITES); do $(RUN) -m benchmarks run $$suite --quick || exit 1; done

flink: $(STAMP)  ## Install Flink into an environment of its own, .venv-flink, for the benchmarks beside it.
	@$(RUN) -m benchmarks install-flink

kernels:  ## Remove the machine code of kernels, which is then compiled anew.
	@find src -name '*.nb[icl]' -delete

clean:  ## Remove what was installed and built.
	rm -rf $(VENV) .venv-flink build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
