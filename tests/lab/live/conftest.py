import pytest

from sfao.lab.live import live_run, server


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """States follow each other faster than a reader would want them."""
    monkeypatch.setattr(server, "BETWEEN", 0.05)
    monkeypatch.setattr(live_run, "REFRESH", 0.0)
