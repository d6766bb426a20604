"""sfao tune: the best settings of one method on validation data, by a search or a grid."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli import options as opt
from sfao.lab.cli.execute import check_out, choose_launcher, parse_settings, watch_runs
from sfao.lab.cli.terminal import FAILED, console, error_handler, fail, print_json, print_paths, print_stderr
from sfao.lab.console import LONGEST_VALUE, join_lines, shorten
from sfao.lab.names import name_folder

if TYPE_CHECKING:
    from sfao.lab.tune import Search, Trial


def tune(
    benchmark: opt.Benchmark,
    method: opt.Method = "sfao",
    searches: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            help="Setting to choose, with a range or a list of values: options.accept_above=0:1, lr=1e-4:1e-1:log, "
            "options.target=loss,logit. Repeatable.",
            show_default="the method's own",
        ),
    ] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="Try every combination of the values that --search lists.")
    ] = False,
    trials: Annotated[
        int, typer.Option(help="Settings to try, including those tried before; --grid tries all.", min=1)
    ] = 20,
    seeds: Annotated[str, typer.Option(help="Seeds per trial: their number (3 is 0 to 2), or the seeds (3,7).")] = "3",
    seed: Annotated[int, typer.Option(help="Random seed for the search.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study.", show_default="runs/tune/BENCHMARK-METHOD")
    ] = None,
    preset: opt.Preset = "recommended",
    config: opt.Config = None,
    settings: opt.Sets = None,
    validation: opt.Validation = None,
    jobs: opt.Jobs = None,
    threads: opt.Threads = 1,
    launcher: opt.Launcher = "local",
    address: opt.Address = None,
    cpus: opt.Cpus = None,
    gpus: opt.Gpus = None,
    data_root: opt.DataRoot = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Choose settings by their accuracy on images held out of training, never on test images.

    Run the same command again to resume an interrupted study. With one job at a time, the same command always tries
    the same settings.
    """
    with error_handler(debug):
        from sfao.lab.run.jobs import parse_seeds
        from sfao.lab.tune import find_best, make_search, parse_search, tune, write_results

        run = choose_launcher(launcher, address, cpus, gpus)
        search = make_search(
            benchmark,
            method,
            parse_seeds(seeds),
            parse_settings(settings),
            dict(parse_search(text) for text in searches or []),
            share=validation,
            preset=preset,
            file=config,
        )
        count = len(search.grid) if grid else trials
        out = check_out(out or Path("runs/tune") / name_folder(f"{benchmark}-{method}"))
        shown, ended = not (quiet or as_json), list["Trial"]()
        if shown:
            print_stderr(describe_search(search, count))

        def footer() -> str:
            best = find_best(ended)
            return f"trial {len(ended)}/{count}" + (f", best {best.score:.3f} (trial {best.number})" if best else "")

        with watch_runs([], shown=shown, debug=debug, footer=footer) as (watch, stopping):
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
                watch=watch,
                ended=ended.append,
                stopping=stopping,
            )
        summary = write_results(search, found, out)
        if as_json:
            print_json(summary)
        elif not quiet:
            print_study(search, found, summary, out)
        if summary["best"] is None:
            raise fail(f"no trial of {len(found)} ended well; trial 0: {found[0].error}", FAILED)


def describe_search(search: "Search", trials: int) -> str:
    where = ", ".join(shorten(join_lines(f"{name}={each}"), LONGEST_VALUE) for name, each in search.space.items())
    return (
        f"choosing {where} of {search.method} on {search.benchmark}: {trials} trials x {len(search.seeds)} seeds, "
        f"ranked on {100 * search.share:.4g} % of the training images, never on test images"
    )


def print_study(search: "Search", trials: "list[Trial]", summary: dict[str, Any], out: Path) -> None:
    from sfao.lab.report.tables import print_table
    from sfao.lab.tune import BEST, TABLE, TRIALS, make_table

    print_table(make_table(trials, search), console())
    print_paths(out / name for name in (TRIALS, TABLE, *([BEST] if summary["best"] else [])))
