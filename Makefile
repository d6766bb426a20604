# Everything here works on a machine with Python (3.11 or newer), pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint types tests docs bench reproduction tutorial architecture clean

demo: $(INSTALLED)
	$(BIN)/sfao demo

test: lint types tests

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

tests: $(INSTALLED)
	$(BIN)/pytest -n auto

# The documentation, as a site in site/ that fetches nothing from a network. Open site/index.html, or serve the folder
# (`python3 -m http.server --directory site`): browsers allow the search on served pages only.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

bench: $(INSTALLED)
	$(BIN)/sfao bench

# The results page, from the records beside it.
reproduction: $(INSTALLED)
	$(BIN)/python docs/make_reproduction.py

# The tutorial, with what its code prints now.
tutorial: $(INSTALLED)
	$(BIN)/python docs/make_tutorial.py

# The picture of what may import what, from the table that the tests check.
architecture: $(INSTALLED)
	$(BIN)/python docs/make_architecture.py

# torch goes first: pinned, so that nothing pulls in another build of it. So does what builds this package: pip would
# take the newest into an environment of its own.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis site
