"""Tables: the model of a table, and one renderer each for the terminal, Markdown, LaTeX and HTML."""

from sfao.lab.tables.model import Column, Table, best_among

__all__ = ["Column", "Table", "best_among"]
