"""sfao tune: a search for the best settings of one method, trial after trial, on validation data."""

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
    from sfao.lab.methods.search_range import SearchSpace
    from sfao.lab.run.pool import Watch
    from sfao.lab.tune.candidate import Candidate
    from sfao.lab.tune.search import Search

Sets = Annotated[list[str] | None, typer.Option("--set", help="A setting that is fixed, such as epochs=1. Repeatable.")]
Searches = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        help="A setting to choose: options.accept_above=0:1, lr=1e-4:1e-1:log, options.target=loss,logit. Repeatable.",
        show_default="the method's own",
    ),
]


def tune(
    benchmark: Annotated[str, typer.Argument(help="Which benchmark; see `sfao list`.")],
    method: Annotated[str, typer.Option(help="Which method; see `sfao list`.")] = "sfao",
    trials: Annotated[int, typer.Option(help="How many settings to try, those tried before included.")] = 20,
    seeds: Annotated[str, typer.Option(help="Seeds of each trial: how many (3 is 0 to 2), or which (3,7).")] = "3",
    seed: Annotated[int, typer.Option(help="Of the search.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the study.", show_default="runs/tune/BENCHMARK-METHOD")
    ] = None,
    preset: Annotated[str, typer.Option(help="Whose settings: recommended, released or paper.")] = "recommended",
    config: Annotated[Path | None, typer.Option(help="A YAML file of settings that are fixed.")] = None,
    settings: Sets = None,
    searches: Searches = None,
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
    """Search for the best settings, by their accuracy on images held out of training, never on test images.

    Interrupted or killed, the same command goes on where the study was; with more --trials, a study that has ended
    goes on. With one worker, the same command always tries the same settings.
    """
    with spoken_errors(debug):
        from sfao.checks import check_count, check_seed
        from sfao.lab.run.config import parse_setting
        from sfao.lab.run.errors import ConfigError, Interrupted, reraise_as
        from sfao.lab.run.plan import parse_seeds
        from sfao.lab.tune.search import make_search
        from sfao.lab.tune.space import choose_space, parse_search
        from sfao.lab.tune.tune import tune

        run = choose_launcher(launcher, address, cpus, gpus)
        with reraise_as(ConfigError):
            check_count("trials", trials)
            check_seed(seed)
        search = make_search(
            benchmark,
            method,
            parse_seeds(seeds),
            dict(parse_setting(text) for text in settings or []),
            share=validation,
            preset=preset,
            file=config,
        )
        space = choose_space(search, dict(parse_search(text) for text in searches or []))
        out = out or Path("runs/tune") / name_folder(f"{benchmark}-{method}")
        shown = not (quiet or as_json)
        if shown:
            say(describe_search(search, space, trials))
        tracebacks: list[str] = []
        try:
            with stop_signals() as stopping, progress(trials, len(search.seeds), shown) as (watch, ended):
                candidates = tune(
                    search,
                    space,
                    out,
                    trials=trials,
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
            raise fail(error.describe("the same command goes on with the study"), INTERRUPTED) from None
        if debug:
            say("\n".join(tracebacks))
        summary = write_study(search, space, candidates, out)
        if as_json:
            say_json(summary)
        elif not quiet:
            print_study(search, candidates, summary, out)
        if summary["best"] is None:
            raise fail(f"none of {len(candidates)} trials ended well; trial 0: {candidates[0].error}", FAILED)


def describe_search(search: "Search", space: "SearchSpace", trials: int) -> str:
    where = ", ".join(shorten(join_lines(f"{name}={each}"), LONGEST_VALUE) for name, each in space.items())
    seeds = f"{len(search.seeds)} seed{'s' * (len(search.seeds) != 1)}"
    return (
        f"choosing {where} of {search.method} on {search.benchmark}: {trials} trials of {seeds}, "
        f"measured on {100 * search.share:.4g} % of the training images, never on test images"
    )


@contextmanager
def progress(trials: int, seeds: int, shown: bool) -> "Iterator[tuple[Watch, Callable[[Candidate], None]]]":
    """Show a bar over all trials, with the best so far; where there is no terminal, a line for each trial that ends."""
    from rich.progress import BarColumn, Progress, TimeElapsedColumn

    from sfao.lab.console import text_column
    from sfao.lab.run.progress import Update
    from sfao.lab.tune.candidate import choose_best

    screen = error_console()
    texts = [text_column(form) for form in ("{task.description}", "{task.fields[best]}")]
    columns = [texts[0], BarColumn(), TimeElapsedColumn(), texts[1]]
    known: list[Candidate] = []
    #: {folder of a run under way: the share of it that is done}
    shares: dict[Path, float] = {}
    with Progress(*columns, console=screen, transient=True, disable=not (shown and screen.is_terminal)) as bar:
        item = bar.add_task("starting", total=trials, best="")

        def draw() -> None:
            best = choose_best(known)
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

        def ended(candidate: "Candidate") -> None:
            known.append(candidate)
            for folder in [folder for folder in shares if folder.name.startswith(f"trial-{candidate.number}-")]:
                del shares[folder]
            draw()
            if shown and not screen.is_terminal:
                said = f"accuracy {candidate.score:.3f}" if candidate.score is not None else candidate.error
                say(f"trial {candidate.number}: {said}")

        yield watch, ended


def write_study(search: "Search", space: "SearchSpace", candidates: "list[Candidate]", out: Path) -> dict[str, Any]:
    """Write trials.json, trials.md and best.yaml, each whole or not at all, and return the content of the first."""
    from sfao.lab.report.tables import render_markdown
    from sfao.lab.run.files import write_json, write_text
    from sfao.lab.tune.candidate_table import make_table
    from sfao.lab.tune.results import describe_best, write_best

    summary = {
        "benchmark": search.benchmark,
        "method": search.method,
        "seeds": list(search.seeds),
        "search": {name: str(where) for name, where in space.items()},
        "trials": [candidate.as_json() for candidate in candidates],
        **describe_best(search, candidates),
    }
    write_best(search, candidates, out)
    write_json(out / "trials.json", summary)
    write_text(out / "trials.md", render_markdown(make_table(candidates, search, "trial")) + "\n")
    return summary


def print_study(search: "Search", candidates: "list[Candidate]", summary: dict[str, Any], out: Path) -> None:
    from sfao.lab.tune.results import BEST, print_candidates

    screen = console()
    print_candidates(candidates, search, screen, "trial")
    written = [out / "trials.json", out / "trials.md"]
    if summary["best"] is not None:
        screen.print(f"best: {summary['set']}", soft_wrap=True)
        written.append(out / BEST)
    for path in written:
        screen.print(str(path), soft_wrap=True)
