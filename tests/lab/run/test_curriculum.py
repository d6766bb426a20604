"""Interference of pairs of tasks, and the order that is proposed from it."""

import json
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.lab.run.config import configure
from sfao.lab.run.curriculum import MOST_TASKS, _cost, _improve, find_cheapest_order, propose_curriculum
from sfao.lab.run.curriculum_runs import PAIRS, find_curriculum, list_different_orders
from sfao.lab.run.errors import ConfigError, FolderError
from sfao.lab.run.interference import PairStatistics, probe_pairs

FAST = {"epochs": 1, "model.hidden": 16, "batch_size": 40, "lr": 0.05, "fraction": 0.2}


def config(method="sfao", **changes):
    return configure("split-mnist-5k", method, settings={**FAST, **changes})


def silent(doing):
    pass


@pytest.fixture(scope="module")
def pairs(digits):
    return probe_pairs(config(), digits, silent)


def test_every_ordered_pair_is_probed_once_with_shares_that_add_up(pairs):
    assert [(pair.first, pair.second) for pair in pairs] == list(permutations(range(5), 2))
    for pair in pairs:
        assert pair.accept + pair.project + pair.discard == pytest.approx(1)
        assert 0 <= pair.kept <= 1
        assert pair.interference >= 0
    assert len({pair.kept for pair in pairs}) > len(pairs) / 2


def test_a_gate_that_accepts_all_takes_nothing_away_and_one_that_discards_all_takes_everything(digits):
    for options, kept in (
        ({"options.discard_below": -1.0, "options.accept_above": -1.0}, 1.0),
        ({"options.discard_below": 1.0, "options.accept_above": 1.0}, 0.0),
    ):
        found = probe_pairs(config(tasks=2, **options), digits, silent)
        assert [pair.kept for pair in found] == [pytest.approx(kept)] * 2
        assert [pair.interference > 0 for pair in found] == [kept == 1] * 2
        assert [pair.accept for pair in found] == [kept] * 2


def test_probing_is_decided_by_the_seed_and_each_pair_knows_its_first_task_alone(digits, pairs):
    """The pairs of three tasks that share their first one do not depend on which were probed in between."""
    assert probe_pairs(config(), digits, silent) == pairs
    assert probe_pairs(config().model_copy(update={"seed": 1}), digits, silent) != pairs


def test_methods_without_a_gate_and_a_single_task_are_refused(digits):
    with pytest.raises(ConfigError, match="`method` must be one with a gate, ogd, sfao, got 'sgd'"):
        probe_pairs(config("sgd"), digits, silent)
    with pytest.raises(ConfigError, match="`tasks` must be at least 2 for an order of tasks, got 1"):
        probe_pairs(config(tasks=1), digits, silent)


def made_pairs(interference):
    return [
        PairStatistics(*pair, 0.5, 0.5, 0.0, kept=1 - value / 2, interference=value)
        for pair, value in interference.items()
    ]


INTERFERENCE = st.integers(2, 5).flatmap(
    lambda tasks: st.fixed_dictionaries(
        {pair: st.floats(0, 1, allow_subnormal=False) for pair in permutations(range(tasks), 2)}
    )
)


@given(INTERFERENCE)
@settings(deadline=None, max_examples=50)
def test_the_proposed_order_costs_least_of_all(interference):
    tasks = max(first for first, _ in interference) + 1
    order = find_cheapest_order(tasks, interference)
    assert sorted(order) == list(range(tasks))
    assert _cost(order, interference) == pytest.approx(
        min(_cost(each, interference) for each in permutations(range(tasks)))
    )


def test_many_tasks_get_an_order_that_no_single_move_improves():
    tasks = MOST_TASKS + 2
    interference = {(i, j): float(i < j) + (i * 7 + j * 3) % 11 / 100 for i, j in permutations(range(tasks), 2)}
    order = find_cheapest_order(tasks, interference)
    assert order == _improve(tasks, interference)
    assert order == list(range(tasks))[::-1]  # to learn a larger number first costs next to nothing


def test_a_task_is_described_by_what_happens_after_each_of_the_others():
    found = propose_curriculum(
        ["a", "b", "c"], made_pairs({(0, 1): 0.2, (0, 2): 0.4, (1, 0): 0.0, (1, 2): 0.6, (2, 0): 0.1, (2, 1): 0.3})
    )
    assert [task.interference for task in found.tasks] == pytest.approx([0.05, 0.25, 0.5])
    assert [task.difficulty for task in found.tasks] == pytest.approx([0.025, 0.125, 0.25])
    assert found.proposed == [2, 1, 0]
    assert found.cost([2, 1, 0]) == pytest.approx(0.4)
    assert found.orders == {"benchmark": [0, 1, 2], "proposed": [2, 1, 0], "reversed": [0, 1, 2]}
    assert list_different_orders(found) == {"benchmark": None, "proposed": [2, 1, 0]}
    assert json.loads(json.dumps(found.as_json()))["orders"]["proposed"] == {
        "order": [2, 1, 0],
        "cost": pytest.approx(0.4),
    }


def test_the_statistics_are_kept_in_the_folder_and_of_these_settings(tmp_path, digits, monkeypatch):
    small = config(tasks=2)
    first = find_curriculum(small, digits, tmp_path / "out", silent)
    monkeypatch.setattr("sfao.lab.run.curriculum_runs.probe_pairs", None)  # not called again
    assert find_curriculum(small, digits, tmp_path / "out", silent) == first
    assert [task.name for task in first.tasks] == ["0-4", "5-9"]
    kept = json.loads((tmp_path / "out" / PAIRS).read_text())
    for name in ("format", "sha256"):
        del kept[name]
    del kept["config"]["deterministic"]  # as a version before this setting, and before digests, left it
    (tmp_path / "out" / PAIRS).write_text(json.dumps(kept))
    assert find_curriculum(small, digits, tmp_path / "out", silent) == first
    with pytest.raises(FolderError, match=r"must be new or hold this curriculum, but in .* `lr` is 0.05, here 0.1"):
        find_curriculum(config(tasks=2, lr=0.1), digits, tmp_path / "out", silent)
    (tmp_path / "out" / PAIRS).write_text("{}")
    with pytest.raises(FolderError, match=r"must be of a curriculum, but it is damaged: `config` must hold settings"):
        find_curriculum(small, digits, tmp_path / "out", silent)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(FolderError, match="holds other files"):
        find_curriculum(small, digits, tmp_path / "mine", silent)
