"""The finding in words: true to the numbers, and never more than they say."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.lab.methods import METHODS
from sfao.lab.report.comparison import compare_records
from sfao.lab.report.headline import describe_findings, find_finding
from tests.lab.report.test_comparison import FULL, THREE, record


def seeds(method, *accuracies, **changes):
    return [record(method, seed, accuracy, **changes) for seed, accuracy in enumerate(accuracies)]


CLEAR = [*seeds("gpm", 0.70, 0.72, 0.71), *seeds("sfao", 0.80, 0.81, 0.82, memory_bytes=1_500, seconds=8.0)]
STORING = [*seeds("joint", 0.95, 0.96, 0.97), *seeds("agem", 0.90, 0.91, 0.92)]


def finding_of(records):
    (group,) = compare_records(records).groups
    return find_finding(group)


def headline(records):
    return finding_of(records).headline


def test_a_win_tells_who_by_how_much_and_the_p_value_of_the_two_that_it_names():
    assert headline(CLEAR) == (
        "sfao beats gpm by 0.100 of accuracy, 0.810 to 0.710 (p = 0.0033, paired over 3 seeds), "
        "and is the best of 2 methods."
    )
    assert finding_of(CLEAR).details == [
        "Cost: sfao 8.0 s a run, 1.5 kB held; gpm 1.0 s a run, 0 B held.",
        "Forgotten: sfao 0.250, gpm 0.250.",
    ]


@pytest.mark.parametrize(
    "records",
    [
        [*seeds("gpm", 0.70, 0.75, 0.72), *seeds("sfao", 0.75, 0.70, 0.74)],
        [*seeds("gpm", 0.70, 0.75, 0.71), *seeds("sfao", 0.75, 0.70, 0.71)],
        # Seeds that only one has make no win.
        [*seeds("sfao", 0.6, 0.61, 0.62), *[record("sfao", s, 0.99) for s in (3, 4)], *seeds("gpm", 0.7, 0.72, 0.72)],
    ],
)
def test_what_chance_explains_is_no_win(records):
    assert "cannot be told apart" in headline(records)
    assert "beats" not in headline(records)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([*seeds("gpm", 0.7), *seeds("sfao", 0.8)], "1 common seed, a test needs 2"),
        ([record("gpm", 0, 0.7), record("sfao", 2, 0.8)], "0 common seeds, a test needs 2"),
        ([*seeds("gpm", 0.7, 0.7), *seeds("sfao", 0.8, 0.8)], "the difference is the same for every seed"),
    ],
)
def test_without_a_test_there_is_a_lead_and_no_win(records, reason):
    assert headline(records).startswith(
        f"sfao is ahead of gpm by 0.100 of accuracy, 0.800 to 0.700 (no p value: {reason}"
    )


def test_plain_descent_is_told_beside_the_two_that_lead():
    details = finding_of(THREE).details
    assert "sfao 8.0 s a run (4.0 times sgd), 1.5 kB held; ewc 3.0 s a run (1.5 times sgd), 2.0 MB held." in details[0]
    assert details[1] == "Forgotten: sfao 0.100, ewc 0.300, sgd 0.400."


def test_what_stores_data_is_named_and_never_wins_over_what_does_not():
    own = seeds("own:Replay", 0.98, 0.98, 0.99, stores_data=True)
    finding = finding_of([*STORING, *own, *CLEAR])
    assert finding.headline == headline(CLEAR)
    assert finding.details[-1] == "Methods that store data, not ranked: own:Replay 0.983, joint 0.960, agem 0.910."
    assert headline([*STORING, *seeds("sfao", 0.5, 0.5)]) == "sfao reaches an accuracy of 0.500 ± 0.000 on 2 seeds."
    # joint is the bound, and not ranked even among these.
    assert headline([*STORING, *seeds("er", 0.8, 0.8, 0.9)]).startswith("agem and er, the best of 2 methods")


def test_settings_of_one_method_are_called_settings():
    rates = [
        record("sgd", seed, 0.6 + lr + seed / 100, config={"method": "sgd", "seed": seed, "lr": lr})
        for lr in (0.1, 0.2)
        for seed in range(2)
    ]
    assert headline(rates).startswith("sgd (lr=0.2) ")
    assert "2 settings" in headline(rates)


def test_what_did_not_end_well_is_told_and_not_ranked():
    lucky = [record("si", 0, 0.99), record("si", 1, status="diverged"), record("ewc", 0, status="failed")]
    finding = finding_of([*CLEAR, *lucky])
    assert finding.headline == headline(CLEAR)
    assert finding.details[-1] == "Not ranked, as not all runs ended well: si (1 diverged), ewc (1 failed)."
    assert headline([record("sgd", 0, status="failed"), record("si", 0, status="diverged")]) == (
        "No run ended well: sgd 1 failed, si 1 diverged."
    )


def test_every_group_has_a_line():
    groups = compare_records([*CLEAR, *seeds("sgd", 0.4, data=FULL)]).groups
    lines = describe_findings(groups).split("\n")
    assert [line.startswith(f"{group.title}: ") for line, group in zip(lines, groups, strict=True)] == [True, True]


def test_many_and_long_names_are_counted_and_shortened():
    many = [run for number in range(50) for run in seeds(f"own:m{number}", 0.5) if number]
    failed = [record(f"own:{'x' * 500}{number}", 0, status="failed") for number in range(50)]
    assert len(describe_findings(compare_records(many + failed).groups)) < 900


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["sgd", "ewc", "gpm", "sfao", "agem", "joint", "اسم:طريقة", "名:方法"]),
        st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["done", "done", "failed", "diverged"])), max_size=4),
        max_size=6,
    )
)
def test_any_runs_have_a_finding_that_names_no_winner_without_a_test(runs):
    records = [
        record(method, seed, accuracy, status=status)
        for method, own in runs.items()
        for seed, (accuracy, status) in enumerate(own)
    ]
    text = describe_findings(compare_records(records).groups)
    assert "nan" not in text
    for winner, loser, p in re.findall(r"^(\S+) beats (\S+) by .*\(p [=<] (\S+),", text):
        assert float(p) < 0.05
        assert METHODS[winner].stores_data == METHODS[loser].stores_data
