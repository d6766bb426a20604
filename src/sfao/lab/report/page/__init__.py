"""The report as one page that needs nothing beside it."""

from sfao.lab.report.page.write import write_page

__all__ = ["write_page"]
