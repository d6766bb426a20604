# Everything here works on a machine with Python (3.11 or newer), pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What a user has, the laboratory; and all that lint, types, tests and documentation need besides.
LAB := $(VENV)/.lab
INSTALLED := $(VENV)/.installed

# Modules are compiled when they are first imported, not when they are installed, which takes half the time.
INSTALL := pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt

# The environment of the libraries that sfao integrates with.
INTEGRATIONS := .venv-integrations
INTEGRATIONS_INSTALLED := $(INTEGRATIONS)/.installed
INTEGRATIONS_REQUIREMENTS := $(wildcard tests/integrations/requirements*.txt)

# The environment of the tools that lock and audit what is installed.
TOOLS := .venv-tools
TOOLS_INSTALLED := $(TOOLS)/.installed

.PHONY: demo test test-integrations soak lint types tests docs bench pages outputs architecture lock sbom audit clean

demo: $(LAB)
	$(BIN)/sfao demo

# Types are checked by one process, beside the tests.
test: $(INSTALLED)
	$(MAKE) --no-print-directory --jobs=3 lint types tests

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

# Each process takes neighbouring tests, which share what they set up; one that has no more takes them from another.
tests: $(INSTALLED)
	$(BIN)/pytest -n auto --dist worksteal

# What takes long: each of these tests has a short form in `make test`. `make soak SHARE=0.1` does a tenth of each attack.
# How often each was tried, and what broke, is in runs/tally.jsonl.
SHARE ?= 1
soak: $(INSTALLED)
	mkdir -p runs && rm -f runs/tally.jsonl
	$(BIN)/pytest -n auto --dist worksteal -m soak
	SFAO_SOAK=$(SHARE) SFAO_TALLY=runs/tally.jsonl $(BIN)/pytest -n auto --dist worksteal -m '' tests/faults

# The integrations beside the real libraries (Lightning, transformers, peft, accelerate, Avalanche, loggers, Ray), in an
# environment of its own. `make test` needs none of them.
test-integrations: $(INTEGRATIONS_INSTALLED)
	$(INTEGRATIONS)/bin/pytest -n auto --dist worksteal tests/integrations

# The documentation, as a site in site/ that fetches nothing from a network. Open site/index.html, or serve the folder
# (`python3 -m http.server --directory site`): browsers allow the search on served pages only.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

bench: $(LAB)
	$(BIN)/sfao bench

# The tables and figures on docs pages, from docs/records. docs/keep_records.py adds new results.
pages: $(INSTALLED)
	$(BIN)/python docs/make_pages.py

# The tutorial and the notebook, with what their code prints now.
outputs: $(INSTALLED)
	$(BIN)/python docs/make_outputs.py

# The picture of what may import what, from the table that the tests check.
architecture: $(INSTALLED)
	$(BIN)/python docs/make_architecture.py

# requirements.lock: everything the laboratory needs on Linux, with hashes. `make lock` after a change of a pin, then
# `pip install --require-hashes --requirement requirements.lock` installs exactly that.
lock: $(TOOLS_INSTALLED)
	$(TOOLS)/bin/uv pip compile --quiet --extra lab --constraint constraints.txt --python-version 3.11 --no-config \
	  --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml

# A CycloneDX bill of materials of what the lock installs, in sbom.json.
sbom: $(TOOLS_INSTALLED)
	$(TOOLS)/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-file sbom.json

# Known vulnerabilities of what the lock installs. Needs a connection to the database of advisories.
audit: $(TOOLS_INSTALLED)
	$(TOOLS)/bin/pip-audit --require-hashes --disable-pip --requirement requirements.lock

$(TOOLS_INSTALLED): Makefile
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check uv pip-audit cyclonedx-bom
	touch $@

# torch goes first: pinned, so that nothing pulls in another build of it. So does what builds this package: pip would
# take the newest into an environment of its own.
$(LAB): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m $(INSTALL) torch hatchling editables
	$(BIN)/python -m $(INSTALL) --no-build-isolation --editable '.[lab]'
	touch $@

$(INSTALLED): $(LAB)
	$(BIN)/python -m $(INSTALL) --no-build-isolation --editable '.[dev]'
	touch $@

# torch first, as above. Every requirements file is installed in one go, but those that must not bring their own.
$(INTEGRATIONS_INSTALLED): pyproject.toml constraints.txt constraints-integrations.txt $(INTEGRATIONS_REQUIREMENTS) \
  tests/integrations/torchvision_on_cpu.py
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m $(INSTALL) torch hatchling editables
	$(INTEGRATIONS)/bin/python -m $(INSTALL) --constraint constraints-integrations.txt \
	  --no-build-isolation --editable '.[lab]' \
	  $(addprefix --requirement ,$(filter-out %-no-deps.txt,$(INTEGRATIONS_REQUIREMENTS)))
	$(INTEGRATIONS)/bin/python -m $(INSTALL) --constraint constraints-integrations.txt \
	  --no-deps $(addprefix --requirement ,$(filter %-no-deps.txt,$(INTEGRATIONS_REQUIREMENTS)))
	site=$$($(INTEGRATIONS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	  && cp tests/integrations/torchvision_on_cpu.py $$site && echo 'import torchvision_on_cpu' > $$site/torchvision_on_cpu.pth
	touch $@

clean:
	rm -rf $(VENV) $(INTEGRATIONS) $(TOOLS) .mypy_cache .pytest_cache .ruff_cache .hypothesis site
