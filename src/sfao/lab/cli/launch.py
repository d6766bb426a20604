"""Options that say where runs are done, and the launcher that they ask for."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sfao.lab.run.runner import RefilledRunner

LAUNCHERS = ("local", "ray")

Launcher = Annotated[
    str, typer.Option("--launcher", help="Where runs are done: local, in processes of this machine, or ray, a cluster.")
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", help="The Ray cluster: auto or HOST:PORT.", show_default="a Ray started for this command"
    ),
]
Cpus = Annotated[float | None, typer.Option("--cpus", help="CPUs of a run, with ray.", show_default="--threads")]
Gpus = Annotated[
    float | None,
    typer.Option(
        "--gpus", help="GPUs of a run, with ray; 0.25 lets four share one.", show_default="1 on a GPU, else 0"
    ),
]


def choose_launcher(launcher: str, address: str | None, cpus: float | None, gpus: float | None) -> "RefilledRunner":
    """Return the function that runs jobs; raise a ConfigError for options that do not go together."""
    from sfao.checks import check_choice
    from sfao.lab.run.errors import ConfigError, reraise_as

    with reraise_as(ConfigError):
        check_choice("launcher", launcher, LAUNCHERS)
    if launcher == "ray":
        from sfao.lab.launchers.ray_cluster import import_ray
        from sfao.lab.launchers.ray_launcher import RayLauncher

        import_ray()
        return RayLauncher(address, cpus, gpus)
    for name, value in (("address", address), ("cpus", cpus), ("gpus", gpus)):
        if value is not None:
            raise ConfigError(f"`--{name}` is for --launcher ray, got {value!r} with --launcher {launcher}")
    from sfao.lab.run.pool import run_all

    return run_all
