"""sfao demo: a comparison with everything chosen, on data that comes with the package."""

from pathlib import Path
from typing import Annotated

import typer

from sfao.cli.compare import compare_and_print
from sfao.cli.terminal import INTERRUPTED, fail, spoken_errors

BENCHMARK = "split-mnist-5k"
METHODS = ("sgd", "ewc", "ogd", "agem", "gpm", "sfao")
SEEDS = (0, 1, 2)
#: How much of the training data --quick learns from.
QUICK = 0.05


def demo(
    out: Annotated[
        Path | None, typer.Option(help="The folder of the runs.", show_default="runs/demo; quick: runs/demo-quick")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed on a slice of the data: a look, no result.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Six methods, three seeds, 5000 real digits in five tasks: about two minutes on two cores.

    Again, it goes on where it was stopped, and shows at once what is finished.
    """
    with spoken_errors(debug):
        from sfao.experiment.errors import Interrupted
        from sfao.experiment.plan import plan

        folder = out or Path("runs/demo-quick" if quick else "runs/demo")
        seeds, settings = (SEEDS[:1], {"fraction": QUICK}) if quick else (SEEDS, {})
        jobs = plan(BENCHMARK, METHODS, seeds, folder, settings=settings)
        try:
            compare_and_print(jobs, folder, resume=True, quiet=quiet, as_json=as_json, debug=debug)
        except Interrupted as error:
            raise fail(error.describe("the same command goes on"), INTERRUPTED) from None
