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
COMPANY := .venv-company
COMPANY_INSTALLED := $(COMPANY)/.installed
COMPANY_REQUIREMENTS := $(wildcard tests/company/requirements*.txt)

# The environment of the tools that look at what is installed, not part of it.
SUPPLY := .venv-supply
SUPPLY_INSTALLED := $(SUPPLY)/.installed

.PHONY: demo test test-company soak lint types tests docs bench readme reproduction tutorial notebook baselines \
  architecture reliability lock sbom audit clean

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
test-company: $(COMPANY_INSTALLED)
	$(COMPANY)/bin/pytest -n auto --dist worksteal tests/company

# The documentation, as a site in site/ that fetches nothing from a network. Open site/index.html, or serve the folder
# (`python3 -m http.server --directory site`): browsers allow the search on served pages only.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

bench: $(LAB)
	$(BIN)/sfao bench

# What the README shows of the demo, from the records of one: `.venv/bin/python docs/make_demo.py --collect runs/demo`
# takes those of a new one.
readme: $(INSTALLED)
	$(BIN)/python docs/make_demo.py

# The results page, from the records beside it.
reproduction: $(INSTALLED)
	$(BIN)/python docs/make_reproduction.py

# The tutorial, with what its code prints now.
tutorial: $(INSTALLED)
	$(BIN)/python docs/make_tutorial.py

# The notebook of the examples, with what its cells print and show now.
notebook: $(INSTALLED)
	$(BIN)/python docs/make_notebook.py

# The page on baselines, from the records beside it.
baselines: $(INSTALLED)
	$(BIN)/python docs/make_baselines.py

# The picture of what may import what, from the table that the tests check.
architecture: $(INSTALLED)
	$(BIN)/python docs/make_architecture.py

# The page on what holds, from the record of the last count: `make soak`, then
# `.venv/bin/python docs/make_reliability.py --collect runs/tally.jsonl`, counts anew.
reliability: $(INSTALLED)
	$(BIN)/python docs/make_reliability.py

# The hashes of every pin, asked of the index that pip is configured with. Then the licences and the bill of materials.
lock: $(INSTALLED)
	$(BIN)/python -m supply.make_lock
	$(MAKE) sbom

# Licences and CycloneDX, from the metadata of what is installed; the second is validated against its schema.
sbom: $(INSTALLED) $(SUPPLY_INSTALLED)
	$(BIN)/python -m supply.licences
	$(BIN)/python -m supply.make_sbom
	$(SUPPLY)/bin/python -m supply.check_sbom

# Known vulnerabilities of the pins; fails where the database cannot be asked.
audit: $(SUPPLY_INSTALLED)
	$(SUPPLY)/bin/python -m supply.audit

$(SUPPLY_INSTALLED): supply/lock-tools.txt
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/python -m pip install --quiet --require-hashes --requirement $<
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
$(COMPANY_INSTALLED): pyproject.toml constraints.txt constraints-company.txt $(COMPANY_REQUIREMENTS) \
  tests/company/torchvision_on_cpu.py
	$(PYTHON) -m venv $(COMPANY)
	$(COMPANY)/bin/python -m $(INSTALL) torch hatchling editables
	$(COMPANY)/bin/python -m $(INSTALL) --constraint constraints-company.txt \
	  --no-build-isolation --editable '.[lab]' \
	  $(addprefix --requirement ,$(filter-out %-no-deps.txt,$(COMPANY_REQUIREMENTS)))
	$(COMPANY)/bin/python -m $(INSTALL) --constraint constraints-company.txt \
	  --no-deps $(addprefix --requirement ,$(filter %-no-deps.txt,$(COMPANY_REQUIREMENTS)))
	site=$$($(COMPANY)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	  && cp tests/company/torchvision_on_cpu.py $$site && echo 'import torchvision_on_cpu' > $$site/torchvision_on_cpu.pth
	touch $@

clean:
	rm -rf $(VENV) $(COMPANY) $(SUPPLY) .mypy_cache .pytest_cache .ruff_cache .hypothesis site
