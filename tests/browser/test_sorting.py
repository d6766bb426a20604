"""Sorting the tables of the report in a browser."""

from itertools import pairwise

from tests.browser.tables import results


def column(page, number):
    """(text, value) of the cells of a column, from top to bottom."""
    return results(page).evaluate(
        "(table, n) => [...table.tBodies[0].rows].map(r => [r.cells[n].innerText, r.cells[n].dataset.value ?? null])",
        number,
    )


def methods(page):
    return [text for text, _ in column(page, 0)]


HEADINGS = [
    "method",
    "seeds",
    "accuracy",
    "95 % interval",
    "learnt",
    "forgetting",
    "held",
    "time",
    "\N{MULTIPLICATION SIGN} sgd",
    "p",
    "notes",
]


def test_the_table_has_the_columns_that_are_sorted_below(opened):
    assert results(opened).locator("thead th").all_inner_texts() == HEADINGS


def test_each_column_sorts_both_ways(page):
    shown = set(methods(page))
    for number, name in enumerate(HEADINGS):
        check_sorting(page, number, name, shown)


def check_sorting(page, number, name, shown):
    heading = results(page).locator("thead th").nth(number)
    assert heading.get_attribute("aria-sort") is None, name
    directions = []
    for _ in range(2):
        heading.get_by_role("button").click()
        directions.append(heading.get_attribute("aria-sort"))
        cells = column(page, number)
        if cells[0][1] is None:
            keys = [text for text, _ in cells if text]
        else:
            keys = [float(value) for _, value in cells if value]
        ordered = keys if directions[-1] == "ascending" else keys[::-1]
        assert all(one <= other for one, other in pairwise(ordered)), name
        # What has no value is last.
        assert {text for text, value in cells[len(keys) :]} <= {"", "-", "baseline"}, name
        assert set(methods(page)) == shown, name
        assert results(page).locator("th[aria-sort]").count() == 1, name
    assert sorted(directions) == ["ascending", "descending"], name


def test_accuracy_shows_the_best_first(page):
    results(page).get_by_role("button", name="accuracy").click()
    values = [float(value) for _, value in column(page, 2) if value]
    assert values == sorted(values, reverse=True)
    assert len(values) > 2


def test_equals_keep_their_order_both_ways(page):
    before = methods(page)
    seeds = results(page).get_by_role("button", name="seeds")
    for _ in range(2):
        seeds.click()
        alike = [method for method, (text, _) in zip(methods(page), column(page, 1), strict=True) if text == "2"]
        assert alike == [method for method in before if method in alike]
        assert len(alike) == 3


def test_the_keyboard_sorts(page):
    button = results(page).get_by_role("button", name="forgetting")
    button.focus()
    page.keyboard.press("Enter")
    heading = results(page).locator("thead th").nth(HEADINGS.index("forgetting"))
    assert heading.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Space")
    assert heading.get_attribute("aria-sort") == "descending"
    assert button.evaluate("button => button === document.activeElement")
    assert button.evaluate("button => getComputedStyle(button).outlineStyle") == "solid"
