"""The list of settings, and errors that name a setting, its rule and its value."""

import yaml

from sfao.lab.methods import METHODS
from sfao.lab.models import MODELS
from sfao.lab.run.config import RunConfig, configure, make_config
from sfao.lab.run.settings import list_settings


def test_every_setting_of_a_run_is_listed_with_its_meaning():
    rows = {row.name: row for row in list_settings()["run"]}
    assert {name.partition(".")[0] for name in rows} == set(RunConfig.model_fields)
    assert all(row.meaning.endswith(".") for row in rows.values())
    assert rows["lr"][1:3] == ("number > 0", "0.001")
    assert rows["seed"][1:3] == ("integer >= 0", "0")
    assert rows["deterministic"][1:3] == ("true or false", "false")
    assert rows["scenario"][1:3] == ("domain or task or class", "domain")
    assert rows["guard.every"][1:3] == ("integer >= 1", "50")
    assert rows["model.name"].default == ""


def test_a_listed_default_is_the_value_of_a_run_that_does_not_set_it():
    config = configure("split-mnist", "sgd", settings={"guard.kind": "measured", "validation": 0.1}).model_dump()
    plain = {name: config[name] for name in ("benchmark", "method", "model", "guard", "validation")}
    plain = make_config(plain).model_dump()
    for row in list_settings()["run"]:
        head, _, rest = row.name.partition(".")
        value = plain[head][rest] if rest else plain[head]
        if row.default and row.name not in ("guard", "validation", "options"):
            assert value == yaml.safe_load(row.default), row


def test_options_of_methods_and_sizes_of_models_are_listed_by_their_dotted_names():
    listed = list_settings()
    for name, method in METHODS.items():
        rows = {row.name for row in listed.get(f"method {name}", ())}
        assert rows == {f"options.{option}" for option in method.Options.model_fields}
    assert {row.name for row in listed["model mlp"]} == {"model.hidden"}
    assert {name for name in listed if name.startswith("model ")} <= {f"model {name}" for name in MODELS}
