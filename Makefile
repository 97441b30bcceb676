# One target for each thing a developer does. `make test` needs nothing but python3 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: test lint types bench score docs clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
# torch first and by itself: the pinned build keeps the other frameworks from pulling in a CUDA one.
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $(STAMP)

test: $(STAMP) lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check src tests bench docs
	$(BIN)/ruff format --check src tests bench docs

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python bench/run.py

# Every patient under Holter, for about an hour; NAMES="torch_ keras_" for some, WRITE=1 to write docs/scoreboard.md.
score: $(STAMP)
	$(BIN)/python -m tests.score $(NAMES) $(if $(WRITE),--write)

docs: $(STAMP)
	$(BIN)/python docs/make_rules.py

clean:
	rm -rf $(VENV) build dist
