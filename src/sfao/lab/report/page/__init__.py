"""The report as one page that needs nothing beside it; `assets` is shared with the live page."""
