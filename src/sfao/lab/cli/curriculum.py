"""sfao curriculum: the order of tasks in which later ones interfere least with earlier ones, and whether it helps."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli.launch import Address, Cpus, Gpus, Launcher, choose_launcher
from sfao.lab.cli.report import progress
from sfao.lab.cli.run import stop_signals
from sfao.lab.cli.terminal import FAILED, console, fail, say_json, spoken_errors
from sfao.lab.names import name_folder

if TYPE_CHECKING:
    from sfao.lab.report.curriculum_tables import OrderResult
    from sfao.lab.report.tables import Table
    from sfao.lab.run.curriculum import Curriculum
    from sfao.lab.run.record import Record
    from sfao.lab.run.worker import Job

Sets = Annotated[list[str] | None, typer.Option("--set", help="A setting, such as epochs=1. Repeatable.")]

RESULT, TABLES = "curriculum.json", "curriculum.md"


def curriculum(
    benchmark: Annotated[str, typer.Argument(help="Which benchmark; see `sfao list`.")],
    method: Annotated[str, typer.Option(help="Which method; it needs a gate.")] = "sfao",
    seeds: Annotated[str, typer.Option(help="How many seeds (5 is 0 to 4), or which (3,7).")] = "5",
    out: Annotated[
        Path | None, typer.Option(help="The folder of the runs.", show_default="runs/curriculum/BENCHMARK")
    ] = None,
    preset: Annotated[str, typer.Option(help="Whose settings: recommended, released or paper.")] = "recommended",
    config: Annotated[Path | None, typer.Option(help="A YAML file of settings.")] = None,
    settings: Sets = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time.", min=1, show_default="as many as cores")] = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Propose an order of the tasks from what the gate decides, and run it beside the benchmark's and its reverse."""
    with spoken_errors(debug):
        import torch

        from sfao.lab.report.curriculum_tables import compare_orders
        from sfao.lab.run.config import parse_setting
        from sfao.lab.run.curriculum_runs import check_settings, find_curriculum, list_different_orders
        from sfao.lab.run.plan import parse_seeds, plan
        from sfao.lab.streams.suite import BENCHMARKS

        run = choose_launcher(launcher, address, cpus, gpus)
        out = out or Path("runs/curriculum") / name_folder(benchmark)
        chosen = dict(parse_setting(text) for text in settings or [])
        check_settings(chosen)

        def plan_runs(folder: Path, **order: Any) -> "list[Job]":
            numbers = parse_seeds(seeds)
            return plan(benchmark, [method], numbers, folder, preset=preset, file=config, settings={**chosen, **order})

        first = plan_runs(out)[0].config
        torch.set_num_threads(threads)
        with progress() as tell:
            dataset = BENCHMARKS[benchmark].load(data_root)
            found = find_curriculum(first, dataset, out, tell)
        orders = list_different_orders(found)
        planned = [job for name, order in orders.items() for job in plan_runs(out / name, order=order)]
        how = {"data_root": data_root, "resume": resume, "workers": jobs, "threads": threads, "run": run}
        records = _run(planned, shown=not (quiet or as_json), **how)
        results = compare_orders(found, _group_by_order(found, records))
        title = f"{method} on {benchmark}, {len(parse_seeds(seeds))} seeds: with and without the proposed order"
        tables = _make_tables(found, results, title)
        summary = {**found.as_json(), "probed": first.model_dump(), "results": [asdict(result) for result in results]}
        _write_results(summary, tables, out)
        if as_json:
            say_json(summary)
        elif not quiet:
            _print_results(tables, out)
    troubled = [record for record in records if record.status != "done"]
    if troubled:
        one = troubled[0]
        raise fail(
            f"{len(troubled)} of {len(records)} runs did not end well; seed {one.seed} {one.status}: {one.error}",
            FAILED,
        )


def _run(jobs: "list[Job]", shown: bool, **how: Any) -> "list[Record]":
    from sfao.lab.cli.live import live_lines
    from sfao.lab.run.compare import compare

    with stop_signals() as stopping, live_lines(jobs, shown=shown) as watch:
        return compare(jobs, watch=watch, stopping=stopping, **how)


def _group_by_order(found: "Curriculum", records: "list[Record]") -> "dict[str, list[Record]]":
    """Return {name of an order: its records}; equal orders share theirs."""
    own = list(range(len(found.tasks)))
    return {
        name: [record for record in records if (record.config["order"] or own) == order]
        for name, order in found.orders.items()
    }


def _make_tables(found: "Curriculum", results: "list[OrderResult]", title: str) -> "list[Table[Any]]":
    from sfao.lab.report.curriculum_tables import make_order_table, make_pair_table, make_task_table

    return [make_task_table(found), make_pair_table(found), make_order_table(title, results)]


def _write_results(summary: dict[str, Any], tables: "list[Table[Any]]", out: Path) -> None:
    from sfao.lab.report.tables import render_markdown
    from sfao.lab.run.files import write_json, write_text

    write_json(out / RESULT, summary)
    write_text(out / TABLES, "\n\n".join(map(render_markdown, tables)) + "\n")


def _print_results(tables: "list[Table[Any]]", out: Path) -> None:
    from sfao.lab.report.tables import print_notes, render_terminal

    screen = console()
    for table in tables:
        screen.print(render_terminal(table))
        print_notes(table.notes, screen)
        screen.print("")
    for path in (out / RESULT, out / TABLES, out / "ORDER/METHOD-SEED/record.json"):
        screen.print(str(path), soft_wrap=True)
