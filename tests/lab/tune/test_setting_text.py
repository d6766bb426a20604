"""Settings as text: what is written is read back."""

import shlex

import pytest
import yaml

from sfao.lab.run.config import configure, make_config, parse_setting
from sfao.lab.tune.search import make_search
from sfao.lab.tune.setting_text import shorten_names, write_config_file, write_set_line, write_value


@pytest.mark.parametrize("value", [0.5, 1e-05, 1e30, 7, True, None, "logit", "1e3", "a b", "null", [1, [0.5, "x"]], ""])
def test_a_value_is_read_back(value):
    name, found = parse_setting(f"x={write_value(value)}")
    assert (name, found, type(found)) == ("x", value, type(value))


def test_a_line_for_the_shell_without_what_belongs_to_the_choosing():
    line = write_set_line({"options.x": "a b", "lr": 1e-05, "evaluate": "validation", "validation": 0.2})
    assert shlex.split(line) == ["--set", "options.x=a b", "--set", "lr=1.0e-05"]


def test_the_file_gives_a_tested_run_with_the_same_settings(tmp_path):
    search = make_search("split-mnist-5k", "gpm", [3, 4], {"epochs": 2, "tasks": 2}, preset="paper")
    chosen = {"options.threshold": [0.9, 0.95], "lr": 1e-05}
    file = tmp_path / "best.yaml"
    file.write_text(write_config_file(search.configure(chosen), ["It is the best."]))
    assert file.read_text().startswith("# It is the best.\n")
    run = configure("split-mnist-5k", "gpm", seed=7, file=file)
    wanted = {**search.configure(chosen).model_dump(), "seed": 7, "evaluate": "test", "validation": 0.0}
    assert run == make_config(wanted)
    assert not {"seed", "evaluate", "validation"} & yaml.safe_load(file.read_text()).keys()


def test_names_are_shortened_where_that_is_clear():
    assert shorten_names(["options.a", "model.b", "b"]) == {"options.a": "a", "model.b": "model.b", "b": "b"}
