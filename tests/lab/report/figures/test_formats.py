"""Drawings as files: nothing from outside, nothing that differs from one time to the next."""

import re
from xml.etree import ElementTree

import pytest

from sfao.lab.report.figures import Drawing, as_pdf, as_picture, as_svg, draw_figures
from sfao.lab.report.figures.style import STYLE, panels
from sfao.lab.report.groups import group_runs

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pdfs(drawn):
    return {drawing.name: as_pdf(drawing) for drawing in drawn}


def elements(picture):
    return list(ElementTree.fromstring(picture).iter())


def test_it_is_one_element_with_a_name_for_those_who_cannot_see_it(drawn, pictures):
    for drawing in drawn:
        picture = pictures[drawing.name]
        assert picture.startswith("<svg ")
        root, title, *_ = elements(picture)
        assert root.tag == f"{SVG}svg"
        assert root.attrib["role"] == "img"
        assert root.attrib["width"] == "100%"
        assert "height" not in root.attrib
        assert re.fullmatch(r"0 0 [\d.]+ [\d.]+", root.attrib["viewBox"])
        assert (title.tag, title.text) == (f"{SVG}title", drawing.alt)
        assert title.attrib["id"] == root.attrib["aria-labelledby"]


def test_it_refers_to_nothing_outside_itself(pictures):
    for picture in pictures.values():
        found = elements(picture)
        ids = {element.attrib["id"] for element in found if "id" in element.attrib}
        for element in found:
            for name, value in element.attrib.items():
                assert name != "style", "a strict policy forbids it"
                assert not name.startswith("{"), name
                if name == "href":
                    assert value[0] == "#"
                    assert value[1:] in ids
                for inside in re.findall(r"url\((.*?)\)", value):
                    assert inside[1:] in ids
        assert {element.tag for element in found} <= {
            f"{SVG}{tag}"
            for tag in ("svg", "title", "g", "defs", "path", "text", "tspan", "use", "clipPath", "rect", "image")
        }
        assert re.findall(r"\w+://[^\"]*", picture) == ["http://www.w3.org/2000/svg"]
        assert "<metadata" not in picture


def test_ids_are_unique_in_a_page_of_all_of_them(pictures):
    ids = [
        element.attrib["id"] for picture in pictures.values() for element in elements(picture) if "id" in element.attrib
    ]
    assert len(ids) == len(set(ids))


def test_ink_and_grid_are_the_colours_of_the_page(pictures):
    for name, picture in pictures.items():
        assert "currentColor" in picture
        assert "#000000" not in picture
        if "accuracy-matrices" not in name:
            assert "var(--muted)" in picture
        assert "#6f7071" not in picture


def test_text_is_text_in_the_font_of_the_page(split, pictures):
    picture = pictures["accuracy-matrices-split-mnist-5k-domain"]
    words = [element.text for element in elements(picture) if element.tag == f"{SVG}text"]
    assert {*split.done, "after task"} <= set(words)
    assert "font-family" not in picture


def test_the_background_is_that_of_the_page(pictures):
    for picture in pictures.values():
        assert not re.search(r'fill="#ffffff" d="M 0 ', picture)
        assert "<rect" not in re.sub(r"<clipPath.*?</clipPath>", "", picture)


def test_a_picture_that_stands_alone_brings_its_colours_and_its_font(drawn, pictures):
    for drawing in drawn:
        alone = as_picture(drawing)
        root, style, *_ = elements(alone)
        assert (root.tag, style.tag) == (f"{SVG}svg", f"{SVG}style")
        assert "var(" not in alone
        light, dark = style.text.split("@media(prefers-color-scheme:dark)")
        for rule in (light, dark):
            assert re.search(r"svg{color:#\w+;background:#\w+", rule)
        assert "font-family:sans-serif" in light
        assert alone.replace(f"<style>{style.text}</style>", "") == (
            pictures[drawing.name].replace("var(--muted)", "#6f7071")
        )


def test_the_same_runs_give_the_same_bytes(runs, pictures, pdfs):
    again = [drawing for group in group_runs(runs) for drawing in draw_figures(group)]
    assert [drawing.name for drawing in again] == list(pictures)
    for drawing in again:
        assert as_svg(drawing) == pictures[drawing.name]
        assert as_pdf(drawing) == pdfs[drawing.name]


def test_a_pdf_is_undated_black_and_searchable(pdfs):
    for data in pdfs.values():
        assert data.startswith(b"%PDF-")
        assert data.rstrip().endswith(b"%%EOF")
        assert b"CreationDate" not in data
        assert b"/Type3" not in data


def test_odd_names_are_legible_and_never_break_the_picture():
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure, (ax,) = panels(1, columns=1, height=1.0)
        ax.set_title("a <b> & 'c' $x")
        ax.set_xlabel("b\x01\nc")
    picture = as_svg(Drawing("odd", "t", "c", "a \x00 <script>\ud800", figure))
    root, title, *_ = elements(picture)
    assert title.text == "a ? <script>?"
    assert {"a <b> & 'c' $x", "b?", "c"} <= {element.text for element in root.iter()}
