"""A drawing in pieces: nothing is lost, and every piece stands alone."""

import json
import re
from xml.etree import ElementTree

import pytest
from matplotlib.colors import to_rgb

from sfao.lab.report.figures import draw_figures, note_missing_letters
from sfao.lab.report.figures.accuracy_matrices import accuracy_matrices
from sfao.lab.report.figures.cost_accuracy import cost_accuracy
from sfao.lab.report.figures.pieces import cut
from sfao.lab.report.figures.style import ON_DARK, ON_LIGHT, RAMP, ink_on, shorten
from sfao.lab.report.groups import group_runs
from tests.lab.report.figures.test_drawings import copies

SVG = "{http://www.w3.org/2000/svg}"


def count(picture, tag):
    return picture.count(f"<{tag} ") + picture.count(f"<{tag}>")


def test_the_panels_and_the_key_hold_all_that_the_picture_does(drawn_split, pictures, pieces):
    for drawing in drawn_split:
        own, picture = pieces[drawing.name], pictures[drawing.name]
        parts = "".join([own.shared, own.key, *(piece.svg for piece in own.panels)])
        assert len(own.panels) == len(drawing.panels)
        for tag in ("use", "clipPath"):
            assert count(parts, tag) == count(picture, tag), tag
        # The names of axes that all share are told in words.
        lost = count(picture, "text") - count(parts, "text")
        assert lost == sum(bool(words) for words in (drawing.figure.get_supxlabel(), drawing.figure.get_supylabel()))
        assert bool(lost) == bool(drawing.axes)


def test_references_lead_to_what_all_panels_share_which_no_filter_hides(pieces):
    for own in pieces.values():
        shared = set(re.findall(r' id="(.*?)"', own.shared))
        for piece in own.panels:
            assert set(re.findall(r'url\(#(.*?)\)|href="#(.*?)"', piece.svg)) <= {
                pair for name in shared for pair in ((name, ""), ("", name))
            }
            assert "<defs" not in piece.svg


def test_panels_of_a_drawing_have_one_size_and_a_name(drawn_split, pieces):
    for drawing in drawn_split:
        roots = [ElementTree.fromstring(piece.svg) for piece in pieces[drawing.name].panels]
        sizes = {tuple(root.attrib["viewBox"].split()[2:]) for root in roots}
        assert len(sizes) == 1
        assert all(drawing.title in root.attrib["aria-label"] for root in roots)


def test_what_panels_and_marks_are_of_is_told(split, pieces):
    by_name = {name.removesuffix("-split-mnist-5k-domain"): own for name, own in pieces.items()}
    assert [piece.row for piece in by_name["accuracy-matrices"].panels] == list(split.done)
    assert [piece.layer for piece in by_name["decisions"].panels] == list(split.done["sfao"][0].record.decisions)
    (geometry,) = by_name["update-geometry"].panels
    assert (geometry.row, geometry.seed in {0, 1}) == ("sfao", True)
    memory, time = by_name["cost-accuracy"].panels
    for panel, unit in ((memory, "B"), (time, "s")):
        marks = json.loads(panel.marks)
        assert {mark[5] for mark in marks} == set(split.done)
        assert {tuple(mark[5:]) for mark in marks if len(mark) > 6} == {
            (row, run.record.seed) for row, runs in split.done.items() for run in runs
        }
        assert all(mark[4].endswith(unit) for mark in marks)
        assert {'data-row="sfao"', 'data-seed="1"'} <= set(re.findall(r'data-\w+="\w+"', panel.svg))


def test_the_marks_of_a_heat_map_are_its_cells(split, pieces):
    (name,) = (name for name in pieces if name.startswith("accuracy"))
    for row, piece in zip(split.done, pieces[name].panels, strict=True):
        matrices = [run.record.accuracy_matrix for run in split.done[row]]
        x, y, width, height, text = json.loads(piece.marks)[2]  # two tasks: the first after the second
        mean = sum(matrix[1][0] for matrix in matrices) / len(matrices)
        assert text.startswith(f"task 1 after task 2: {mean:.3f}")
        left, top, wide, high = map(float, ElementTree.fromstring(piece.svg).attrib["viewBox"].split())
        assert left < x - width / 2 < x + width / 2 < left + wide
        assert top < y - height / 2 < y + height / 2 < top + high


def contrast(one, other):
    def light(colour):
        parts = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour))
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    first, second = sorted((light(one), light(other)), reverse=True)
    return (first + 0.05) / (second + 0.05)


@pytest.mark.parametrize("colour", [*RAMP, "#4a86b8", "#ffffff", "#000000", "#777777"])
def test_ink_is_seen_on_every_colour(colour):
    chosen = ink_on(to_rgb(colour))
    assert contrast(chosen, colour) == max(contrast(ink, colour) for ink in (ON_DARK, ON_LIGHT))
    assert contrast(chosen, colour) >= 4.2


def test_the_diagonal_has_the_ink_of_its_cells(split):
    for ax in accuracy_matrices(split).figure.axes:
        outlines = [patch for patch in ax.patches if not patch.get_fill()]
        inks = {text.get_position(): text.get_color() for text in ax.texts}
        assert len(outlines) == 2
        for task, outline in enumerate(outlines):
            assert to_rgb(outline.get_edgecolor()) == to_rgb(inks[task + 0.5, task + 0.52])


def test_names_stand_beside_error_bars(split):
    run = split.done["sfao"][0]
    made = []
    for number, method in enumerate(("sgd", "ewc", "gpm", "sfao")):
        for seed, off in enumerate((-0.03, 0.0, 0.03)):
            metrics = {**run.record.metrics, "average_accuracy": 0.7 + 0.05 * number + off}
            cost = {"memory_bytes": 1000 * (number + 1), "seconds": 4 + 3 * number + 20 * off}
            (copy,) = copies(run, 1, method=method, metrics=metrics, **cost)
            copy.record.seed = seed
            made.append(copy)
    (group,) = group_runs(made)
    for ax in cost_accuracy(group).figure.axes:
        bars = [line for container in ax.containers for bar in container[2] for line in bar.get_segments()]
        assert len(bars) == 8
        boxes = [text.get_window_extent() for text in ax.texts]
        for bar in bars:
            ends = ax.transData.transform(bar)
            (left, low), (right, high) = ends.min(axis=0), ends.max(axis=0)
            struck = [box for box in boxes if left < box.x1 and right > box.x0 and low < box.y1 and high > box.y0]
            assert struck == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a" * 30, f"{'a' * 12}…{'a' * 13}"), ("方" * 13, "方" * 13), ("方" * 20, "方方方方方方…方方方方方方")],
)
def test_a_short_name_has_as_much_room_in_every_script(name, shown):
    assert shorten(name) == shown


def test_letters_that_the_font_lacks_are_told_once_and_stop_nothing(split, drawn_split):
    run = split.done["sfao"][0]
    (group,) = group_runs([*copies(run, 2, method="方法:名"), *copies(run, 2, method="اسم:طريقة")])
    drawn = draw_figures(group)
    assert note_missing_letters(drawn).startswith("the figures as PDF lack 名, 方, 法: no font")
    assert "方法:名" in "".join(piece.svg for drawing in drawn for piece in cut(drawing).panels)
    assert note_missing_letters(drawn_split) == ""
