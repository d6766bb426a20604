"""The grid of a sweep: which values are an axis, which combinations there are, and where they run."""

from pathlib import Path

import pytest

from sfao.lab.run.errors import ConfigError
from sfao.lab.tune.grid import plan_grid, split_axes
from sfao.lab.tune.search import make_search

OUT = Path("runs")


def make_grid(*texts, method="ewc", seeds=(0,)):
    fixed, axes = split_axes(texts)
    return plan_grid(make_search("split-mnist-5k", method, seeds, fixed), axes, OUT)


def test_values_with_commas_are_axes_and_commas_in_brackets_are_part_of_a_value():
    fixed, axes = split_axes(["epochs=2", "lr=0.1,0.2", "options.threshold=[0.9,0.95],0.97", "order=[1,0]"])
    assert fixed == {"epochs": 2, "order": [1, 0]}
    assert axes == {"lr": [0.1, 0.2], "options.threshold": [[0.9, 0.95], 0.97]}


def test_the_last_word_on_a_setting_counts():
    assert split_axes(["lr=1,2", "epochs=1,2", "lr=3"]) == ({"lr": 3}, {"epochs": [1, 2]})


def test_every_combination_with_every_seed_has_a_folder_of_its_own():
    grid = make_grid("options.strength=10,1e3", "options.fisher=exact,batch", seeds=(0, 4))
    assert [each.settings for each in grid] == [
        {"options.strength": strength, "options.fisher": fisher}
        for strength in (10, 1000)
        for fisher in ("exact", "batch")
    ]
    assert [str(job.folder) for job in grid[2].jobs] == [
        "runs/ewc-strength=1000.0-fisher=exact-0",
        "runs/ewc-strength=1000.0-fisher=exact-4",
    ]
    folders = [job.folder for each in grid for job in each.jobs]
    assert len(set(folders)) == len(folders) == 8
    assert [job.config.seed for job in grid[0].jobs] == [0, 4]
    assert {job.config.evaluate for each in grid for job in each.jobs} == {"validation"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["options.strength=10"], "`--set` must list values of at least one setting, .*, got 'options.strength=10'"),
        ([], "`--set` must list values of at least one setting, .*, got none"),
        (["options.strenght=10,100"], "ewc: unknown setting `options.strenght` .did you mean 'strength'?"),
        (["options.strength=10,-1"], "ewc: `options.strength`: .*greater than or equal to 0, got -1"),
        (["options.strength=1000,1e3"], "`--set options.strength` must list each value once, got 1000.0 twice"),
        (["tasks=2,5"], "`tasks` must be the same for all, or they could not be ranked"),
        (["evaluate=test,validation"], "`evaluate` must be the same for all"),
        (["evaluate=test", "lr=1,2"], "`evaluate` must be validation, .* never chosen on test data, got 'test'"),
        (["validation=0", "lr=1,2"], "`validation` must be above 0, got 0"),
    ],
)
def test_bad_grids(texts, message):
    with pytest.raises(ConfigError, match=message):
        make_grid(*texts)
