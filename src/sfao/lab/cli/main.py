"""The command `sfao`: the laboratory where it is installed, and how to install it where it is not."""

import sys
from importlib.util import find_spec
from io import TextIOWrapper

#: What the extra `lab` of the package brings, by the names that are imported.
LAB = (
    "filelock",
    "jinja2",
    "markupsafe",
    "matplotlib",
    "optuna",
    "PIL",
    "platformdirs",
    "pooch",
    "pydantic",
    "yaml",
    "rich",
    "scipy",
    "typer",
)

BAD_USAGE = 2  # as in `sfao.lab.cli.terminal`, which cannot be imported without the extra


def main() -> None:
    missing = [name for name in LAB if find_spec(name) is None]
    if missing:
        print(
            f"sfao: the command needs the extra `lab` (missing: {', '.join(missing)}): pip install 'sfao[lab]'",
            file=sys.stderr,
        )
        sys.exit(BAD_USAGE)
    from sfao.lab.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name in a script that the terminal does not know is still told
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="sfao")


if __name__ == "__main__":
    main()
