"""The tables of a report in a browser."""


def results(page):
    return page.locator("table.sortable").first
