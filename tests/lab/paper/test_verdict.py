"""The verdict: five sentences, whose numbers are those of the tables."""

import re

from sfao.lab.paper.archive import Archive
from sfao.lab.paper.paper import paper_table
from sfao.lab.paper.protocol import protocol
from sfao.lab.paper.reproduced_table import reproduce_table
from sfao.lab.paper.verdict import write_verdict
from tests.lab.paper.made import record


def make_table(number, preset, rows, *, seeds=3, as_released=False, data=None):
    """A table whose rows end `off` points from the paper's."""
    cells, records = protocol(number, preset, as_released).cells, []
    for row, off in rows.items():
        printed = [cell.mean / 100 + off / 100 for cell in paper_table(number).rows[row]]
        for seed in range(seeds):
            last = [value + (seed - seeds // 2) / 1000 for value in printed]
            records.append(record(cells[row, ""], seed, last, data=data))
    return reproduce_table(number, preset, Archive(records), asked=5, as_released=as_released)


def test_without_tables_every_sentence_says_so():
    verdict = write_verdict([])
    assert len(verdict) == 5
    assert not re.search(r"\d of \d", " ".join(verdict))
    assert all(sentence.endswith(".") for sentence in verdict)


def test_tables_hold_or_not_by_the_share_of_cells_that_agree():
    tables = [
        make_table(1, "released", {"SGD": 0}),
        make_table(2, "released", {"SGD": 0, "OGD": -20}),
        make_table(5, "released", {"SFAO": -20}),
        make_table(6, "released", {"SGD": 0}, seeds=1, data={"train": 600, "complete": False}),
    ]
    first = write_verdict(tables)[0]
    assert "table 1 (5 of 5) holds" in first
    assert "table 2 (3 of 6) holds in part" in first
    assert "table 5 (0 of 5) does not hold" in first
    assert "table 6 cannot be judged, having one seed; table 6 is of a part of the data." in first


def test_rows_of_another_protocol_are_told_apart():
    table = make_table(1, "released", {"SGD": 0, "SFAO": 0, "EWC": -8, "SI": -10})
    assert write_verdict([table])[1] == (
        "The protocol decides: of tables 1 to 7, SFAO's rows agree in 5 of 5 cells and the others that the paper made "
        "under the protocol of its text in 5 of 5, while those that it made under another (EWC with one head over all "
        "classes, SI with a head for every task) agree in 0 of 10."
    )


def test_rows_that_were_run_again_are_held_against_the_printed_average():
    plain = make_table(1, "released", {"SI": -14, "EWC": -8})
    again = make_table(1, "released", {"SI": -0.7, "EWC": -9, "SGD": 0}, as_released=True)
    third = write_verdict([plain, again])[2]
    assert "1 of 2 such rows come out within 1 point of the printed average, where one protocol for all had 0" in third
    assert "SI in table 1 has 96.3 beside 97.0" in third
    assert "SGD" not in third  # its row is of the protocol of the text


def test_the_text_and_our_own_settings_are_told_with_their_numbers():
    literal, own = make_table(1, "paper", {"SFAO": -6.5}), make_table(1, "recommended", {"SFAO": 3})
    fourth, fifth = write_verdict([literal, own])[3:]
    assert "0 of 5 cells of tables 1 to 7 agree, and in table 1 SFAO has 74.0 beside 80.5 printed" in fourth
    assert fifth.endswith("above the one printed for it in 1 of 1 tables: 83.5 beside 80.5 in table 1.")
