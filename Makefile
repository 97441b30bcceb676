# One target for each thing a developer does. `make test` needs nothing but python3 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: test test-fast coverage lint types bench bench-plan bench-heal kills resumes fuzz score autopsies guests wild matrix docs site browser clean

$(STAMP): pyproject.toml hatch_build.py
	$(PYTHON) -m venv $(VENV)
# torch first and by itself: the pinned build keeps the other frameworks from pulling in a CUDA one.
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $(STAMP)

# tests/conftest.py puts the long files first, so that no core is idle at the end; pytest-xdist is to keep that order.
# Real hangs, speeds and kills are tested beside each other. What fails there is run once more, one test at a time: a test
# that fails twice fails, and one that passes alone stays in the output, under the first run's failures, to be mended.
test: $(STAMP) lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder || { test $$? -eq 1 && \
		echo "Once more, one at a time:" && $(BIN)/python -m pytest --last-failed --last-failed-no-failures none; }

# What starts no framework, two thirds of all tests in about a minute. `make test` decides.
FAST := tests/diagnosis tests/record tests/check tests/probes tests/recorder tests/heal/test_remedies.py \
	tests/agent/test_agent_rules.py tests/test_arrows.py tests/test_command_line.py tests/test_docs.py tests/test_syntax.py
test-fast: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(FAST)

# Which lines the tests run, by folder, and line by line in htmlcov/; NAMES="tests/check" for some tests. Only the
# tests' own process is seen. What runs in child processes alone counts as not run: most of the agent, the recorder and the
# commands. Measuring slows Python down, and a test of speed can fail by it: `make test` decides, not this.
coverage: $(STAMP)
	-$(BIN)/coverage run -m pytest $(NAMES)
	$(BIN)/coverage html --quiet
	@echo "| folder | lines that the tests' own process ran |"; echo "|---|---|"
	@for folder in src/holter/[a-z]*/; do \
		echo "| $$folder | $$($(BIN)/coverage report --include="$$folder*" --format=total) % |"; done
	@echo "| all | $$($(BIN)/coverage report --format=total) % |"

lint: $(STAMP)
	$(BIN)/ruff check src tests bench docs hatch_build.py
	$(BIN)/ruff format --check src tests bench docs hatch_build.py

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python bench/run.py

# Foretold against measured memory, some twenty minutes on a CPU; CUDA=1 on a GPU.
bench-plan: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python bench/plan.py $(if $(CUDA),--cuda)

# Patients that can be healed, with room for all and within their limits, for about an hour; CUDA=1: under caps on a GPU.
bench-heal: $(STAMP)
	$(if $(CUDA),$(BIN)/python bench/heal_cuda.py peers && $(BIN)/python bench/heal_programs.py && $(BIN)/python bench/heal_nan.py,OMP_NUM_THREADS=1 $(BIN)/python bench/heal.py $(NAMES))

# Signals at random moments to trainer, recorder and keeper, some ten minutes; N=100 for fewer, SEED=1000 for others.
kills: $(STAMP)
	$(BIN)/python bench/kills.py $(or $(N),1000) --seed $(or $(SEED),0)

# Trainings that the kernel kills under --heal, and what they end with, for half an hour; ROUNDS=5 for fewer. Needs root.
resumes: $(STAMP)
	$(BIN)/python bench/resumes.py --rounds $(or $(ROUNDS),25)

# Hostile records, for an hour or SECONDS; SEED=N for others.
fuzz: $(STAMP)
	$(BIN)/python bench/fuzz_records.py $(or $(SECONDS),3600) $(if $(SEED),--seed $(SEED))

# Every patient under Holter, for about an hour; NAMES="torch_ keras_" for some, WRITE=1 to write docs/scoreboard.md.
score: $(STAMP)
	$(BIN)/python -m tests.score $(NAMES) $(if $(WRITE),--write)

# The patients without Holter, and what `holter autopsy` says of their logs, for about an hour; NAMES="keras_" for some.
autopsies: $(STAMP)
	$(BIN)/python bench/autopsies.py $(NAMES)

# The frameworks' own test suites plain, watched and with --heal, for hours; SUITES="skorch torch" for some.
guests: $(STAMP)
	$(BIN)/python bench/guests.py $(SUITES)

# Programs as people write them, plain, watched and with --heal, and under memory limits; NAMES="gpt vae" for some.
wild: $(STAMP)
	$(BIN)/python bench/wild.py $(NAMES)

# The oldest and newest versions that docs/support.md claims, each in an environment of its own; NAMES="..." for some.
matrix: $(STAMP)
	$(BIN)/python bench/matrix.py $(NAMES)

# The pages are tested in a real Chromium; where there is none those tests skip, and say so.
browser:
	command -v chromium || { apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends chromium fonts-liberation; }

docs: $(STAMP)
	$(BIN)/python docs/make_rules.py
	$(BIN)/python docs/make_check.py
	$(BIN)/python docs/make_record.py
	$(BIN)/python docs/make_messages.py
	$(BIN)/python docs/make_verdicts.py

# The site of docs/ in build/site, in an environment of its own: MkDocs has no part in the tests. Every warning is an error.
SITE := .venvs/site
$(SITE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/pip install --quiet --disable-pip-version-check '.[docs]'
	touch $@
site: $(SITE)/.installed
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --quiet --clean
	$(SITE)/bin/python docs/check_site.py

clean:
	rm -rf $(VENV) build dist htmlcov .coverage
