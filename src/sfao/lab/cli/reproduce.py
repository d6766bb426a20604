"""sfao reproduce: the paper's tables and figures, run again and set beside what it prints."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli import options as opt
from sfao.lab.cli.execute import check_out, choose_launcher, exit_if_failed, run_jobs
from sfao.lab.cli.terminal import FAILED, console, error_handler, fail, print_json, print_paths, print_stderr, table

if TYPE_CHECKING:
    from sfao.lab.paper.archive import Archive
    from sfao.lab.paper.plan import Plan
    from sfao.lab.paper.series import Scale, Series
    from sfao.lab.run.jobs import Job
    from sfao.lab.run.record import Record

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
    threads: opt.Threads = 1,
    launcher: opt.Launcher = "local",
    address: opt.Address = None,
    cpus: opt.Cpus = None,
    gpus: opt.Gpus = None,
    checkpoint_seconds: opt.CheckpointSeconds = 20.0,
    data_root: opt.DataRoot = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, and which are done.")] = False,
    quiet: opt.Quiet = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Run what the paper's tables need and isn't done yet, then show paper and runs side by side."""
    with error_handler(debug):
        run = choose_launcher(launcher, address, cpus, gpus)
        request = _parse(names, preset, as_released, quick, fraction, seeds, out if dry_run else check_out(out))
        plan = request.plan(device, data_root, checkpoint_seconds)
        request.read_archive([])  # a record that cannot be read is reported now, not after hours of work
        for dataset, message in plan.absent.items():
            affected = [name for name in request.names if any(s.dataset == dataset for s in request.series_of(name))]
            print_stderr(f"sfao: SKIPPED, all or in part: {', '.join(affected)}: {message}")
        if dry_run:
            _show_plan(plan, as_json)
            return
        if not (plan.done or plan.left):
            raise fail("no data set that these tables need is on this machine", FAILED)
        shown, records = not (quiet or as_json), list(plan.done.values())
        if shown:
            for place, count in Counter(job.folder.parent for job in plan.left).items():
                print_stderr(f"{place}: {count} runs to do")
        how: dict[str, Any] = {"threads": threads, "data_root": data_root, "run": run, "debug": debug}
        for workers, group in _assign_workers(plan.left, jobs, launcher == "local").items():
            records += run_jobs(group, shown=shown, resume=True, workers=workers, **how)
        tables = _write_tables(request, request.read_archive(records), shown)
        figures = [path for name in request.names if "figure" in name for path in _write_figure(request, plan, name)]
        if as_json:
            print_json({"tables": tables, "figures": [str(path) for path in figures], "absent": plan.absent})
        elif shown:
            print_paths(figures)
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

    def series_of(self, name: str) -> "list[Series]":
        from sfao.lab.paper.series import find_series

        return find_series(name, self.preset, self.as_released)

    def plan(self, device: str, data_root: Path | None, checkpoint_seconds: float) -> "Plan":
        from sfao.lab.paper.plan import plan_runs

        return plan_runs(
            [one for name in self.names for one in self.series_of(name)],
            self.seeds,
            self.out,
            scale=self.scale,
            device=device,
            data_root=data_root,
            checkpoint_seconds=checkpoint_seconds,
        )

    def read_archive(self, records: "list[Record]") -> "Archive":
        """Return the runs of this call and of earlier ones, of other presets too: they are found by their settings."""
        from sfao.lab.paper.archive import Archive, read_runs
        from sfao.lab.paper.series import PRESETS

        failed = [record for record in records if record.status == "failed"]
        own_last = sorted(PRESETS, key=self.preset.__eq__)
        known = [*failed, *chain.from_iterable(read_runs(self.out / preset) for preset in own_last)]
        return Archive(record for record in known if record.seed in self.seeds)

    def file(self, name: str) -> Path:
        """Return the path of a table without its ending: results on a slice never replace those on all data."""
        ending = ["as-released"] * self.as_released + self.scale.parts
        return self.out / self.preset / "-".join([name, *ending])


def _parse(
    names: list[str],
    preset: str | None,
    as_released: bool,
    quick: bool,
    fraction: float | None,
    seeds: str | None,
    out: Path,
) -> _Request:
    from sfao.checks import check_choice
    from sfao.lab.paper.series import PRESETS, QUICK_FRACTION, Scale, list_names
    from sfao.lab.run.errors import ConfigError, reraise_as
    from sfao.lab.run.jobs import parse_seeds

    known, chosen = list_names(), preset or ("released" if as_released else "paper")
    with reraise_as(ConfigError):
        for name in names:
            check_choice("name", name, (*known, ALL))
        check_choice("preset", chosen, PRESETS)
    if as_released and chosen != "released":
        raise ConfigError(f"`--as-released` takes the released preset, got {chosen!r}")
    if fraction is None:
        fraction = QUICK_FRACTION if quick else 1.0
    if not 0 < fraction <= 1:
        raise ConfigError(f"`fraction` must be in (0, 1], got {fraction:g}")
    wanted = list(known) if ALL in names else list(dict.fromkeys(names))
    counted = parse_seeds(("1" if quick else "5") if seeds is None else seeds)
    return _Request(wanted, chosen, as_released, Scale(fraction, quick), counted, out)


def _assign_workers(jobs: "list[Job]", asked: int | None, is_local: bool) -> "dict[int | None, list[Job]]":
    """Return {workers: the runs that they share}: one pool for all, unless models need a whole local GPU."""
    pools: dict[int | None, list[Job]] = {}
    for job in jobs:
        workers = asked
        if asked is None and is_local and job.config.device != "cpu":
            # A memory of gradients of WRN-28-10 leaves no room for another run.
            workers = 1 if job.config.model.name == "wrn-28-10" else 4
        pools.setdefault(workers, []).append(job)
    return pools


# -- Output --------------------------------------------------------------------------------------------------


def _write_tables(request: _Request, archive: "Archive", shown: bool) -> list[dict[str, Any]]:
    from sfao.lab.paper.render import as_markdown, print_table
    from sfao.lab.paper.results import fill_table
    from sfao.lab.run.files import write_json, write_text

    made, screen = [], console()
    for name in request.names:
        if not name.startswith("table"):
            continue
        number = int(name.removeprefix("table"))
        one = fill_table(number, request.preset, archive, scale=request.scale, as_released=request.as_released)
        if one.is_empty:
            continue
        file = request.file(one.paper.name)
        write_json(file.with_name(f"{file.name}.json"), one.as_json())
        write_text(file.with_name(f"{file.name}.md"), as_markdown(one))
        made.append(one.as_json())
        if shown:
            print_table(one, screen)
            screen.print(f"{file}.md\n{file}.json\n", soft_wrap=True)
    return made


def _write_figure(request: _Request, plan: "Plan", name: str) -> list[Path]:
    from sfao.lab.paper.archive import series_key, settings_key
    from sfao.lab.paper.figures import write_figure
    from sfao.lab.paper.series import find_series
    from sfao.lab.run.folder import finished_record

    keys = {series_key(series, request.scale) for series in find_series(name, request.preset)}
    done = [place for place, record in plan.done.items() if settings_key(record.config) in keys]
    for series in find_series(name, request.preset):
        folders = (series.folder(request.out, seed, request.scale) for seed in request.seeds)
        done += [folder for folder in folders if finished_record(folder) is not None]
    finished = list(dict.fromkeys(done))
    return write_figure(name, finished, request.file(name)) if finished else []


def _show_plan(plan: "Plan", as_json: bool) -> None:
    """Show every run, its state, and how long such a run took if one is done."""
    seconds = plan.expected_seconds()
    if as_json:
        runs = {str(folder): state for folder, state in plan.states.items()}
        print_json({"runs": runs, "absent": plan.absent, "seconds": {str(folder): t for folder, t in seconds.items()}})
        return
    # Folders may have long names: the part that all share is printed once.
    shared = Path(commonpath(folder.parent for folder in plan.states))
    listed = table("run", "state", "took before")
    for folder, state in plan.states.items():
        took = f"{seconds[folder]:.0f} s" if folder in seconds else ""
        listed.add_row(str(folder.relative_to(shared)), state, took)
    screen = console()
    screen.print(f"{shared}:", soft_wrap=True)
    screen.print(listed)
    counts = Counter(plan.states.values())
    screen.print(f"{len(plan.states)} runs: {', '.join(f'{count} {state}' for state, count in counts.items())}")
