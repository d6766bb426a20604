"""A search measures on training images that are held out, whatever is given."""

import pytest
import yaml

from sfao.lab.run.config import configure
from sfao.lab.run.errors import ConfigError
from sfao.lab.tune.search import make_search


@pytest.mark.parametrize(
    ("benchmark", "share"), [("split-mnist-5k", 0.2), ("split-mnist", 0.1), ("split-cifar10", 0.1)]
)
def test_a_tenth_is_held_out_and_of_few_images_a_fifth(benchmark, share):
    config = make_search(benchmark, "sgd", [0], {}).configure({})
    assert (config.evaluate, config.validation) == ("validation", share)


def test_the_share_is_the_options_then_the_settings_then_the_files(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("validation: 0.3\nevaluate: test\n")
    made = [
        make_search("split-mnist-5k", "sgd", [0], {"validation": 0.4}, share=0.5, file=file),
        make_search("split-mnist-5k", "sgd", [0], {"validation": 0.4}, file=file),
        make_search("split-mnist-5k", "sgd", [0], {}, file=file),
    ]
    assert [(search.share, search.configure({}).validation) for search in made] == [(0.5, 0.5), (0.4, 0.4), (0.3, 0.3)]


def test_the_complete_file_of_a_run_that_was_tested_does_not_bring_test_images_in(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(configure("split-mnist-5k", "sgd").model_dump()))
    config = make_search("split-mnist-5k", "sgd", [0], {}, file=file).configure({})
    assert (config.evaluate, config.validation) == ("validation", 0.2)


@pytest.mark.parametrize("share", [0, 1, -0.1])
def test_bad_shares(share):
    with pytest.raises(ConfigError, match="validation"):
        make_search("split-mnist-5k", "sgd", [0], {}, share=share)
