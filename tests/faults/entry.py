"""The command `sfao` in this process, from its entry point, with what it printed."""

import io
import sys
from dataclasses import dataclass
from unittest.mock import patch

from sfao.cli.main import main

#: The exit codes that the command documents; no attack here interrupts.
DOCUMENTED = (0, 1, 2)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    error: str

    def check(self) -> None:
        """Check that it ended as documented, with nothing on the screen but text."""
        said = self.out + self.error
        assert self.code in DOCUMENTED, f"exit code {self.code}: {said[-300:]!r}"
        assert "Traceback" not in said, said[-300:]
        assert "Nobody foresaw" not in said, self.error[-400:]
        acting = [letter for letter in said if letter != "\n" and not (letter.isprintable() or letter.isspace())]
        assert not acting and "\r" not in said, f"letters that act: {acting[:5]} in {said[-300:]!r}"
        assert self.code == 0 or 1 <= len(self.error.splitlines()) <= 12, f"{len(self.error.splitlines())} lines"
        assert len(self.error) < 5000, f"an error of {len(self.error)} letters"


def call(*arguments: object) -> Ended:
    """Run the command; an error that it lets through is raised."""
    out, error = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with patch.object(sys, "argv", ["sfao", *map(str, arguments)]), patch.multiple(sys, stdout=out, stderr=error):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return Ended(code, *(stream.buffer.getvalue().decode() for stream in (out, error)))
