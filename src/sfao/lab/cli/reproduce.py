"""sfao reproduce: the paper's tables and figures, run again and set beside what it prints."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli.execute import choose_launcher, exit_if_failed, run_jobs
from sfao.lab.cli.options import (
    Address,
    AsJson,
    CheckpointSeconds,
    Cpus,
    DataRoot,
    Debug,
    Gpus,
    Launcher,
    Quiet,
    Threads,
)
from sfao.lab.cli.terminal import FAILED, console, error_handler, fail, print_json, print_paths, print_stderr

if TYPE_CHECKING:
    from sfao.lab.paper.archive import Archive
    from sfao.lab.paper.protocol import Series
    from sfao.lab.paper.runs import Plan
    from sfao.lab.paper.scale import Scale
    from sfao.lab.run.record import Record
    from sfao.lab.run.worker import Job

ALL = "all"


def reproduce(
    names: Annotated[list[str], typer.Argument(help="table1 to table11, figure1, figure2, or all.", metavar="NAME...")],
    preset: Annotated[
        str | None,
        typer.Option(help="Preset of settings: paper, released or recommended.", show_default="paper"),
    ] = None,
    as_released: Annotated[
        bool,
        typer.Option(
            "--as-released", help="Run every row as the paper's was really produced, with the released preset."
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Take a quick look: one seed on a tenth of the data, at ten times the learning rate."
        ),
    ] = False,
    fraction: Annotated[
        float | None, typer.Option(help="Share of the training data.", show_default="1; quick: 0.1")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Number of seeds, or the seeds (3,7).", show_default="5; quick: 1")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs and tables.")] = Path("runs/reproduce"),
    device: Annotated[str, typer.Option(help="Device of the runs: cpu or cuda.")] = "cpu",
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Number of parallel runs.", min=1, show_default="number of cores; on a GPU 4, of WRN-28-10 1"
        ),
    ] = None,
    threads: Threads = 1,
    launcher: Launcher = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    checkpoint_seconds: CheckpointSeconds = 20.0,
    data_root: DataRoot = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs, which of them are done, and how long the others take.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run what the paper's tables need and isn't done yet, then show paper and runs side by side."""
    with error_handler(debug):
        from sfao.lab.run.plan import parse_seeds

        run = choose_launcher(launcher, address, cpus, gpus)
        chosen, scale = _choose_preset(preset, as_released), _choose_scale(fraction, quick)
        counted = parse_seeds(("1" if quick else "5") if seeds is None else seeds)
        request = _Request(_parse_names(names), chosen, as_released, scale, counted, out)
        plan = request.plan(device, data_root, checkpoint_seconds)
        _read_archive(request, [])  # a record that cannot be read is reported now, not after hours of work
        _warn_of_absent(plan, request)
        if dry_run:
            from sfao.lab.cli.reproduction_plan import show_plan

            if plan.left and not (quiet or as_json):
                print_stderr("a few steps of every kind of run are tried, to tell how long it takes")

            show_plan(plan, _assign_workers(plan.left, jobs), threads, data_root, as_json)
            return
        if not (plan.done or plan.left):
            raise fail("no data set that these tables need is on this machine", FAILED)
        how: dict[str, Any] = {"threads": threads, "data_root": data_root, "run": run, "debug": debug}
        records = _do_runs(plan, jobs, is_local=launcher == "local", shown=not (quiet or as_json), **how)
        _write_and_print(request, plan, records, not (quiet or as_json), as_json)
    exit_if_failed(records)


@dataclass(frozen=True)
class _Request:
    """The arguments of the command, parsed and checked."""

    names: list[str]
    preset: str
    as_released: bool
    scale: "Scale"
    seeds: list[int]
    out: Path

    @property
    def tables(self) -> list[int]:
        return [int(name.removeprefix("table")) for name in self.names if name.startswith("table")]

    @property
    def figures(self) -> list[str]:
        return [name for name in self.names if name.startswith("figure")]

    def series_of(self, name: str) -> "list[Series]":
        from sfao.lab.paper.protocol import figure_series, protocol

        if name.startswith("figure"):
            return figure_series(name, self.preset)
        return list(protocol(int(name.removeprefix("table")), self.preset, self.as_released).cells.values())

    def plan(self, device: str, data_root: Path | None, checkpoint_seconds: float) -> "Plan":
        from sfao.lab.paper.runs import plan_runs

        series = [one for name in self.names for one in self.series_of(name)]
        plan = partial(plan_runs, series, self.seeds, self.out, scale=self.scale)
        return plan(device=device, data_root=data_root, checkpoint_seconds=checkpoint_seconds)

    def file(self, name: str) -> Path:
        """Return the path of a table without its ending: results on a slice never replace those on all data."""
        ending = ["as-released"] * self.as_released + self.scale.parts
        return self.out / self.preset / "-".join([name, *ending])


# -- Arguments ---------------------------------------------------------------------------------------------


def _parse_names(asked: list[str]) -> list[str]:
    from sfao.checks import check_choice
    from sfao.lab.paper.protocol import list_names
    from sfao.lab.run.errors import ConfigError, reraise_as

    known = list_names()
    for name in asked:
        with reraise_as(ConfigError):
            check_choice("name", name, (*known, ALL))
    return list(known) if ALL in asked else list(dict.fromkeys(asked))


def _choose_preset(preset: str | None, as_released: bool) -> str:
    from sfao.checks import check_choice
    from sfao.lab.paper.protocol import PRESETS
    from sfao.lab.run.errors import ConfigError, reraise_as

    if preset is None:
        return "released" if as_released else "paper"
    with reraise_as(ConfigError):
        check_choice("preset", preset, PRESETS)
    if as_released and preset != "released":
        raise ConfigError(f"`--as-released` takes the released preset, got {preset!r}")
    return preset


def _choose_scale(fraction: float | None, quick: bool) -> "Scale":
    from sfao.lab.paper.scale import QUICK_FRACTION, Scale
    from sfao.lab.run.errors import ConfigError

    if fraction is None:
        return Scale(QUICK_FRACTION if quick else 1.0, quick)
    if not 0 < fraction <= 1:
        raise ConfigError(f"`fraction` must be in (0, 1], got {fraction:g}")
    return Scale(fraction, quick)


# -- Runs ----------------------------------------------------------------------------------------------------


def _do_runs(plan: "Plan", workers_asked: int | None, *, is_local: bool, shown: bool, **how: Any) -> "list[Record]":
    """Do what is left in view of the user, and return all records, with those that were there."""
    from sfao.lab.run.compare import jobs_by_folder

    records, left = list(plan.done), jobs_by_folder(plan.left)
    if shown:
        for place, jobs in left.items():
            print_stderr(f"{place}: {len(jobs)} runs to do")
    for workers, jobs in _assign_workers(chain.from_iterable(left.values()), workers_asked, is_local).items():
        records += run_jobs(jobs, shown=shown, resume=True, workers=workers, **how)
    return records


def _assign_workers(
    jobs: Iterable["Job"], workers_asked: int | None, is_local: bool = True
) -> "dict[int | None, list[Job]]":
    """Return {workers: the runs that they share}: one pool for all, but for models that need a whole local GPU."""
    pools: dict[int | None, list[Job]] = {}
    for job in jobs:
        pools.setdefault(workers_asked or (_count_workers(job) if is_local else None), []).append(job)
    return pools


def _count_workers(job: "Job") -> int | None:
    """Return how many runs share a GPU by default; a memory of gradients of WRN-28-10 has no room for another."""
    if job.config.device == "cpu":
        return None
    return 1 if job.config.model.name == "wrn-28-10" else 4


def _read_archive(request: _Request, records: "list[Record]") -> "Archive":
    """Return the runs of this call and of earlier ones, under other presets too: they are found by their settings."""
    from sfao.lab.paper.archive import Archive, read_runs
    from sfao.lab.paper.protocol import PRESETS

    failed = [record for record in records if record.status == "failed"]
    own_last = sorted(PRESETS, key=request.preset.__eq__)
    known = [*failed, *chain.from_iterable(read_runs(request.out / preset) for preset in own_last)]
    return Archive(record for record in known if record.seed in request.seeds)


# -- Output --------------------------------------------------------------------------------------------------


def _write_and_print(request: _Request, plan: "Plan", records: "list[Record]", shown: bool, as_json: bool) -> None:
    """Write every table as Markdown and JSON and every figure as SVG and PDF, and show them."""
    tables = _write_tables(request, _read_archive(request, records), shown)
    figures = [path for name in request.figures for path in _write_figure(request, plan, name)]
    if as_json:
        print_json({"tables": tables, "figures": [str(path) for path in figures], "absent": plan.absent})
    elif shown:
        print_paths(figures)


def _write_tables(request: _Request, archive: "Archive", shown: bool) -> list[dict[str, Any]]:
    from sfao.lab.paper.formats import as_json, as_markdown, print_reproduction
    from sfao.lab.paper.reproduced_table import reproduce_table
    from sfao.lab.run.files import write_json, write_text

    made, screen = [], console()
    for number in request.tables:
        one = reproduce_table(
            number,
            request.preset,
            archive,
            asked=len(request.seeds),
            scale=request.scale,
            as_released=request.as_released,
        )
        if one.empty:
            continue
        file = request.file(one.name)
        write_json(file.with_name(f"{file.name}.json"), as_json(one))
        write_text(file.with_name(f"{file.name}.md"), as_markdown(one))
        made.append(as_json(one))
        if shown:
            print_reproduction(one, screen)
            screen.print(f"{file}.md\n{file}.json\n", soft_wrap=True)
    return made


def _write_figure(request: _Request, plan: "Plan", name: str) -> list[Path]:
    from sfao.lab.paper.paper_figures import write_figure
    from sfao.lab.paper.protocol import figure_series
    from sfao.lab.run.folder import finished_record

    folders = [
        series.folder(request.out, seed, request.scale)
        for series in figure_series(name, request.preset)
        for seed in request.seeds
    ]
    places = [plan.elsewhere.get(folder, folder) for folder in folders]
    finished = [folder for folder in places if finished_record(folder) is not None]
    return write_figure(name, finished, request.file(name)) if finished else []


def _warn_of_absent(plan: "Plan", request: _Request) -> None:
    """Name on the error stream the tables that will be incomplete, and the command that gets the data."""
    for dataset, message in plan.absent.items():
        affected = [name for name in request.names if any(s.dataset == dataset for s in request.series_of(name))]
        print_stderr(f"sfao: SKIPPED, all or in part: {', '.join(affected)}: {message}")
