"""Pages with their style and script inside them, and a policy that allows these and nothing else."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sfao.lab.console import escape_controls


def read_asset(name: str) -> str:
    """Return a file of this folder, such as `base.css`."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def write_policy(style: str, script: str, *more: str) -> str:
    """Return a Content-Security-Policy for this style, this script, pictures inside the page, and `more`."""
    rules = [f"style-src '{_digest(style)}'", f"script-src '{_digest(script)}'", "img-src data:", *more]
    return "; ".join(["default-src 'none'", *rules, "base-uri 'none'", "form-action 'none'"])


def render_page(template: str, style: str, script: str, **values: Any) -> str:
    """Return the template filled in; every value is escaped, and control characters are shown as text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_escape, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(
        style=Markup(style), script=Markup(script), policy=write_policy(style, script), **values
    )


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _escape(value: Any) -> Any:
    return escape_controls(value) if isinstance(value, str) and not isinstance(value, Markup) else value
