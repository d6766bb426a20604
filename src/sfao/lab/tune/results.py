"""What a sweep or a study leaves: the table, and the best settings as a line and as a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sfao.lab.console import PlainConsole
from sfao.lab.report.tables import print_notes, render_terminal
from sfao.lab.run.files import write_text
from sfao.lab.tune.candidate import Candidate, choose_best
from sfao.lab.tune.candidate_table import make_table
from sfao.lab.tune.search import Search
from sfao.lab.tune.setting_text import write_config_file, write_set_line

BEST = "best.yaml"


def describe_best(search: Search, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Return, for scripts, what the scores were measured on, the best candidate, and its settings as arguments."""
    best = choose_best(candidates)
    return {
        "evaluate": "validation",
        "validation": search.share,
        "best": None if best is None else best.as_json(),
        "set": "" if best is None else write_set_line({**search.fixed, **best.settings}),
    }


def write_best(search: Search, candidates: Sequence[Candidate], out: Path) -> None:
    """Write best.yaml, a complete file of settings; where no candidate ended well, remove it."""
    best = choose_best(candidates)
    if best is None:
        (out / BEST).unlink(missing_ok=True)
        return
    comments = [
        f"The best of {len(candidates)}: average accuracy {best.score:.4f} on validation images, "
        f"seeds {', '.join(map(str, search.seeds))}.",
        f"sfao run {search.benchmark} --method {search.method} --config {BEST}",
    ]
    write_text(out / BEST, write_config_file(search.configure(best.settings), comments))


def print_candidates(
    candidates: Sequence[Candidate], search: Search, console: PlainConsole, numbered: str = ""
) -> None:
    table = make_table(candidates, search, numbered)
    console.print(render_terminal(table))
    print_notes(table.notes, console, lambda note: "yellow" if note.startswith("warning") else "dim")
