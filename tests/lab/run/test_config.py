import subprocess
import sys

import pytest
import yaml

from sfao.lab.run.config import complete_settings, configure, make_config, parse_setting
from sfao.lab.run.errors import ConfigError


def test_settings_come_from_the_benchmark_the_file_and_the_command_in_this_order(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("lr: 0.5\nepochs: 7\nmodel:\n  hidden: 10\n")
    config = configure("split-mnist", "sgd", seed=3, file=file, settings={"epochs": 9})
    assert (config.lr, config.epochs, config.seed) == (0.5, 9, 3)
    assert config.model.sizes == {"hidden": 10}
    assert configure("split-mnist", "sgd").model.sizes == {"hidden": 256}


def test_another_model_leaves_the_sizes_behind():
    config = configure("split-mnist", "sgd", settings={"model.name": "cnn", "model.fc": 64})
    assert config.model.sizes == {"fc": 64}


def test_the_sizes_of_another_model_may_come_before_its_name():
    config = configure("split-mnist", "sgd", settings={"model.fc": 64, "model.name": "cnn"})
    assert config.model.sizes == {"fc": 64}


def test_what_is_read_back_is_equal_where_an_option_is_a_list():
    config = configure("split-mnist", "gpm", settings={"options.threshold": [0.9, 0.95]})
    assert yaml.safe_load(yaml.safe_dump(config.model_dump())) == config.model_dump()


def test_a_dumped_configuration_is_complete_and_can_be_run_again():
    config = configure("split-cifar100", "sgd", settings={"order": "random"})
    assert make_config(yaml.safe_load(yaml.safe_dump(config.model_dump()))) == config
    assert config.batch_size == 24


def test_a_dumped_configuration_says_its_method_and_seed_and_the_command_may_say_others(tmp_path):
    run = configure("split-mnist-5k", "ewc", seed=7, settings={"lr": 0.02})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(run.model_dump()))
    assert configure("split-mnist-5k", file=tmp_path / "config.yaml") == run
    other = configure("split-mnist-5k", "ewc", seed=8, file=tmp_path / "config.yaml")
    assert other == run.model_copy(update={"seed": 8})
    assert configure("split-mnist-5k", "sfao", seed=0) == configure("split-mnist-5k")
    (tmp_path / "half.yaml").write_text("method: sgd\nlr: 0.5\n")
    sgd = configure("split-mnist-5k", file=tmp_path / "half.yaml")
    si = configure("split-mnist-5k", "si", file=tmp_path / "half.yaml")
    assert [(one.method, one.seed, one.lr) for one in (sgd, si)] == [("sgd", 0, 0.5), ("si", 0, 0.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method: [sgd]", r"config.yaml: `method` must be the name of a method, got "),
        ("method: sdg", "`method` must be one of .*, got 'sdg'"),
        ("seed: -1", "`seed`: .* greater than or equal to 0, got -1"),
        ("benchmark: split-mnist", "`benchmark` must be left to the command, which says 'split-mnist-5k'"),
    ],
)
def test_a_file_that_names_no_run_is_refused(tmp_path, text, message):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        configure("split-mnist-5k", file=tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("lr=0.1", ("lr", 0.1)), ("model.hidden=[3, 4]", ("model.hidden", [3, 4])), ("order=2,0,1", ("order", "2,0,1"))],
)
def test_settings_of_the_command(text, parsed):
    assert parse_setting(text) == parsed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lrr": 1}, "unknown setting `lrr` (did you mean 'lr'?)"),
        ({"lr": "fast"}, "`lr`: input should be a valid number"),
        ({"order": 10}, "`order`: input should be a valid string or a valid list, got 10"),
        ({"order": [1, "x"]}, "`order.1`: input should be a valid integer, unable to parse string as an integer, got"),
        ({"lr": 0}, "`lr`: input should be greater than 0, got 0"),
        ({"epochs": 1.5}, "`epochs`: input should be a valid integer"),
        ({"scenario": "tasks"}, "`scenario`: input should be 'domain', 'task' or 'class', got 'tasks'"),
        ({"options.speed": 3}, "unknown setting `options.speed`"),
        ({"model.name": "resnet"}, "`model.name` must be one of mlp, cnn, alexnet, "),
        ({"model.hiden": 3}, "unknown option `hiden` (did you mean 'hidden'?)"),
        ({"evaluate": "validation"}, "`evaluate: validation` needs examples held out"),
        ({"fraction": 0}, "`fraction`: input should be greater than 0, got 0"),
        ({"fraction": 1.5}, "`fraction`: input should be less than or equal to 1, got 1.5"),
        ({"momentum": 1}, "`momentum`: input should be less than 1, got 1"),
        ({"lr": float("inf")}, "`lr`: input should be a finite number, got inf"),
        ({"augment": [{"x": 1}]}, "`augment.0`: input should be 'flip' or 'crop', got {'x': 1}"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError) as caught:
        configure("split-mnist", "sgd", settings=settings)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(("benchmark", "method"), [("split-mnst", "sgd"), ("split-mnist", "sgdd")])
def test_unknown_names_suggest_the_nearest(benchmark, method):
    with pytest.raises(ConfigError, match=r"did you mean '(split-mnist|sgd)'"):
        configure(benchmark, method)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs: 2\nlr: fast\n", "c.yaml:2: `lr`: input should be a valid number"),
        ("epochs: 2\n\nlearning_rate: 1\n", "c.yaml:3: unknown setting `learning_rate`"),
        ("model:\n  name: mlp\n  hiden: 3\n", "c.yaml:3: unknown option `hiden` (did you mean 'hidden'?)"),
        ("epochs: 2\nmodel:\n  hidden: 3\n  name: resnet\n", "c.yaml:4: `model.name` must be one of mlp"),
        ("lr: 1\nevaluate: validation\n", "c.yaml:2: `evaluate: validation` needs examples held out"),
        ("lr: 1\norder:\n  - 1\n  - x\n", "c.yaml:2: `order.1`: input should be a valid integer"),
        ("lr: 1\nepochs: 2\nlr: 3\n", "c.yaml:3: `lr` must be there once, got it again"),
        ("model:\n  hidden: 2\n  name: mlp\n  hidden: 3\n", "c.yaml:4: `model.hidden` must be there once, got it"),
        ("options:\n  a: 1\n  b: 2\n", "c.yaml:2: unknown setting `options.a`"),
        ("a: &a\n  b: *a\n", "c.yaml:2: must not have *a inside of &a"),
        ("- 1\n", "must hold `name: value` lines, got list"),
        ("a: [1\n", "must be YAML"),
        ("1: 2\n", "must hold names of settings, got 1"),
        ("lr: 1\nlr: \xff\n", "c.yaml:2: must be text in UTF-8, got the byte 0xff"),
        (
            "lr: 1\nepochs: 1\nweight_decay: 1e+300\n",
            "c.yaml:3: `weight_decay` must be at most 1e+38 in size, got 1e+300",
        ),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, message):
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError) as caught:
        configure("split-mnist", "sgd", file=file)
    assert message in str(caught.value)


def test_a_seed_that_no_generator_takes():
    with pytest.raises(ConfigError, match="`seed`: input should be less than 9223372036854775808"):
        configure("split-mnist", "sgd", seed=2**63)


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        configure("split-mnist", "sgd", file=tmp_path / "none.yaml")


def test_an_option_of_several_types_is_named_without_them():
    with pytest.raises(ConfigError, match=r"^`options\.threshold`: input .* number, .* or a valid tuple"):
        configure("split-mnist", "gpm", settings={"options.threshold": "much"})


def test_aliases_and_merged_keys_are_no_repetition(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("model: &sizes\n  hidden: 3\noptions:\n  <<: {threshold: 0.5}\n  threshold: 0.9\n")
    config = configure("split-mnist", "gpm", file=file)
    assert (config.model.sizes, config.options["threshold"]) == ({"hidden": 3}, 0.9)


@pytest.mark.parametrize("text", ["lr", "=3", "lr=[1", "model={hidden: 3, hidden: 4}"])
def test_bad_set(text):
    with pytest.raises(ConfigError, match="--set"):
        parse_setting(text)


def test_errors_need_no_torch_and_no_pydantic():
    code = "import sys, sfao.lab.run.errors; print({'torch', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_without_momentum_its_form_makes_no_other_run():
    one, two = (configure("split-mnist-5k", "sgd", settings={"momentum_form": form}) for form in ("ema", "heavy_ball"))
    assert one == two
    with_momentum = configure("split-mnist-5k", "sgd", settings={"momentum": 0.5, "momentum_form": "ema"})
    assert with_momentum.momentum_form == "ema"


def test_settings_of_before_are_completed_and_strange_ones_left_alone():
    now = configure("split-mnist-5k", "sfao").model_dump()
    before = {**now, "momentum_form": "ema", "options": {k: v for k, v in now["options"].items() if k != "rule"}}
    assert complete_settings(before) == now
    assert complete_settings({**now, "method": "unheard-of"}) == {**now, "method": "unheard-of"}
