"""sfao bench: time and memory of a training step on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from sfao.lab.cli.execute import check_out
from sfao.lab.cli.options import AsJson, Debug, Quiet
from sfao.lab.cli.terminal import console, error_handler, print_json, progress_bars


def bench(
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model: mlp, cnn or wrn-28-10. Repeatable.", show_default="mlp and cnn; on a GPU all"),
    ] = None,
    device: Annotated[str, typer.Option(help="Device: cpu or cuda.")] = "cpu",
    directions: Annotated[
        str | None, typer.Option(help="Directions per layer that SFAO stores.", show_default="10,200; quick: 10")
    ] = None,
    rank: Annotated[str, typer.Option(help="Ranks of factored directions.")] = "1",
    batch_size: Annotated[int, typer.Option(help="Examples per step.", min=1)] = 32,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", show_default="all cores", min=1, max=1024)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Take a quick look: only the MLP and few steps.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/bench"),
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure time and memory of a training step with SGD, AdamW, SFAO, DriftBound and the paper's released code.

    Lists have commas between their values: --directions 10,50,200. This takes a minute or two.
    """
    with error_handler(debug):
        import torch

        from sfao.lab.bench import MODEL_INPUTS, make_table, measure
        from sfao.lab.report.tables import print_table, render_markdown
        from sfao.lab.run.errors import ConfigError, reraise_as
        from sfao.lab.run.files import write_json, write_text
        from sfao.lab.run.setup import usable_device

        with reraise_as(ConfigError):
            chosen = usable_device(device)
        everything = ["mlp"] if quick else list(MODEL_INPUTS) if chosen.type == "cuda" else ["mlp", "cnn"]
        models = [_check_model(name) for name in model or everything]
        counts = _parse_counts("directions", directions or ("10" if quick else "10,200"))
        ranks = _parse_counts("rank", rank)
        check_out(out).mkdir(parents=True, exist_ok=True)  # before hours of measurements are lost
        if threads:
            torch.set_num_threads(threads)
        with progress_bars(shown=not (quiet or as_json)) as progress:
            effort = {"turns": 3} if quick else {}
            results = measure(models, counts, ranks, chosen, batch_size=batch_size, progress=progress, **effort)
        table = make_table(results)
        write_json(out / "bench.json", results.as_json())
        write_text(out / "bench.md", render_markdown(table) + "\n")
        if as_json:
            print_json(results.as_json())
        elif not quiet:
            screen = console()
            print_table(table, screen, repeated=2)
            for name in ("bench.json", "bench.md"):
                screen.print(str(out / name), soft_wrap=True)


def _check_model(name: str) -> str:
    from sfao.checks import check_choice
    from sfao.lab.bench import MODEL_INPUTS
    from sfao.lab.run.errors import ConfigError, reraise_as

    with reraise_as(ConfigError):
        check_choice("model", name, tuple(MODEL_INPUTS))
    return name


def _parse_counts(name: str, text: str) -> list[int]:
    """Parse `10,50` into different numbers."""
    from sfao.lab.run.errors import ConfigError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 and int(part) > 0 for part in parts):
        raise ConfigError(f"`{name}` must be whole numbers of at least 1 with commas between, got {text!r}")
    return list(dict.fromkeys(map(int, parts)))
