import json
from io import StringIO

import pytest

from sfao.lab.console import PlainConsole
from sfao.lab.methods import METHODS
from sfao.lab.report.comparison import compare_records
from sfao.lab.report.comparison_table import as_json, as_markdown, print_comparison
from sfao.lab.run.record import Record

EMBEDDED = {"name": "mnist-5k", "train": 4000, "test": 1000, "complete": True, "embedded": True}
FULL = {"name": "mnist", "train": 60000, "test": 10000, "complete": True, "embedded": False}
PART = {**FULL, "train": 600, "complete": False}


def record(method, seed, accuracy=0.5, *, learned=0.875, forgetting=0.25, status="done", **changes):
    known = {
        "benchmark": "split-mnist-5k",
        "scenario": "domain",
        "memory_bytes": 0,
        "seconds": 1.0,
        "data": EMBEDDED,
        "accuracy_matrix": [[learned]] if status == "done" else [],
        "config": {"method": method, "seed": seed, "lr": 0.1, "model": {"name": "mlp"}},
    }
    metrics = {"average_accuracy": accuracy, "average_forgetting": forgetting} if status == "done" else {}
    return Record(method=method, seed=seed, status=status, metrics=metrics, **{**known, **changes})


def only_group(records):
    (group,) = compare_records(records).groups
    return group


def text(records, width=120):
    console = PlainConsole(file=StringIO(), width=width)
    print_comparison(compare_records(records), console)
    return console.file.getvalue()


THREE = [
    *(record("joint", seed, 0.9 + seed / 100, seconds=9.0, memory_bytes=3_000_000) for seed in range(3)),
    *(record("sgd", seed, 0.6 + seed / 100, forgetting=0.4, seconds=2.0) for seed in range(3)),
    *(record("ewc", seed, 0.7 + seed / 50, forgetting=0.3, seconds=3.0, memory_bytes=2_000_000) for seed in range(3)),
    *(record("sfao", seed, 0.8, forgetting=0.1, seconds=8.0, memory_bytes=1_500) for seed in range(3)),
]


def test_a_row_holds_the_numbers_of_its_seeds():
    rows = {row.method: row for row in only_group(THREE).rows}
    assert list(rows) == ["sgd", "ewc", "sfao", "joint"]  # the bound comes last
    ewc = rows["ewc"]
    assert (ewc.done, ewc.asked, ewc.memory_bytes, ewc.seconds, ewc.times_sgd) == (3, 3, 2_000_000, 3.0, 1.5)
    assert ewc.accuracy.mean == pytest.approx(0.72)
    assert ewc.accuracy.std == pytest.approx(0.02)
    assert ewc.forgetting.mean == pytest.approx(0.3)
    assert ewc.learned.mean == 0.875
    assert ewc.failures == ""


def test_the_baseline_is_the_best_that_is_neither_ours_nor_the_bound():
    group = only_group(THREE)
    assert group.baseline == "ewc"
    tests = {row.method: row.test for row in group.rows}
    assert tests["ewc"] is tests["joint"] is None
    assert (tests["sfao"].against, tests["sfao"].n) == ("ewc", 3)
    assert tests["sfao"].difference == pytest.approx(0.08)
    assert tests["sgd"].difference == pytest.approx(-0.11)
    assert 0 < tests["sfao"].p < 0.05


def test_a_method_that_failed_on_some_seeds_is_the_baseline_only_where_no_other_is():
    troubled = [record("gem", 0, 0.99), record("gem", 1, status="failed"), record("gem", 2, status="failed")]
    assert only_group([*THREE, *troubled]).baseline == "ewc"
    ours = [each for each in THREE if each.method == "sfao"]
    assert only_group([*ours, *troubled]).baseline == "gem"


@pytest.mark.parametrize(
    "other",
    [
        {"benchmark": "permuted-mnist-5k"},
        {"scenario": "class"},
        {"data": FULL},
        {"data": PART},
        {"data": {**EMBEDDED, "complete": False}},
        {"data": {**EMBEDDED, "embedded": False}},
        {"data": {**EMBEDDED, "digest": "b" * 16}},
        {"config": {"method": "sgd", "seed": 1, "lr": 0.1, "model": {"name": "mlp"}, "tasks": 2}},
        {"config": {"method": "sgd", "seed": 1, "lr": 0.1, "model": {"name": "mlp"}, "evaluate": "validation"}},
        {"config": {"method": "sgd", "seed": 1, "lr": 0.1, "model": {"name": "mlp"}, "fraction": 0.1}},
    ],
)
def test_what_must_not_be_compared_is_never_averaged(other):
    here = {**EMBEDDED, "digest": "a" * 16}
    compared = compare_records([record("sgd", 0, 0.2, data=here), record("sgd", 1, 0.8, **{"data": here, **other})])
    assert [group.rows[0].accuracy.mean for group in compared.groups] == [0.2, 0.8]
    assert compared.notice.startswith("Results of different benchmarks, scenarios or data are shown apart")


@pytest.mark.parametrize(
    ("data", "fraction", "caveat"),
    [
        (EMBEDDED, 1, "On the 5,000 embedded digits: not to be read next to results on the full set."),
        (PART, 1, "On a part of mnist, 600 training images: not results on all of it."),
        (PART, 0.01, "On a part of mnist, 600 training images: not results on all of it."),
        ({}, 0.01, "On a part of the data: not results on all of it."),
        ({**FULL, "published": False}, 1, "On files of mnist that are not known to be the publisher's."),
        (FULL, 1, ""),
    ],
)
def test_data_that_is_not_the_whole_published_set_is_named(data, fraction, caveat):
    records = [record("sgd", 0, data=data, config={"fraction": fraction})]
    assert only_group(records).caveat == caveat
    assert caveat in " ".join(text(records).split())


def test_a_method_with_different_settings_is_as_many_rows():
    faster = {"method": "sgd", "seed": 0, "lr": 0.5, "model": {"name": "mlp"}}
    group = only_group([record("sgd", 0, 0.2), record("sgd", 0, 0.8, config=faster)])
    assert [(row.method, row.accuracy.mean) for row in group.rows] == [("sgd (lr=0.1)", 0.2), ("sgd (lr=0.5)", 0.8)]


def test_a_run_that_was_done_twice_counts_once():
    group = only_group([record("sgd", 0, status="failed"), record("sgd", 0, 0.2), record("sgd", 0, 0.2)])
    assert [(row.done, row.asked, row.failures) for row in group.rows] == [(1, 1, "")]


def test_runs_that_did_not_end_well_are_counted_and_the_row_is_not_ranked():
    records = [
        record("sgd", 0, 0.6),
        record("sgd", 1, 0.6),
        record("ewc", 0, 0.5),
        record("ewc", 1, 0.5),
        record("ogd", 0, 0.9),
        record("ogd", 1, status="diverged", error="the loss was nan"),
        record("si", 0, status="failed"),
        record("si", 1, status="failed"),
    ]
    rows = {row.method: row for row in only_group(records).rows}
    assert (rows["ogd"].done, rows["ogd"].asked, rows["ogd"].failures) == (1, 2, "1 diverged")
    assert (rows["si"].accuracy, rows["si"].seconds, rows["si"].failures) == (None, None, "2 failed")
    lines = as_markdown(compare_records(records)).splitlines()
    assert next(line for line in lines if "**0.600" in line).startswith("| sgd |")
    assert not [line for line in lines if "**0.900" in line]


def rows_in_markdown(records):
    lines = as_markdown(compare_records(records)).splitlines()
    return {line.split(" | ")[0].strip("| *"): line for line in lines}


def test_the_best_of_a_column_is_bold_but_never_the_bound():
    table = rows_in_markdown(THREE)
    assert "**0.800 ± 0.000**" in table["sfao"]
    assert "**0.100 ± 0.000**" in table["sfao"]
    assert "**2.0 s" in table["sgd"]
    assert "**0 B**" in table["sgd"]
    assert "**" not in table["joint"]
    assert "**" not in table["ewc"]


def around(mean, width=0.01):
    """Three accuracies with this mean."""
    return [mean - width, mean, mean + width]


def test_all_within_the_interval_of_the_best_are_bold():
    """The interval of 0.9 is 0.875 to 0.925."""
    accuracies = {"sgd": 0.87, "ewc": 0.88, "si": 0.9, "gem": 0.91}
    records = [record(name, seed, a) for name, mean in accuracies.items() for seed, a in enumerate(around(mean))]
    group = only_group(records)
    si = next(row for row in group.rows if row.method == "si")
    assert (round(si.accuracy.low, 3), round(si.accuracy.high, 3)) == (0.875, 0.925)
    table = rows_in_markdown(records)
    assert [name for name in accuracies if "**0." in table[name]] == ["ewc", "si"]
    assert "Bold: the best, and what lies in its 95 % interval." in text(records)


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].stores_data])
def test_methods_that_store_data_are_never_the_best_or_the_baseline(method):
    bound = [record(method, seed, 0.99, forgetting=0.0, learned=0.99, memory_bytes=7_000) for seed in range(3)]
    without = [each for each in THREE if each.method != "joint"]
    group = only_group([*bound, *without])
    assert group.baseline == "ewc"
    assert group.rows[-1].method == method  # last, although it came first
    assert (group.rows[-1].stores_data, group.rows[-1].is_bound) == (True, True)
    assert f"Not ranked, as they store data, which counts as held: {method}." in text([*bound, *without])
    row = rows_in_markdown([*bound, *without])[method]
    assert row.startswith(f"| *{method}* |")
    assert "7.0 kB" in row
    assert "**" not in row


def test_among_themselves_methods_that_store_data_are_ranked_but_joint_is_not():
    records = [record("er", 0, 0.7), record("gem", 0, 0.8), record("joint", 0, 0.9)]
    table = rows_in_markdown(records)
    assert [name for name in ("er", "gem", "joint") if "**0." in table[name]] == ["gem"]
    assert only_group(records).baseline == "gem"


def test_a_warning_is_listed_once_with_the_runs_it_concerns():
    records = [record("ewc", seed, warnings=["the penalty is always zero"]) for seed in (0, 1)]
    records += [record("si", 4, warnings=["the penalty is always zero", "another"])]
    shown = text(records)
    assert shown.count("the penalty is always zero") == 1
    assert "warning (ewc, seeds 0, 1; si, seed 4): the penalty is always zero" in shown
    assert "warning (si, seed 4): another" in shown


def configured(method, seed=0, **settings):
    known = {"method": method, "seed": seed, "lr": 0.1, "epochs": 2, "model": {"name": "mlp", "hidden": 256}}
    return record(method, seed, config={**known, **settings})


def test_settings_that_methods_do_not_share_are_a_line_under_the_table():
    model = {"name": "cnn", "fc": 9}
    records = [configured("sgd"), configured("sgd", 1), configured("ewc", epochs=10), configured("sfao", model=model)]
    line = "methods differ in model.name: mlp (sgd, ewc), cnn (sfao); epochs: 2 (sgd, sfao), 10 (ewc)"
    assert only_group(records).setting_mismatch == line
    assert f"warning: {line}" in text(records)
    assert f"\n- warning: {line}\n" in as_markdown(compare_records(records))
    assert as_json(compare_records(records))["groups"][0]["setting_mismatch"] == line


def test_options_of_methods_and_sweeps_that_all_share_are_no_difference():
    own = [configured("sgd"), configured("ewc", options={"strength": 3})]
    swept = [configured(method, lr=lr) for method in ("sgd", "ewc") for lr in (0.1, 0.2)]
    alone = [configured("sgd", lr=lr) for lr in (0.1, 0.2)]
    for records in (own, swept, alone, THREE):
        assert only_group(records).setting_mismatch == ""
        assert "differ" not in text(records)
    many = [configured("sgd"), *(configured("ewc", lr=lr) for lr in range(1, 7))]
    assert only_group(many).setting_mismatch == "methods differ in lr: 7 values"


def test_json_holds_plain_full_numbers_and_no_nan():
    records = [record("sgd", 0, 1 / 3), record("ewc", 0, status="failed")]
    values = json.loads(json.dumps(as_json(compare_records(records)), allow_nan=False))
    row, failed = values["groups"][0]["rows"]
    assert row["accuracy"] == {"n": 1, "mean": 1 / 3, "std": None, "low": None, "high": None}
    assert failed["accuracy"] is None


@pytest.mark.parametrize(("width", "pieces"), [(200, 1), (100, 1), (91, 1), (80, 2), (40, 3)])
def test_the_table_fits_the_terminal_with_nothing_cut(width, pieces):
    lines = text(THREE, width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    rows = [line.split()[1:] for line in lines if line.startswith("ewc ")]
    assert len(rows) == pieces
    numbers = "3 0.720 ± 0.020 0.670, 0.770 0.875 0.300 ± 0.000 2.0 MB 3.0 s 1.5x baseline"
    assert " ".join(word for row in rows for word in row) == numbers
    assert sum("4,000 training" in line for line in lines) == 1


def test_why_there_is_no_p_value_is_said():
    assert "no p for ewc: 1 common seed, a test needs 2." in text([record("sgd", 0, 0.9), record("ewc", 0)])


def test_rollbacks_have_a_column_where_a_run_had_a_guard():
    free = {"method": "sgd", "lr": 0.1, "model": {"name": "mlp"}}
    guarded = {**free, "guard": {"kind": "measured", "rise": 0.05, "every": 50, "rollbacks": 3}}
    once = [{"task": 1, "step": 9, "from": 9, "to": 5, "reason": "rise", "values": {}, "tightened": "lr"}]
    records = [record("sgd", seed, config={**free, "seed": seed}) for seed in (0, 1)]
    assert "rollbacks" not in text(records)
    records += [record("sgd", seed, config={**guarded, "seed": seed}, rollbacks=once * seed) for seed in (0, 1)]
    rows = only_group(records).rows
    assert [row.rollbacks for row in rows] == [None, 0.5]
    assert "guard.kind=measured" in rows[1].method
    assert "guard.kind" not in rows[0].method
    assert "rollbacks" in text(records)
    assert "| rollbacks |" in as_markdown(compare_records(records))
