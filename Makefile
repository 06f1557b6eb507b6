# The verbs of this repository. Each one sets itself up: only python3, make and git are needed.
#   make demo           ingest the docs and some samples, search them, look at the runs
#   make hello          boot the example application and look at it
#   make test           the quick tests in parallel; needs no server
#   make test-all       every test; PostgreSQL and NATS come from wheels where none listens
#   make cover          every test under coverage.py, then the least covered modules
#   make wheels         build the five wheels into dist/
#   make test PY=3.13   the same on another Python, in its own environment
.DEFAULT_GOAL := help
SHELL := /bin/bash
# Compiled once by the bootstrap and read by every process after it: without bytecode a child
# process starts in twice the time, and collecting the tests takes three times as long.
export PYTHONDONTWRITEBYTECODE :=

PY ?=
VENV := .venv$(if $(PY),-$(PY))
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
SERVERS := $(VENV)/.servers
DIST := dist
BENCH_READY := .venv-bench/.ready
ARGS ?=
VERSION ?=

SOURCES := lexigram_contracts/src lexigram/src lexigram_queue/src lexigram_workflow/src lexigram_ai_workers/src
TYPED := $(SOURCES) tools $(wildcard tests/typing)
PROJECTS := pyproject.toml lexigram_contracts/pyproject.toml lexigram/pyproject.toml \
	lexigram_queue/pyproject.toml lexigram_workflow/pyproject.toml lexigram_ai_workers/pyproject.toml

.PHONY: help demo hello test test-all cover lint types format bench docs wheels chaos clean surface constraints changelog

help:
	@echo "make demo | hello | test | test-all | cover | lint | types | format | bench | docs | wheels | chaos | clean"
	@echo "make surface      rewrite the snapshot of the public names after a wanted change"
	@echo "make constraints  resolve the pinned versions again"
	@echo "make changelog    print what the next release brings; VERSION=1.2.0 releases it"
	@echo "PY=3.12 picks a Python; ARGS='-k name' goes to pytest"

# Any python3 will do: the bootstrap looks for a supported one, or downloads it.
define bootstrap
@command -v python3 >/dev/null || { echo "make: no python3 on PATH"; \
	echo "Fix: install Python 3.11, 3.12 or 3.13 and try again"; exit 1; } >&2
@python3 tools/bootstrap.py
endef

$(READY): $(PROJECTS) constraints.txt tools/bootstrap.py
	$(bootstrap) $(VENV) --python "$(PY)"
	@touch $@

$(SERVERS): $(READY)
	$(bootstrap) $(VENV) --servers
	@touch $@

$(BENCH_READY): $(PROJECTS) benchmarks/requirements.txt tools/bootstrap.py
	$(bootstrap) .venv-bench --python "$(PY)" --requirements benchmarks/requirements.txt
	@touch $@

demo: $(READY)
	@$(PYTHON) -m examples.demo

HELLO := examples.hello.app:create
show = @printf '\n\033[1m$$ lexigram %s\033[0m\n' '$(1)'; $(VENV)/bin/lexigram $(1)

hello: $(READY)
	$(call show,inspect modules $(HELLO))
	$(call show,inspect graph --of modules $(HELLO))
	$(call show,inspect graph $(HELLO))
	$(call show,inspect health $(HELLO))
	@printf '\n\033[1m$$ python -m examples.hello\033[0m\n'; $(PYTHON) -m examples.hello

test: $(READY)
	@$(PYTHON) -m tests.run $(ARGS)

test-all: $(SERVERS)
	@$(PYTHON) -m tests.run --all $(ARGS)

# Data of a failed run is reported as well; the exit code is that of the tests.
cover: $(SERVERS)
	@rm -f .coverage .coverage.*
	@$(PYTHON) -m coverage run -m tests.run --all $(ARGS); code=$$?; \
	$(PYTHON) tools/coverage_report.py && exit $$code

docs: $(READY)
	$(PYTHON) -m pytest tests/docs $(ARGS)

chaos: $(SERVERS)
	@$(PYTHON) -m tests.chaos $(AREA) $(ARGS)

lint: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(PYTHON) tools/rooms.py
	$(PYTHON) tools/words.py

types: $(READY)
	$(VENV)/bin/mypy $(TYPED)
	$(VENV)/bin/pyright --pythonpath $(PYTHON)

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

# With the hatchling of the environment: no network. Their dependencies come from the user's index.
wheels: $(READY)
	@rm -f $(DIST)/lexigram*.whl
	@for source in $(SOURCES); do \
		(cd $$source/.. && "$(CURDIR)/$(PYTHON)" -m hatchling build -t wheel -d "$(CURDIR)/$(DIST)") || exit; \
	done

bench: $(BENCH_READY)
	.venv-bench/bin/python benchmarks/run.py $(or $(ARGS),--write)

surface: $(READY)
	$(PYTHON) tools/surface.py --update

changelog: $(READY)
	@$(PYTHON) tools/changelog.py $(VERSION)

constraints: $(READY)
	$(PYTHON) tools/constraints.py

clean:
	rm -rf .venv .venv-* .lexigram/demo dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
