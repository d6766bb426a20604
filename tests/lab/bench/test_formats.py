"""What stands under the tables of a bench."""

import pytest

from sfao.lab.bench.formats import as_markdown, write_notes
from sfao.lab.bench.results import Results, Row

MACHINE = {"processor": "one", "threads": "1", "torch": "2", "python": "3", "sfao": "0"}


def test_notes_tell_of_what_was_measured():
    machine = {"load_before": None, "load_after": None, "cores": 2}
    of_bound = Row(
        "mlp, DriftBound", "DriftBound", "mlp", 9, 0, None, None, None, None, None, {},
        2.0, 1.0, 3.0, 9, 2.0, 1.0, 1000, 0,
    )  # fmt: skip
    said = " ".join(write_notes(Results([of_bound], "cpu, batch 32", True, machine, [])))
    assert "DriftBound projects every 8 steps" in said
    assert "every layer projects" not in said
    table = as_markdown(Results([of_bound], "cpu, batch 32", True, {**MACHINE, **machine}, []))
    assert "| DriftBound | 2.00 | 1.00-3.00 | 2.00 | 1.00 | 0.00 | 0.00 |" in table


@pytest.mark.parametrize(
    ("load", "cpu_time", "busy"), [(1.0, False, False), (9.0, False, True), (9.0, True, False), (None, False, False)]
)
def test_a_busy_machine_is_told_where_it_counts(load, cpu_time, busy):
    machine = {"load_before": load, "load_after": load, "cores": 2}
    said = " ".join(write_notes(Results([], "cpu, batch 32", cpu_time, machine, ["mlp, dense: 4.3 GB"])))
    assert ("The machine was busy" in said) == busy
    assert ("what other processes take is not counted" in said) == cpu_time
    assert "Left out, too large: mlp, dense: 4.3 GB." in said
