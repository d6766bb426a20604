import pytest

from sfao.lab.data import root
from sfao.lab.data.fetching import download


@pytest.fixture(autouse=True)
def _apart_from_the_user(tmp_path, monkeypatch):
    """No pause between attempts, no npm unless a test brings its own, no folder of the user's."""
    monkeypatch.setattr(root, "get_user_cache", lambda: tmp_path / "user")
    monkeypatch.delenv("SFAO_DATA", raising=False)
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0)
    monkeypatch.setenv("PATH", "")
