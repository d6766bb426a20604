"""sfao bench: the cost of a step, measured on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli.terminal import console, error_console, say_json, spoken_errors

if TYPE_CHECKING:
    import torch

    from sfao.lab.bench.measuring import Effort
    from sfao.lab.bench.results import Progress, Results

#: The options of directions by default, and with --quick.
USUAL = {
    "directions": "10,50,200,1000",
    "samples": "10,1,all",
    "storage": "dense,factored",
    "rank": "1",
    "memory_dtype": "float32",
    "decisions": "project,accept,discard,mix",
}
HURRIED = {**USUAL, "directions": "10,50", "samples": "10", "decisions": "project"}


def bench(
    model: Annotated[
        list[str] | None,
        typer.Option(help="mlp, cnn or wrn-28-10. Repeatable.", show_default="mlp and cnn; on a GPU all"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    directions: Annotated[str | None, typer.Option(help="Directions a layer.", show_default="10,50,200,1000")] = None,
    samples: Annotated[
        str | None, typer.Option(help="Directions compared with at a step, or all.", show_default="10,1,all")
    ] = None,
    storage: Annotated[str | None, typer.Option(help="Of directions.", show_default="dense,factored")] = None,
    rank: Annotated[str | None, typer.Option(help="Ranks of what is factored.", show_default="1")] = None,
    memory_dtype: Annotated[str | None, typer.Option(help="float32, bfloat16.", show_default="float32")] = None,
    decisions: Annotated[
        str | None, typer.Option(help="What the gate decides.", show_default="project,accept,discard,mix")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Examples a step.", min=1)] = 32,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Images with their channels last.")] = False,
    autocast: Annotated[str | None, typer.Option(help="bfloat16: mixed precision.")] = None,
    compiled: Annotated[str | None, typer.Option("--compile", help="model, step: what torch.compile takes.")] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(help="Leave out what holds more.", show_default="1GB; on a GPU a third of what is free"),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", show_default="all cores", min=1, max=1024)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The MLP alone, a few steps: a look, no result.")] = False,
    out: Annotated[Path, typer.Option(help="The folder of the results.")] = Path("runs/bench"),
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Measure time and memory of a step with SFAO and with DriftBound, against SGD and the released code's loop.

    Separate the values of a list by commas. Directions, samples and decisions are varied one at a time; the others
    have the first value of their list (directions: 200). This takes a minute or two.
    """
    with spoken_errors(debug):
        import torch

        from sfao.lab.bench.arguments import (
            make_setting,
            parse_choice,
            parse_choices,
            parse_counts,
            parse_memory_limit,
            parse_samples,
        )
        from sfao.lab.bench.cases import SUBJECTS, Sweep, combine_storages
        from sfao.lab.bench.results import measure

        usual = HURRIED if quick else USUAL
        trained = make_setting(
            device,
            batch_size,
            channels_last=channels_last,
            autocast=autocast,
            compile=parse_choices("compile", compiled) if compiled else (),
        )
        everything = ["mlp"] if quick else list(SUBJECTS) if trained.device.type == "cuda" else ["mlp", "cnn"]
        sweep = Sweep(
            models=tuple(dict.fromkeys(parse_choice("model", name) for name in model or everything)),
            directions=parse_counts("directions", directions or usual["directions"]),
            samples=parse_samples(samples or usual["samples"]),
            storages=combine_storages(
                parse_choices("storage", storage or usual["storage"]),
                parse_counts("rank", rank or usual["rank"]),
                parse_choices("memory-dtype", memory_dtype or usual["memory_dtype"]),
            ),
            decisions=parse_choices("decisions", decisions or usual["decisions"]),
            widths=not quick,
            most_bytes=parse_memory_limit(max_memory, trained.device),
        )
        make_folder(out)
        if threads:
            torch.set_num_threads(threads)
        with progress_bar(shown=not (quiet or as_json)) as progress:
            results = measure(sweep, trained, choose_effort(trained.device, quick), progress)
        written = write_results(results, out)
        print_or_dump(results, written, quiet, as_json)


def choose_effort(device: "torch.device", quick: bool) -> "Effort":
    from sfao.lab.bench.measuring import Effort

    if quick:
        return Effort(turns=3, seconds=0.5)
    # On a GPU the first steps compile, capture and choose among convolutions, and its host is seldom quiet.
    return Effort(fewest=10, warm_up=8) if device.type == "cuda" else Effort()


def make_folder(out: Path) -> None:
    """Make the folder before anything is measured, so that no measurement is lost."""
    from sfao.lab.run.errors import FolderError

    for path in (out, *out.parents):
        if path.is_file():
            raise FolderError(f"`out` must be a folder, got the file {path}")
    out.mkdir(parents=True, exist_ok=True)


def write_results(results: "Results", out: Path) -> list[Path]:
    """Write bench.json, bench.md and, where there is something to draw, bench.svg and bench.pdf."""
    from sfao.lab.bench.figures import cost_figure
    from sfao.lab.bench.formats import as_markdown
    from sfao.lab.report.figures.formats import as_pdf, as_picture
    from sfao.lab.run.files import write_atomically, write_json, write_text

    drawing = cost_figure(results)
    written = [out / "bench.json", out / "bench.md"]
    write_json(written[0], results.as_json())
    write_text(written[1], as_markdown(results))
    if drawing is not None:
        written += [out / "bench.svg", out / "bench.pdf"]
        write_text(written[2], as_picture(drawing))
        write_atomically(written[3], as_pdf(drawing))
    return written


def print_or_dump(results: "Results", written: list[Path], quiet: bool, as_json: bool) -> None:
    from sfao.lab.bench.formats import print_results

    if as_json:
        say_json(results.as_json())
    elif not quiet:
        screen = console()
        print_results(results, screen)
        for path in written:
            screen.print(str(path), soft_wrap=True)


@contextmanager
def progress_bar(shown: bool) -> "Iterator[Progress]":
    """Show a bar with the number of groups of cases that are measured."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    from sfao.lab.console import text_column

    screen = error_console()
    columns: list[Any] = [text_column("{task.description}"), BarColumn(), MofNCompleteColumn()]
    # Elsewhere it would leave an empty line; and it is drawn between measurements alone, as they share the machine.
    disabled = not (shown and screen.is_terminal)
    with Progress(*columns, console=screen, transient=True, disable=disabled, auto_refresh=False) as display:
        item = display.add_task("starting", total=None)

        def progress(what: str, done: int, total: int) -> None:
            display.update(item, description=what, completed=done, total=total)
            display.refresh()

        yield progress
