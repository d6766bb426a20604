"""sfao tune: the best settings of one method on validation data, by a search or a grid."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli.compare import note_tracebacks
from sfao.lab.cli.launch import Address, Cpus, Gpus, Launcher, choose_launcher
from sfao.lab.cli.run import stop_signals
from sfao.lab.cli.terminal import FAILED, INTERRUPTED, console, error_console, fail, say, say_json, spoken_errors
from sfao.lab.console import LONGEST_VALUE, join_lines, shorten
from sfao.lab.names import name_folder

if TYPE_CHECKING:
    from sfao.lab.run.pool import Watch
    from sfao.lab.tune import Search, Trial

Sets = Annotated[list[str] | None, typer.Option("--set", help="A setting that is fixed, such as epochs=1. Repeatable.")]
Searches = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        help="A setting to choose, with a range or a list of values: options.accept_above=0:1, lr=1e-4:1e-1:log, "
        "options.target=loss,logit. Repeatable.",
        show_default="the method's own",
    ),
]


def tune(
    benchmark: Annotated[str, typer.Argument(help="Which benchmark; see `sfao list`.")],
    method: Annotated[str, typer.Option(help="Which method; see `sfao list`.")] = "sfao",
    trials: Annotated[
        int, typer.Option(help="How many settings to try, including those tried before; a grid tries all.", min=1)
    ] = 20,
    seeds: Annotated[str, typer.Option(help="Seeds of each trial: how many (3 is 0 to 2), or which (3,7).")] = "3",
    seed: Annotated[int, typer.Option(help="Of the search.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the study.", show_default="runs/tune/BENCHMARK-METHOD")
    ] = None,
    preset: Annotated[str, typer.Option(help="Whose settings: recommended, released or paper.")] = "recommended",
    config: Annotated[Path | None, typer.Option(help="A YAML file of settings that are fixed.")] = None,
    settings: Sets = None,
    searches: Searches = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="Try every combination of the values that --search lists.")
    ] = False,
    validation: Annotated[
        float | None,
        typer.Option(help="The share of the training images to rank on.", show_default="0.1; mnist-5k 0.2"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "--workers", help="Runs at a time.", min=1, show_default="as many as cores"),
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of a run.", min=1, max=1024)] = 1,
    launcher: Launcher = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Where the data lie.", show_default="$SFAO_DATA or the cache")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the study as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Choose settings by their accuracy on images held out of training, never on test images.

    Run the same command again to resume an interrupted study. With one job at a time, the same command always tries
    the same settings.
    """
    with spoken_errors(debug):
        from sfao.lab.run.config import parse_setting
        from sfao.lab.run.errors import Interrupted
        from sfao.lab.run.plan import parse_seeds
        from sfao.lab.tune import make_search, parse_search, tune, write_results

        run = choose_launcher(launcher, address, cpus, gpus)
        search = make_search(
            benchmark,
            method,
            parse_seeds(seeds),
            dict(parse_setting(text) for text in settings or []),
            dict(parse_search(text) for text in searches or []),
            share=validation,
            preset=preset,
            file=config,
        )
        count = len(search.grid) if grid else trials
        out = out or Path("runs/tune") / name_folder(f"{benchmark}-{method}")
        shown = not (quiet or as_json)
        if shown:
            say(describe_search(search, count))
        tracebacks: list[str] = []
        try:
            with stop_signals() as stopping, progress(count, len(search.seeds), shown) as (watch, ended):
                found = tune(
                    search,
                    out,
                    trials=count,
                    is_grid=grid,
                    seed=seed,
                    data_root=data_root,
                    workers=jobs,
                    threads=threads,
                    run=run,
                    watch=note_tracebacks(watch, tracebacks),
                    ended=ended,
                    stopping=stopping,
                )
        except Interrupted as error:
            raise fail(error.describe("run the same command again to resume"), INTERRUPTED) from None
        if debug:
            say("\n".join(tracebacks))
        summary = write_results(search, found, out)
        if as_json:
            say_json(summary)
        elif not quiet:
            print_study(search, found, summary, out)
        if summary["best"] is None:
            raise fail(f"none of {len(found)} trials ended well; trial 0: {found[0].error}", FAILED)


def describe_search(search: "Search", trials: int) -> str:
    where = ", ".join(shorten(join_lines(f"{name}={each}"), LONGEST_VALUE) for name, each in search.space.items())
    seeds = f"{len(search.seeds)} seed{'s' * (len(search.seeds) != 1)}"
    return (
        f"choosing {where} of {search.method} on {search.benchmark}: {trials} trials of {seeds}, "
        f"measured on {100 * search.share:.4g} % of the training images, never on test images"
    )


@contextmanager
def progress(trials: int, seeds: int, shown: bool) -> "Iterator[tuple[Watch, Callable[[Trial], None]]]":
    """Show a bar over all trials, with the best so far; where there is no terminal, a line for each trial that ends."""
    from rich.progress import BarColumn, Progress, TimeElapsedColumn

    from sfao.lab.console import text_column
    from sfao.lab.run.progress import Update
    from sfao.lab.tune import find_best

    screen = error_console()
    texts = [text_column(form) for form in ("{task.description}", "{task.fields[best]}")]
    columns = [texts[0], BarColumn(), TimeElapsedColumn(), texts[1]]
    known: list[Trial] = []
    #: {folder of a run under way: the share of it that is done}
    shares: dict[Path, float] = {}
    with Progress(*columns, console=screen, transient=True, disable=not (shown and screen.is_terminal)) as bar:
        item = bar.add_task("starting", total=trials, best="")

        def draw() -> None:
            best = find_best(known)
            bar.update(
                item,
                description=f"trial {len(known)}/{trials}",
                completed=len(known) + sum(shares.values()) / seeds,
                best="" if best is None else f"best {best.score:.3f}, trial {best.number}",
            )

        def watch(job: Any, event: object) -> None:
            if isinstance(event, Update):
                shares[job.folder] = event.step / event.steps
                draw()

        def ended(trial: "Trial") -> None:
            known.append(trial)
            for folder in [folder for folder in shares if folder.name.startswith(f"trial-{trial.number}-")]:
                del shares[folder]
            draw()
            if shown and not screen.is_terminal:
                said = f"accuracy {trial.score:.3f}" if trial.score is not None else trial.error
                say(f"trial {trial.number}: {said}")

        yield watch, ended


def print_study(search: "Search", trials: "list[Trial]", summary: dict[str, Any], out: Path) -> None:
    from sfao.lab.report.tables import print_notes, render_terminal
    from sfao.lab.tune import BEST, TABLE, TRIALS, make_table

    screen, made = console(), make_table(trials, search)
    screen.print(render_terminal(made))
    print_notes(made.notes, screen, lambda note: "yellow" if note.startswith("warning") else "dim")
    if summary["best"] is not None:
        screen.print(f"best: {summary['set']}", soft_wrap=True)
    for name in (TRIALS, TABLE, *([BEST] if summary["best"] else [])):
        screen.print(str(out / name), soft_wrap=True)
