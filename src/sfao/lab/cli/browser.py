"""A page shown to the user: only where there is a screen, and somebody before it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

#: Variables that tell a graphical session; macOS and Windows have one without.
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
#: Variables that tell that nobody sits before this machine.
AWAY = ("CI", "SSH_CONNECTION", "SSH_TTY")


def has_screen(environment: Mapping[str, str], platform: str, is_terminal: bool) -> bool:
    """Tell whether a browser opened now would be seen by whoever runs the command."""
    if not is_terminal or any(environment.get(name) for name in AWAY):
        return False
    return platform in ("darwin", "win32") or any(environment.get(name) for name in DISPLAYS)


def show_page(page: Path) -> bool:
    """Open a page in the browser where there is a screen; tell whether one opened."""
    if not has_screen(os.environ, sys.platform, sys.stdout.isatty()):
        return False
    import webbrowser

    try:
        return webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        return False
