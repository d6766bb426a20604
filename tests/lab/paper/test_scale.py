"""The scale of a reproduction: what a quick look changes, and that it is never taken for the whole."""

from pathlib import Path

import pytest

from sfao.lab.paper.archive import Archive, settings_key
from sfao.lab.paper.protocol import protocol
from sfao.lab.paper.reproduced_table import reproduce_table
from sfao.lab.paper.scale import QUICK_FRACTION, Scale
from tests.lab.paper.made import record

QUICK = Scale(QUICK_FRACTION, is_quick=True)


@pytest.mark.parametrize("number", range(1, 8))
def test_a_quick_look_learns_from_less_as_far_and_its_models_are_small(number):
    for series in protocol(number, "released").cells.values():
        whole, quick = series.config(), series.config(scale=QUICK)
        assert quick.lr * quick.fraction == pytest.approx(whole.lr)
        assert (quick.epochs, quick.batch_size, quick.options) == (whole.epochs, whole.batch_size, whole.options)
        assert quick.model.name != "wrn-28-10"
        assert (quick.model == whole.model) == (whole.model.name != "wrn-28-10")


def test_no_look_learns_so_fast_that_it_would_diverge():
    assert [Scale(fraction, is_quick=True).haste for fraction in (1, 0.5, 0.1, 0.001)] == [1, 2, 10, 10]
    assert Scale(0.1).haste == 1


def test_results_of_other_scales_have_other_names_and_other_keys():
    series = protocol(1, "released").cells["SGD", ""]
    scales = [Scale(), Scale(0.1), QUICK, Scale(0.01, is_quick=True)]
    folders = [series.folder(Path("out"), 0, scale).parent.name for scale in scales]
    assert folders == ["split-mnist", "split-mnist-fraction0.1", "split-mnist-quick", "split-mnist-quick-fraction0.01"]
    assert len({settings_key(series.config(scale=scale).model_dump()) for scale in scales}) == 4


def test_a_quick_table_is_of_quick_runs_alone_and_says_what_it_is():
    series = protocol(1, "released").cells["SGD", ""]
    quick = record(series, 0, 0.6, config=series.config(scale=QUICK).model_dump(), data={"train": 6000})
    archive = Archive([record(series, 0, 0.9), quick])
    table = reproduce_table(1, "released", archive, asked=1, scale=QUICK)
    assert table.rows[0].cells[0].ours.mean == pytest.approx(60)
    assert table.caveats[0].startswith("Quick: 0.1 of the training data at 10 times the learning rate: a look, no")
    assert not any("Quick" in caveat for caveat in reproduce_table(1, "released", archive, asked=1).caveats)
    assert "in the place of wrn-28-10" in QUICK.describe(["wrn-28-10"])
