"""Tests beside real libraries, whose own warnings are no failure; ours are."""

import os

import pytest

# No telemetry, no downloads, and no tables of parallel tokenizers in a terminal.
os.environ.update(HF_HUB_OFFLINE="1", WANDB_MODE="offline", TOKENIZERS_PARALLELISM="false")


def pytest_configure(config: pytest.Config) -> None:
    # The embeddings and norms of language models have no input space, as consolidate says.
    for line in ("default", "error:::sfao", "ignore:layers without an input space:RuntimeWarning"):
        config.addinivalue_line("filterwarnings", line)
