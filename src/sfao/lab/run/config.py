"""The configuration of a run: every setting, its default and its rule."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sfao.checks import check_choice
from sfao.lab.console import quote, shorten
from sfao.lab.methods import METHODS, MethodOptions, Training
from sfao.lab.methods.descent import MOMENTUM_FORMS
from sfao.lab.models import MODELS, check_sizes
from sfao.lab.run.errors import ConfigError, reraise_as
from sfao.lab.run.guard_config import GuardConfig
from sfao.lab.run.presets import RECOMMENDED, preset_names, preset_settings
from sfao.lab.run.setting_errors import explain_error
from sfao.lab.run.setting_range import check_range
from sfao.lab.safe_io import InputError, parse_yaml, read_yaml_file
from sfao.lab.streams.suite import BENCHMARKS

#: The method where neither the command nor a file names one.
DEFAULT_METHOD = "sfao"
#: {another name for a setting: its own}
RENAMED = {"task_order": "order"}


class ModelConfig(BaseModel):
    """A model by name; all other fields are its sizes."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def sizes(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _check_sizes(self) -> "ModelConfig":
        MODELS.find("model.name", self.name)
        check_sizes(self.name, self.sizes)
        return self


class RunConfig(BaseModel):
    """One method on one benchmark with one seed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    benchmark: str
    method: str
    seed: int = Field(0, ge=0, lt=2**63)
    scenario: Literal["domain", "task", "class"] = "domain"
    tasks: int | None = Field(None, ge=1)
    #: The tasks in another order: their numbers from 0, or `random`. `task_order` is another name for it.
    order: str | list[int] | None = None
    #: The share of every class's training examples that is used.
    fraction: float = Field(1.0, gt=0, le=1)
    validation: float = Field(0.0, ge=0, lt=1)
    evaluate: Literal["test", "validation"] = "test"
    model: ModelConfig
    lr: float = Field(1e-3, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    momentum_form: Literal["heavy_ball", "ema"] = "heavy_ball"
    weight_decay: float = Field(0.0, ge=0)
    batch_size: int = Field(32, ge=1)
    epochs: int = Field(2, ge=1)
    device: str = "cpu"
    #: Same bits at every repetition, on a GPU too; what has no deterministic form ends the run.
    deterministic: bool = False
    #: Goes back when a task makes the model forget too fast; null: nothing does.
    guard: GuardConfig | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _rename_task_order(cls, values: Any) -> Any:
        if "task_order" not in values:
            return values
        if values.get("order") is not None:
            raise ValueError(f"`task_order` is another name for `order`; give one of them, got {values['order']!r} too")
        return {
            **{name: value for name, value in values.items() if name != "task_order"},
            "order": values["task_order"],
        }

    @model_validator(mode="before")
    @classmethod
    def _normalise_form_of_no_momentum(cls, values: Any) -> Any:
        """Runs without momentum are the same run, whichever form it would have had."""
        if not values.get("momentum", 0) and values.get("momentum_form") in MOMENTUM_FORMS:
            return {**values, "momentum_form": MOMENTUM_FORMS[0]}
        return values

    @model_validator(mode="after")
    def _check_choices(self) -> "RunConfig":
        BENCHMARKS.find("benchmark", self.benchmark)
        METHODS.find("method", self.method)
        if METHODS[self.method].needs_task and self.scenario != "task":
            rule = f"`scenario` must be task with {self.method}, which must be told the task that it answers"
            raise ValueError(f"{rule}, got {self.scenario!r}")
        if self.evaluate == "validation" and self.validation == 0:
            raise ValueError("`evaluate: validation` needs examples held out: `validation` must be above 0, got 0")
        return self

    @model_validator(mode="after")
    def _check_guard(self) -> "RunConfig":
        if self.guard is None:
            return self
        method, kind = METHODS[self.method], self.guard.kind
        if method.revisits:
            raise ValueError(f"`guard` must be left out with {self.method}, which trains on all past tasks")
        if kind == "measured" and self.validation == 0:
            raise ValueError("`guard.kind: measured` needs examples held out: `validation` must be above 0, got 0")
        if kind == "predicted" and not method.is_gated:
            gated = ", ".join(name for name, known in METHODS.items() if known.is_gated)
            raise ValueError(f"`guard.kind: predicted` needs a method with a gate, one of {gated}, got {self.method!r}")
        return self

    @property
    def training(self) -> Training:
        names = ("lr", "momentum", "momentum_form", "weight_decay", "batch_size", "seed")
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
    # Lists for tuples, as in YAML and JSON: a configuration that is read back must be equal.
    made = config.model_copy(update={"options": options.model_dump(mode="json")})
    with reraise_as(ConfigError):
        check_range(made.model_dump(), file)
    return made


def complete_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run as they would be written now: those that did not exist have their defaults.

    Settings that are of no run here are returned as they are: of a method that is not installed, say, or that name
    code of the user's that is not loaded.
    """
    try:
        return make_config(config).model_dump()
    except ConfigError:
        return config


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
