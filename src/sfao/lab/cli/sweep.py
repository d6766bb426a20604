"""sfao sweep: every combination of some settings of one method, ranked on validation data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli.compare import check_ended_well, run_in_view, write_results
from sfao.lab.cli.launch import Address, Cpus, Gpus, Launcher, choose_launcher
from sfao.lab.cli.terminal import console, say_json, spoken_errors
from sfao.lab.names import name_folder

if TYPE_CHECKING:
    from sfao.lab.run.record import Record
    from sfao.lab.tune.candidate import Candidate
    from sfao.lab.tune.grid import Combination
    from sfao.lab.tune.search import Search

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting; values to try have commas between: options.strength=100,1000. Repeatable."),
]


def sweep(
    benchmark: Annotated[str, typer.Argument(help="Which benchmark; see `sfao list`.")],
    method: Annotated[str, typer.Option(help="Which method; see `sfao list`.")] = "sfao",
    seeds: Annotated[str, typer.Option(help="How many seeds (3 is 0 to 2), or which (3,7).")] = "3",
    out: Annotated[
        Path | None, typer.Option(help="The folder of the runs.", show_default="runs/sweep/BENCHMARK-METHOD")
    ] = None,
    preset: Annotated[str, typer.Option(help="Whose settings: recommended, released or paper.")] = "recommended",
    config: Annotated[Path | None, typer.Option(help="A YAML file of settings for all.")] = None,
    settings: Sets = None,
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
    resume: Annotated[bool, typer.Option("--resume", help="Go on with unfinished runs.")] = False,
    data_root: Annotated[
        Path | None, typer.Option(help="Where the data lie.", show_default="$SFAO_DATA or the cache")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the sweep as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Try every combination of the values listed, and rank them on images held out of training, never on test images.

    What is finished already is not run again.
    """
    with spoken_errors(debug):
        from sfao.lab.run.plan import parse_seeds
        from sfao.lab.tune.grid import plan_grid, split_axes
        from sfao.lab.tune.search import make_search

        run = choose_launcher(launcher, address, cpus, gpus)
        fixed, axes = split_axes(settings or [])
        search = make_search(benchmark, method, parse_seeds(seeds), fixed, share=validation, preset=preset, file=config)
        out = out or Path("runs/sweep") / name_folder(f"{benchmark}-{method}")
        grid = plan_grid(search, axes, out)
        planned = [job for combination in grid for job in combination.jobs]
        records = run_in_view(
            planned,
            shown=not (quiet or as_json),
            debug=debug,
            data_root=data_root,
            resume=resume,
            workers=jobs,
            threads=threads,
            run=run,
        )
        candidates = list_candidates(grid, records)
        summary = write_sweep(search, grid, candidates, records, out)
        if as_json:
            say_json(summary)
        elif not quiet:
            print_sweep(search, candidates, summary, out)
        check_ended_well(records)


def list_candidates(grid: "list[Combination]", records: "list[Record]") -> "list[Candidate]":
    from sfao.lab.tune.candidate import Candidate, score_records

    found, left = [], iter(records)
    for number, combination in enumerate(grid):
        own = [next(left) for _ in combination.jobs]
        found.append(Candidate(number, combination.settings, own, *score_records(own, len(own))))
    return found


def write_sweep(
    search: "Search", grid: "list[Combination]", candidates: "list[Candidate]", records: "list[Record]", out: Path
) -> dict[str, Any]:
    """Write the files of a comparison and best.yaml; return what --json prints."""
    from sfao.lab.report.comparison import compare_records
    from sfao.lab.tune.results import describe_best, write_best

    write_best(search, candidates, out)
    return write_results(
        compare_records(records),
        [job for combination in grid for job in combination.jobs],
        records,
        out,
        candidates=[candidate.as_json() for candidate in candidates],
        **describe_best(search, candidates),
    )


def print_sweep(search: "Search", candidates: "list[Candidate]", summary: dict[str, Any], out: Path) -> None:
    from sfao.lab.tune.results import BEST, print_candidates

    screen = console()
    print_candidates(candidates, search, screen)
    written = [out / "comparison.json", out / "comparison.md"]
    if summary["best"] is not None:
        screen.print(f"best: {summary['set']}", soft_wrap=True)
        written.append(out / BEST)
    for path in written:
        screen.print(str(path), soft_wrap=True)
