"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Benchmark = Annotated[str, typer.Argument(help="Benchmark; see `sfao list`.")]
Method = Annotated[str, typer.Option(help="Method; see `sfao list`.")]
Preset = Annotated[str, typer.Option(help="Preset of settings: recommended, released or paper.")]
Config = Annotated[Path | None, typer.Option(help="YAML file with settings.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Setting, such as model.hidden=784; see `sfao list settings`. Repeatable."),
]
Validation = Annotated[
    float | None,
    typer.Option(help="Share of the training images to rank on.", show_default="0.1; mnist-5k 0.2"),
]
Log = Annotated[
    list[str] | None,
    typer.Option("--log", help="Log to csv, tensorboard, wandb or mlflow in the run folder. Repeatable."),
]
Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="Bit-identical results, on a GPU too; unsupported operations raise an error."),
]
CheckpointSeconds = Annotated[
    float,
    typer.Option(
        help="Seconds between checkpoints; at least ten times what saving one takes. The end of a task is saved if a "
        "checkpoint is due within 20 s.",
        min=0,
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume unfinished runs from their checkpoints.")]

Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "--workers", help="Number of parallel runs.", min=1, show_default="number of cores"),
]
Threads = Annotated[int, typer.Option(help="CPU threads per run.", min=1, max=1024)]
Launcher = Annotated[str, typer.Option(help="Where to run: local (processes of this machine) or ray (a cluster).")]
Address = Annotated[
    str | None,
    typer.Option(help="Ray cluster: auto or HOST:PORT.", show_default="a Ray started for this command"),
]
Cpus = Annotated[float | None, typer.Option(help="CPUs per run with Ray.", show_default="--threads")]
Gpus = Annotated[
    float | None,
    typer.Option(help="GPUs per run with Ray; with 0.25, four runs share one.", show_default="1 on a GPU, else 0"),
]

DataRoot = Annotated[
    Path | None, typer.Option("--data-root", help="Folder of the data sets.", show_default="$SFAO_DATA or the cache")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Print tracebacks of errors.")]
