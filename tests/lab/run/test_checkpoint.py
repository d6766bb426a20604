import pytest
import torch

from sfao.lab.run.checkpoint import (
    LATEST,
    PREVIOUS,
    load_checkpoint,
    read_label,
    remove_checkpoints,
    save_checkpoint,
)


def test_what_a_state_is_of_is_told_without_loading_it(tmp_path):
    assert read_label(tmp_path) is None
    for number in (1, 2):
        save_checkpoint(tmp_path, {}, {"seed": number}, {"train": number})
    assert read_label(tmp_path) == (LATEST, {"seed": 2}, {"train": 2})
    damage(tmp_path / LATEST, "truncated")
    assert read_label(tmp_path) == (PREVIOUS, {"seed": 1}, {"train": 1})
    damage(tmp_path / PREVIOUS, "replaced")
    assert read_label(tmp_path) is None


def save(folder, number):
    save_checkpoint(folder, {"number": number, "weights": torch.full((1000,), float(number))}, {"seed": 0}, {})


def test_the_latest_is_loaded(tmp_path):
    assert load_checkpoint(tmp_path) is None
    save(tmp_path, 1)
    save(tmp_path, 2)
    loaded = load_checkpoint(tmp_path)
    assert loaded.state["number"] == 2
    assert loaded.notice == ""


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "truncated":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = bytearray()
    elif how == "flipped":
        data[len(data) // 2] ^= 0xFF  # in the middle of the weights
    else:
        data = bytearray(b"no checkpoint at all")
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["truncated", "empty", "flipped", "replaced"])
def test_a_damaged_one_falls_back_to_the_one_before_and_says_so(tmp_path, how):
    save(tmp_path, 1)
    save(tmp_path, 2)
    damage(tmp_path / LATEST, how)
    loaded = load_checkpoint(tmp_path)
    assert loaded.state["number"] == 1
    assert (loaded.state["weights"] == 1).all()
    assert "checkpoint.pt is damaged" in loaded.notice
    assert "continued from checkpoint.previous.pt" in loaded.notice


def test_with_both_damaged_it_starts_over_and_says_so(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2)
    damage(tmp_path / LATEST, "flipped")
    damage(tmp_path / PREVIOUS, "truncated")
    loaded = load_checkpoint(tmp_path)
    assert loaded.state == {}
    assert "starting over" in loaded.notice


def test_a_failed_save_leaves_the_one_before(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(Exception, match="pickle"):
        save_checkpoint(tmp_path, {"number": lambda: 2}, {}, {})
    assert load_checkpoint(tmp_path).state["number"] == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [LATEST]


def test_removed(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2)
    remove_checkpoints(tmp_path)
    assert list(tmp_path.iterdir()) == []
