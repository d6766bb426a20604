"""The settings of a run. `RunConfig` is their only definition: names, types, defaults, rules and meanings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sfao.checks import check_choice
from sfao.lab.console import quote, shorten
from sfao.lab.methods import METHODS, MethodOptions, Training
from sfao.lab.methods.optimizers import MOMENTUM_FORMS, complete_momentum
from sfao.lab.models import MODELS, check_sizes
from sfao.lab.run.errors import ConfigError, reraise_as
from sfao.lab.run.presets import RECOMMENDED, preset_names, preset_settings
from sfao.lab.run.settings import check_magnitudes, explain_error
from sfao.lab.safe_io import InputError, parse_yaml, read_yaml_file
from sfao.lab.streams.suite import BENCHMARKS

#: The method if neither the command nor a file names one.
DEFAULT_METHOD = "sfao"


class ModelConfig(BaseModel):
    """A model by name; all other fields are its sizes."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(description="A model of `sfao list`, or `module:attribute` for your own. Its sizes follow.")

    @property
    def sizes(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _check_sizes(self) -> "ModelConfig":
        MODELS.find("model.name", self.name)
        check_sizes(self.name, self.sizes)
        return self


class GuardConfig(BaseModel):
    """Backtracking: return to the last good point of a task when past tasks are forgotten too fast."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["measured"] = Field(description="Measure accuracy on the validation data of past tasks.")
    rise: float = Field(0.05, gt=0, lt=1, description="The largest loss of accuracy between two checks.")
    every: int = Field(50, ge=1, description="Steps between two checks.")
    rollbacks: int = Field(3, ge=1, description="The most rollbacks of one task; then it continues unguarded.")


class RunConfig(BaseModel):
    """One method on one benchmark with one seed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    benchmark: str = Field(description="A benchmark of `sfao list`, or `module:attribute` for your own.")
    method: str = Field(description="A method of `sfao list`, or `module:attribute` for your own.")
    seed: int = Field(0, ge=0, lt=2**63, description="Random seed for weights, data order and sampling.")
    scenario: Literal["domain", "task", "class"] = Field(
        "domain", description="Domain-, task- or class-incremental learning."
    )
    tasks: int | None = Field(None, ge=1, description="The number of tasks; null for the benchmark's own.")
    order: str | list[int] | None = Field(
        None, description="The order of the tasks: their numbers from 0, or `random`; null for the benchmark's own."
    )
    fraction: float = Field(1.0, gt=0, le=1, description="The share of every class's training examples to use.")
    validation: float = Field(0.0, ge=0, lt=1, description="The share of the training examples to hold out.")
    evaluate: Literal["test", "validation"] = Field("test", description="The data that accuracies are measured on.")
    model: ModelConfig
    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = Field(
        "sgd", description="`momentum` is heavy-ball SGD; `adam` and `adamw` are torch's."
    )
    lr: float = Field(1e-3, gt=0, description="Learning rate.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of `sgd`; with `momentum`, 0 stands for 0.9.")
    momentum_form: Literal["heavy_ball", "ema"] = Field(
        "heavy_ball", description="Momentum as in torch, or as the exponential average of the paper."
    )
    weight_decay: float = Field(
        0.0, ge=0, description="Decoupled weight decay: weights shrink by 1 - lr * decay; an L2 term with `adam`."
    )
    batch_size: int = Field(32, ge=1, description="Examples of a batch.")
    epochs: int = Field(2, ge=1, description="Passes over the training data of each task.")
    schedule: Literal["constant", "cosine", "plateau"] = Field(
        "constant",
        description="The learning rate within each task: constant, decreasing to 0 by a cosine, or reduced when the "
        "validation loss stops improving (plateau).",
    )
    lr_patience: int = Field(6, ge=1, description="Plateau: epochs without improvement before lr is reduced.")
    lr_factor: float = Field(2.0, gt=1, description="Plateau: what lr is divided by.")
    lr_min: float = Field(1e-5, gt=0, description="Plateau: a task ends when its lr falls below this.")
    early_stopping: int | None = Field(
        None, ge=1, description="End a task after so many epochs without a better validation loss; null for never."
    )
    augment: list[Literal["flip", "crop"]] = Field(
        default_factory=list, description="Random changes of training images: flip, crop (padded by 4), or both."
    )
    device: str = Field("cpu", description="The device as torch names it: cpu, cuda, cuda:1.")
    deterministic: bool = Field(
        False, description="Bit-identical results, on a GPU too; unsupported operations raise an error."
    )
    guard: GuardConfig | None = Field(None, description="Backtracking (`guard.kind`, ...); null for none.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the method (`options.NAME`).")

    @model_validator(mode="before")
    @classmethod
    def _complete_momentum(cls, values: Any) -> Any:
        """Fill in the momentum of `optimizer: momentum`. Without momentum its form doesn't matter."""
        if values.get("optimizer") == "momentum" and values.get("momentum", 0) == 0:
            return {**values, "momentum": complete_momentum("momentum", 0.0)}
        if not values.get("momentum", 0) and values.get("momentum_form") in MOMENTUM_FORMS:
            return {**values, "momentum_form": MOMENTUM_FORMS[0]}
        return values

    @field_validator("augment", mode="before")
    @classmethod
    def _split_augment(cls, value: Any) -> Any:
        """Accept `flip,crop` as well as a list; either order is the same run."""
        names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value or []
        is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        return sorted(set(names), reverse=True) if is_list else names

    @model_validator(mode="after")
    def _check_choices(self) -> "RunConfig":
        BENCHMARKS.find("benchmark", self.benchmark)
        METHODS.find("method", self.method)
        if METHODS[self.method].needs_task and self.scenario != "task":
            rule = f"`scenario` must be task with {self.method}, which must be told the task that it answers"
            raise ValueError(f"{rule}, got {self.scenario!r}")
        if self.evaluate == "validation":
            self._check_validation("`evaluate: validation`")
        self.training  # noqa: B018, checks that the optimizer has this momentum
        return self

    @model_validator(mode="after")
    def _check_guard(self) -> "RunConfig":
        if self.guard is not None:
            if METHODS[self.method].trains_on_all_tasks:
                raise ValueError(f"`guard` must be left out with {self.method}, which trains on all past tasks")
            self._check_validation("`guard`")
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> "RunConfig":
        watches = "schedule: plateau" if self.schedule == "plateau" else ""
        if self.early_stopping is not None:
            watches = watches or "early_stopping"
        if watches:
            self._check_validation(f"`{watches}`")
            if METHODS[self.method].needs_task:
                raise ValueError(f"`{watches}` must be left out with {self.method}, which has weights for each task")
        if self.schedule == "plateau" and self.lr_min >= self.lr:
            raise ValueError(f"`lr_min` must be below `lr`, {self.lr:g}, or a task ends at once, got {self.lr_min:g}")
        if self.guard is not None and (watches or self.schedule == "cosine"):
            raise ValueError(f"`guard` must be left out with `{watches or 'schedule: cosine'}`: both set lr")
        return self

    def _check_validation(self, setting: str) -> None:
        if self.validation == 0:
            raise ValueError(f"{setting} needs examples held out: `validation` must be above 0, got 0")

    @property
    def training(self) -> Training:
        names = ("lr", "momentum", "momentum_form", "weight_decay", "batch_size", "seed", "optimizer")
        return Training(**{name: getattr(self, name) for name in names})

    @property
    def method_options(self) -> MethodOptions:
        return METHODS[self.method].Options(**self.options)


def configure(
    benchmark: str,
    method: str | None = None,
    *,
    seed: int | None = None,
    preset: str = RECOMMENDED,
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Return the configuration of a run.

    The settings of the benchmark are overridden by the preset, then by the file, then by `settings` (dotted names). A
    method and a seed that are given win over those of the file; without either, they are sfao and 0.

    Only `benchmark`, `method` and `settings` may name a `module:attribute` to import; the file may repeat them.
    """
    read = {} if file is None else read_yaml(file)
    given = method is not None
    method = _check_name(read.get("method", DEFAULT_METHOD), file) if method is None else method
    seed = read.get("seed", 0) if seed is None else seed
    asked: dict[str, Any] = {}
    for name, value in (settings or {}).items():
        merge(asked, nest(name, value))
    with reraise_as(ConfigError):
        BENCHMARKS.load("benchmark", benchmark)
        (METHODS.load if given else METHODS.find)("method", method)
        for trusted in (BENCHMARKS[benchmark].settings, asked):
            _load_model(trusted.get("model"))
        check_choice("preset", preset, preset_names())
    values: dict[str, Any] = {"benchmark": benchmark, "method": method, "seed": seed}
    merge(values, BENCHMARKS[benchmark].settings)
    for chosen in preset_settings(preset, method, benchmark):
        merge(values, chosen)
    if {**read, **asked}.get("optimizer", "sgd") != "sgd":  # the preset's momentum is that of its own optimizer
        values = {name: value for name, value in values.items() if name not in ("momentum", "momentum_form")}
    merge(values, {**read, "method": method, "seed": seed})
    merge(values, asked)  # together, so that the name of a model may come after its sizes
    for name, said in (("benchmark", benchmark), ("method", method), ("seed", seed)):
        if values[name] != said:
            raise ConfigError(f"`{name}` must be left to the command, which says {said!r}, got {values[name]!r}")
    return make_config(values, file)


def _load_model(settings: Any) -> None:
    """Import the model that the user, or code of the user's, names."""
    if isinstance(settings, Mapping) and isinstance(settings.get("name"), str):
        MODELS.load("model.name", settings["name"])


def load_names(config: RunConfig) -> None:
    """Import, in another process, what the user named in the process that made this configuration."""
    BENCHMARKS.load("benchmark", config.benchmark)
    METHODS.load("method", config.method)
    MODELS.load("model.name", config.model.name)


def _check_name(name: Any, file: Path | None) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"{file}: `method` must be the name of a method, got {quote(name)}")
    return name


def make_config(values: Mapping[str, Any], file: Path | None = None) -> RunConfig:
    """Return the configuration with these values, or raise a ConfigError that names the field and its line."""
    try:
        config = RunConfig(**values)
    except ValidationError as error:
        known = (*RunConfig.model_fields, *GuardConfig.model_fields)
        raise ConfigError(explain_error(error, values, file, (), known)) from error
    try:
        options = config.method_options
    except ValidationError as error:
        known = tuple(METHODS[config.method].Options.model_fields)
        raise ConfigError(explain_error(error, config.options, file, ("options",), known)) from error
    with reraise_as(ConfigError):
        METHODS[config.method].check_training(config.training, options)
    # Lists for tuples, as in YAML and JSON: a configuration that is read back must be equal.
    made = config.model_copy(update={"options": options.model_dump(mode="json")})
    with reraise_as(ConfigError):
        check_magnitudes(made.model_dump(exclude={"seed"}), file)
    return made


def complete_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a record with the defaults of those it lacks.

    The settings may be of a method that is not installed, or name code of the user's that is not loaded.
    """
    try:
        return make_config(config).model_dump()
    except ConfigError:
        fields = {
            name: field for name, field in RunConfig.model_fields.items() if name in config or not field.is_required()
        }
        defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
        return {**defaults, **config}


def read_yaml(file: Path) -> dict[str, Any]:
    """Return the settings in a file, or raise a ConfigError that names the file and the rule it breaks."""
    try:
        values = read_yaml_file(file)
    except OSError as error:
        raise ConfigError(f"`config` must be a file that can be read, got {file}: {error.strerror}") from error
    except InputError as error:
        raise ConfigError(error.at(file)) from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold `name: value` lines, got {type(values).__name__}")
    for name in values:
        if not isinstance(name, str):
            raise ConfigError(f"{file} must hold names of settings, got {quote(name)}")
    return values


def parse_setting(text: str) -> tuple[str, Any]:
    """Split `model.hidden=784` into a dotted name and a YAML value."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ConfigError(f"`--set` must be name=value, got {quote(text)}")
    try:
        return name.strip(), parse_yaml(value)
    except InputError as error:
        raise ConfigError(f"`--set {shorten(name, 80)}`: {error}") from error


def nest(name: str, value: Any) -> dict[str, Any]:
    """Turn a dotted name and its value into nested mappings."""
    head, _, rest = name.partition(".")
    return {head: nest(rest, value) if rest else value}


def merge(base: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Override the values in `base` by those in `other`, in nested mappings too.

    A different model name drops the sizes of the previous model.
    """
    for name, value in other.items():
        known = base.get(name)
        if isinstance(value, Mapping) and isinstance(known, dict):
            if name == "model" and "name" in known and value.get("name", known["name"]) != known["name"]:
                known.clear()
            merge(known, value)
        else:
            base[name] = dict(value) if isinstance(value, Mapping) else value
