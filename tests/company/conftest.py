"""Tests beside real libraries, whose own warnings are no failure; ours are."""

import os

import pytest

# No telemetry, no downloads, and no tables of parallel tokenizers in a terminal.
os.environ.update(HF_HUB_OFFLINE="1", WANDB_MODE="offline", TOKENIZERS_PARALLELISM="false")


def pytest_configure(config: pytest.Config) -> None:
    for line in ("default", "error:::sfao"):
        config.addinivalue_line("filterwarnings", line)
