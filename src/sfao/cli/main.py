"""The command `sfao`: the laboratory where it is installed, and how to install it where it is not."""

import sys
from importlib.util import find_spec

#: What the extra `lab` of the package brings, by the names that are imported.
LAB = (
    "filelock",
    "jinja2",
    "markupsafe",
    "matplotlib",
    "mlxtend",
    "optuna",
    "PIL",
    "platformdirs",
    "pydantic",
    "yaml",
    "rich",
    "scipy",
    "typer",
)

BAD_USAGE = 2  # as in `sfao.cli.terminal`, which cannot be imported without the extra


def main() -> None:
    missing = [name for name in LAB if find_spec(name) is None]
    if missing:
        print(
            f"sfao: the command needs the extra `lab` (missing: {', '.join(missing)}): pip install 'sfao[lab]'",
            file=sys.stderr,
        )
        sys.exit(BAD_USAGE)
    from sfao.cli.app import app

    app(prog_name="sfao")


if __name__ == "__main__":
    main()
