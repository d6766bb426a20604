import pytest

from sfao.lab.methods import METHODS
from sfao.lab.run.config import configure
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.presets import preset_names, preset_settings, preset_source
from sfao.lab.streams.suite import BENCHMARKS
from tests.lab.methods.scenarios import set_scenario


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_can_be_configured_and_says_where_it_comes_from(preset):
    for method in METHODS:
        for benchmark in BENCHMARKS:
            configure(benchmark, method, preset=preset, settings=set_scenario(method))
            if preset_settings(preset, method, benchmark):
                assert preset_source(preset, method, benchmark)


def test_settings_override_a_preset():
    config = configure("split-mnist", "sfao", preset="released", settings={"options.accept_above": 0.9})
    assert config.options["accept_above"] == 0.9
    assert config.options["granularity"] == "global"


def test_an_unknown_preset():
    with pytest.raises(ConfigError, match="did you mean 'released'"):
        configure("split-mnist", "sgd", preset="relased")


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("method", ["ewc", "si"])
@pytest.mark.parametrize("benchmark", ["split-mnist", "permuted-mnist", "split-cifar10"])
def test_where_the_paper_names_no_strength_the_recommended_one_is_taken(preset, method, benchmark):
    ours, theirs = (configure(benchmark, method, preset=name) for name in ("recommended", preset))
    assert theirs.options == ours.options
    assert "the recommended preset's" in preset_source(preset, method, benchmark)
