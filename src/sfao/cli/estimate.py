"""sfao estimate: the size of a memory and the time of a step, before anything runs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.cli.terminal import console, say_json, spoken_errors

if TYPE_CHECKING:
    from sfao.cost.estimate import Estimate


def estimate(
    own: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="mlp, cnn or wrn-28-10, or module:attribute for your own."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The same, as an option.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="subspace or directions.", show_default="subspace; directions where an option of theirs is given"
        ),
    ] = None,
    axes: Annotated[int | None, typer.Option(help="Of the subspace, axes per layer.", show_default="200")] = None,
    capacity: Annotated[int | None, typer.Option(help="Directions a layer.", show_default="200")] = None,
    storage: Annotated[str | None, typer.Option(help="Of directions, dense or factored.", show_default="dense")] = None,
    rank: Annotated[int | None, typer.Option(help="Of what is factored.", show_default="1")] = None,
    memory_dtype: Annotated[str | None, typer.Option(help="float32 or bfloat16.", show_default="float32")] = None,
    memory_budget: Annotated[
        str | None, typer.Option(help="What may be held, such as 64MiB: picks axes, or how to store directions.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Directions compared with at a step.", show_default="10")] = None,
    input_shape: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="Channels x height x width; of your own model, any shape.",
            show_default="1x28x28 for mlp, else 3x32x32",
        ),
    ] = None,
    classes: Annotated[int, typer.Option(help="Outputs of the model.", min=1)] = 10,
    batch_size: Annotated[int, typer.Option(help="Examples a step.", min=1)] = 32,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int | None, typer.Option(help="CPU threads.", show_default="all cores", min=1, max=1024)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Bytes, exactly, of a full memory; and about what a step takes, after some seconds of calibration."""
    with spoken_errors(debug):
        import torch

        from sfao.cost.arguments import check_one_memory, make_setting, make_subject, parse_choice
        from sfao.cost.estimate import choose_holding
        from sfao.cost.estimate import estimate as predict
        from sfao.experiment.errors import ConfigError, reraise_as

        if (own is None) == (model is None):
            got = "none" if model is None else f"{own!r} and {model!r}"
            raise ConfigError(f"`model` must be named once, by MODEL or by --model, got {got}")
        model = own or model or ""
        given = {
            "memory": None if memory is None else parse_choice("memory", memory),
            "axes": axes,
            "capacity": capacity,
            "storage": storage,
            "rank": rank,
            "memory_dtype": memory_dtype,
            "samples": samples,
        }
        options: Any = {name: value for name, value in given.items() if value is not None}
        check_one_memory(options)
        subject = make_subject(model, input_shape, classes)
        with reraise_as(ConfigError):
            choose_holding(subject, options, memory_budget)
        trained = make_setting(device, batch_size)
        if threads:
            torch.set_num_threads(threads)
        found = predict(subject, options, memory_budget, trained)
        if as_json:
            say_json(describe_as_json(model, found))
        else:
            print_estimate(model, found, batch_size)


def describe_as_json(model: str, found: "Estimate") -> dict[str, Any]:
    """Return plain containers with numbers in full precision."""
    calibration = found.calibration
    return {
        "model": model,
        "parameters": found.parameters,
        "layers": found.layers,
        "memory": found.holding.memory,
        **found.holding.options,
        "plan": found.plan,
        "memory_bytes": found.memory_bytes,
        "workspace_bytes": found.workspace_bytes,
        "sgd_ms": calibration.sgd_ms,
        "gate_ms": found.gate_ms,
        "step_ms": found.step_ms,
        "times_sgd": found.times_sgd,
        "calibration": {
            "seconds": calibration.seconds,
            "overhead_ms": calibration.overhead_ms,
            "paces": {pace.kind: str(pace) for pace in calibration.paces},
            "sgd_extrapolated_from_batch": calibration.extrapolated_from,
        },
    }


def print_estimate(model: str, found: "Estimate", batch_size: int) -> None:
    from sfao.gating.budget import format_bytes

    holding, calibration = found.holding, found.calibration
    source = f", from batch {calibration.extrapolated_from} on" if calibration.extrapolated_from else ""
    paces = ", ".join(f"{pace.kind} {pace}" for pace in calibration.paces)
    lines = {
        "model": f"{model}, {found.parameters:,} parameters in {found.layers} layers",
        "memory": f"{holding.memory}: {found.plan or holding}",
        holding.held: f"{found.memory_bytes:,} bytes ({format_bytes(found.memory_bytes)})",
        "workspace": f"{found.workspace_bytes:,} bytes ({format_bytes(found.workspace_bytes)})",
        "SGD": f"{calibration.sgd_ms:.2f} ms a step of batch {batch_size}{source}",
        "gate": f"{found.gate_ms:.2f} ms, if every layer {holding.action}: {calibration.overhead_ms:.2f} ms for calls, "
        "the rest for work",
        "step": f"{found.step_ms:.2f} ms, {found.times_sgd:.2f} x SGD",
        "calibrated": f"on this machine in {calibration.seconds:.1f} s: {paces}",
    }
    screen = console()
    for name, said in lines.items():
        screen.print(f"{name:12}{said}", soft_wrap=True)
