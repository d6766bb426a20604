"""The page: one file with its style and its script inside, and the policy that allows these and nothing else."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup


def render_page() -> tuple[bytes, str]:
    """Return the page, which is the same for every run, and its policy, for a header."""
    style, script = _read("live.css"), _read("live.js")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_read("live.html.jinja"))
    return template.render(style=Markup(style), script=Markup(script)).encode(), _write_policy(style, script)


def _write_policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
