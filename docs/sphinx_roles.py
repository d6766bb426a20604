"""For the documentation site: docstrings name objects the way Sphinx does, and the site links them."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(?P<name>[\w.]+)`")


class SphinxRoles(griffe.Extension):
    """Turn :meth:`name` into a link to that object, and the `::` that opens a block of code into a colon."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = rewrite(obj.docstring.value, obj)


def rewrite(text: str, of: griffe.Object) -> str:
    """The docstring of an object in Markdown; a name without dots is a member of the class it stands in."""
    owner = of if of.is_class else of.parent

    def link(role: re.Match[str]) -> str:
        name = role["name"]
        is_member = "." not in name and owner is not None and owner.is_class
        target = f"sfao.{owner.name}.{name}" if is_member else name
        # Optional: what is not on the site stays plain text.
        return f'<autoref identifier="{target}" optional><code>{name}</code></autoref>'

    return re.sub(r"::$", ":", ROLE.sub(link, text), flags=re.MULTILINE)
