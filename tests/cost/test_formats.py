"""What stands under the tables of a bench."""

import pytest

from sfao.cost.formats import write_notes
from sfao.cost.results import Results


@pytest.mark.parametrize(
    ("load", "cpu_time", "busy"), [(1.0, False, False), (9.0, False, True), (9.0, True, False), (None, False, False)]
)
def test_a_busy_machine_is_told_where_it_counts(load, cpu_time, busy):
    machine = {"load_before": load, "load_after": load, "cores": 2}
    said = " ".join(write_notes(Results([], "cpu, batch 32", cpu_time, machine, ["mlp, dense: 4.3 GB"])))
    assert ("The machine was busy" in said) == busy
    assert ("what other processes take is not counted" in said) == cpu_time
    assert "Left out, too large: mlp, dense: 4.3 GB." in said
