"""sfao data: list, get and verify data sets."""

from typing import TYPE_CHECKING, Annotated

import typer

from sfao.lab.cli.options import AsJson, DataRoot, Debug, Quiet
from sfao.lab.cli.terminal import FAILED, console, error_handler, fail, print_json, progress_bars, table

if TYPE_CHECKING:
    from sfao.lab.data.verify import FileResult

data = typer.Typer(help="List, download and verify the data of the benchmarks.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Data set; see `sfao data list`.")]


@data.command("list")
def list_data(data_root: DataRoot = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """List all data sets and where they are on this machine."""
    with error_handler(debug):
        from sfao.lab.data.verify import list_datasets

        found = list_datasets(data_root)
    if as_json:
        print_json([{**entry, "where": entry["where"] and str(entry["where"])} for entry in found])
        return
    rows = table("name", "train", "test", "classes", "download", "where")
    for entry in found:
        download = f"{entry['download'] / 1e6:.0f} MB" if entry["download"] else "embedded"
        counts = (f"{entry[name]:,}" for name in ("train", "test", "classes"))
        where = str(entry["where"] or f"not here: sfao data get {entry['name']}")
        rows.add_row(entry["name"], *counts, download, where, style=None if entry["where"] else "dim")
    console().print(rows)


@data.command()
def get(
    name: Name, data_root: DataRoot = None, quiet: Quiet = False, as_json: AsJson = False, debug: Debug = False
) -> None:
    """Download a data set and verify it; files that are there already stay."""
    with error_handler(debug), progress_bars(shown=not (quiet or as_json)) as progress:
        from sfao.lab.data.fetch import get_dataset

        _check_name(name)
        results = get_dataset(name, data_root, progress=progress)
    _print_results(results, quiet, as_json)


@data.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="Data set.", show_default="all on this machine")] = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare files and the cache with published checksums; exit code 1 if one is missing or differs."""
    with error_handler(debug):
        from sfao.lab.data.verify import Status, list_datasets, verify_dataset

        if name is not None:
            _check_name(name)
        names = [name] if name else [entry["name"] for entry in list_datasets(data_root) if entry["where"]]
        results = [result for each in names for result in verify_dataset(each, data_root)]
    _print_results(results, quiet, as_json)
    wrong = [result for result in results if result.status is not Status.OK]
    if wrong:
        first = wrong[0]
        raise fail(f"{len(wrong)} of {len(results)} files are missing or differ; {first.path}: {first.status}", FAILED)


def _check_name(name: str) -> None:
    from sfao.lab.data.sets import get_description
    from sfao.lab.run.errors import ConfigError, reraise_as

    with reraise_as(ConfigError):
        get_description(name)


def _print_results(results: "list[FileResult]", quiet: bool, as_json: bool) -> None:
    rows = [{"path": str(result.path), "status": str(result.status), "detail": result.detail} for result in results]
    if as_json:
        print_json(rows)
    elif not quiet:
        files = table("status", "file", "detail")
        for row in rows:
            files.add_row(row["status"], row["path"], row["detail"], style=None if row["status"] == "ok" else "red")
        console().print(files)
