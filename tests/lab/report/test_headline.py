"""The finding in words: true to the numbers, and never more than they say."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.lab.methods import METHODS
from sfao.lab.report.comparison import compare_records
from sfao.lab.report.headline import describe_finding, find_findings
from tests.lab.report.test_comparison import FULL, THREE, record


def seeds(method, *accuracies, **changes):
    return [record(method, seed, accuracy, **changes) for seed, accuracy in enumerate(accuracies)]


CLEAR = [*seeds("gpm", 0.70, 0.72, 0.71), *seeds("sfao", 0.80, 0.81, 0.82, memory_bytes=1_500, seconds=8.0)]
STORING = [*seeds("joint", 0.95, 0.96, 0.97), *seeds("agem", 0.90, 0.91, 0.92)]


def headline(records):
    (finding,) = find_findings(records)
    return finding.headline


def test_a_win_tells_who_by_how_much_and_the_p_value_of_the_two_that_it_names():
    assert headline(CLEAR) == (
        "sfao beats gpm by 0.100 of accuracy, 0.810 to 0.710 (p = 0.0033, paired over 3 seeds), "
        "and is the best of 2 methods that store no data."
    )
    assert " ".join(find_findings(CLEAR)[0].details) == (
        "Cost: sfao 8.0 s a run, 1.5 kB held; gpm 1.0 s a run, 0 B held. Forgotten: sfao 0.250, gpm 0.250."
    )


def test_what_chance_explains_is_no_win():
    close = [*seeds("gpm", 0.70, 0.75, 0.72), *seeds("sfao", 0.75, 0.70, 0.74)]
    assert headline(close).startswith("sfao and gpm, the best of 2 methods that store no data, cannot be told apart: ")
    assert "apart: accuracy 0.730 and 0.723 (p = 0.8" in headline(close)
    equal = [*seeds("gpm", 0.70, 0.75, 0.71), *seeds("sfao", 0.75, 0.70, 0.71)]
    assert "apart: accuracy 0.720 (p = 1, " in headline(equal)
    assert "beats" not in describe_finding(close)


def test_one_seed_or_none_in_common_is_no_win():
    one = [*seeds("gpm", 0.7), *seeds("sfao", 0.8)]
    assert (
        "is ahead of gpm by 0.100 of accuracy, 0.800 to 0.700 (no p value: 1 common seed, a test needs 2)"
        in headline(one)
    )
    apart = [record("gpm", 0, 0.7), record("gpm", 1, 0.71), record("sfao", 2, 0.8), record("sfao", 3, 0.8)]
    assert "(no p value: 0 common seeds, a test needs 2)" in headline(apart)
    same = [*seeds("gpm", 0.7, 0.7), *seeds("sfao", 0.8, 0.8)]
    assert (
        "is ahead of gpm by 0.100 of accuracy, 0.800 to 0.700 (no p value: the difference is the same for"
        in headline(same)
    )


def test_seeds_that_only_one_has_make_no_win():
    ours = [*seeds("sfao", 0.60, 0.61, 0.62), *(record("sfao", seed, 0.99) for seed in (3, 4, 5))]
    theirs = seeds("gpm", 0.70, 0.72, 0.72)
    assert headline([*ours, *theirs]).startswith("sfao and gpm, ")


def test_plain_descent_is_told_beside_the_two_that_lead():
    (finding,) = find_findings(THREE)
    assert "Cost: sfao 8.0 s a run (4.0 times sgd), 1.5 kB held; ewc 3.0 s a run (1.5 times sgd), 2.0 MB held." in (
        finding.details
    )
    assert "Forgotten: sfao 0.100, ewc 0.300, sgd 0.400." in finding.details


def test_what_stores_data_is_named_and_never_wins_over_what_does_not():
    (finding,) = find_findings([*STORING, *CLEAR])
    assert finding.headline == headline(CLEAR)
    assert finding.details[-1] == "Methods that store data, not ranked: joint 0.960, agem 0.910."
    assert headline([*STORING, *seeds("sfao", 0.5, 0.5)]) == "sfao reaches an accuracy of 0.500 ± 0.000 on 2 seeds."
    # joint is the bound, and not ranked even among these.
    assert headline([*STORING, *seeds("er", 0.8, 0.8, 0.9)]).startswith(
        "agem and er, the best of 2 methods that store data"
    )
    assert headline(STORING[:3]).startswith("joint, which stores data, reaches")


def test_of_a_method_that_is_not_known_here_nothing_is_claimed():
    own = [*seeds("mine:Method", 0.70, 0.72, 0.71), *CLEAR]
    assert headline(own).endswith("the best of 3 methods not known to store data.")


def test_one_run_and_one_method():
    assert (
        headline(seeds("sgd", 0.6)) == "sgd reaches an accuracy of 0.600 on one seed, with nothing to compare it with."
    )
    assert "0.650 ± 0.071 on 2 seeds" in headline(seeds("sgd", 0.6, 0.7))


def test_settings_of_one_method_are_called_settings():
    rates = [
        record("sgd", seed, 0.6 + lr + seed / 100, config={"method": "sgd", "seed": seed, "lr": lr})
        for lr in (0.1, 0.2)
        for seed in range(2)
    ]
    assert headline(rates).startswith("sgd (lr=0.2) ")
    assert "2 settings that store no data" in headline(rates)


def test_what_did_not_end_well_is_told_and_not_ranked():
    lucky = [record("si", 0, 0.99), record("si", 1, status="diverged"), record("ewc", 0, status="failed")]
    (finding,) = find_findings([*CLEAR, *lucky])
    assert finding.headline == headline(CLEAR)
    assert finding.details[-1] == "Not ranked, as not all runs ended well: si (1 diverged), ewc (1 failed)."
    assert headline([record("sgd", 0, status="failed")]) == "The only run, of sgd, did not end well: failed."
    assert headline([record("sgd", 0, status="failed"), record("si", 0, status="diverged")]) == (
        "None of the 2 runs ended well: sgd 1 failed, si 1 diverged."
    )


def test_groups_are_told_apart_and_no_runs_are_told_too():
    lines = describe_finding([*CLEAR, *seeds("sgd", 0.4, data=FULL)]).split("\n")
    titles = [group.title for group in compare_records([*CLEAR, *seeds("sgd", 0.4, data=FULL)]).groups]
    assert [line.startswith(f"{title}: ") for line, title in zip(lines, titles, strict=True)] == [True, True]
    assert describe_finding([]) == "There are no runs."


def test_many_and_long_names_are_counted_and_shortened():
    many = [run for number in range(50) for run in seeds(f"own:m{number}", 0.5) if number]
    failed = [record(f"own:{'x' * 500}{number}", 0, status="failed") for number in range(50)]
    assert len(describe_finding(many + failed)) < 900


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
    text = describe_finding(records)
    assert text.endswith(".")
    assert "nan" not in text
    for winner, loser, p in re.findall(r"^(\S+) beats (\S+) by .*\(p [=<] (\S+),", text):
        assert float(p) < 0.05
        assert METHODS[winner].stores_data == METHODS[loser].stores_data


def test_a_method_of_ones_own_that_stores_data_never_wins_over_what_does_not():
    own = seeds("own:Replay", 0.95, 0.96, 0.97, stores_data=True)
    (finding,) = find_findings([*own, *CLEAR])
    assert finding.headline == headline(CLEAR)
    assert finding.details[-1] == "Methods that store data, not ranked: own:Replay 0.960."
