"""Plain descent, and the fresh model per task of the paper's released CIFAR notebooks."""

from dataclasses import replace

import pytest
import torch

from sfao.lab.models import MODELS, build_model, reinitialize
from tests.lab.methods.short_runs import events, make, stream, weights

FRESH = {"fresh": True}


def until(method, asked, end):
    for event in asked[:end]:
        event(method)
    return weights(method)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_a_fresh_model_owes_nothing_to_the_task_before(model):
    tasks = stream("domain", model)
    asked = events(tasks)
    begin = len(asked) // 3
    plain, fresh = make("sgd", tasks, {}, model), make("sgd", tasks, FRESH, model)
    learnt = until(plain, asked, begin)
    assert torch.equal(until(fresh, asked, begin), learnt)  # the first model is the one that was built
    asked[begin](plain)
    asked[begin](fresh)
    assert torch.equal(weights(plain), learnt)
    untrained = make("sgd", tasks, FRESH, model, seed=9)
    asked[begin](untrained)
    assert torch.equal(weights(fresh), weights(untrained))
    assert not torch.equal(weights(fresh), learnt)


def test_every_task_has_another_model_and_the_seed_decides_which():
    tasks = stream()
    begins = [events(tasks)[number * len(events(tasks)) // 3] for number in (1, 2)]

    def second_and_third(run_seed):
        method = make("sgd", tasks, FRESH)
        method.training = replace(method.training, seed=run_seed)
        found = []
        for begin in begins:
            begin(method)
            found.append(weights(method))
        return found

    assert not torch.equal(*second_and_third(3))
    assert torch.equal(second_and_third(3)[0], second_and_third(3)[0])
    assert not torch.equal(second_and_third(3)[0], second_and_third(4)[0])


@pytest.mark.parametrize("name", ["mlp", "cnn", "wrn-28-10"])
def test_reinitialized_weights_are_as_those_of_a_new_model(name):
    """Nothing of the old ones is left, the scale is that of the layers' own initialisation, no generator moves."""
    if name == "wrn-28-10":
        from sfao.lab.models.wide_resnet import wide_resnet

        with torch.random.fork_rng(devices=[]):
            model = wide_resnet((3, 8, 8), 4, depth=10, widen=1)
    else:
        model = build_model(name, (3, 8, 8), 4, seed=0)
    assert name in MODELS
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.data.fill_(7.0)
    random = torch.get_rng_state()
    reinitialize(model, seed=1)
    assert torch.equal(torch.get_rng_state(), random)
    for key, value in model.state_dict().items():
        if "norm" in key:
            assert torch.equal(value, before[key])
        elif value.ndim > 1:
            assert not torch.equal(value, before[key])
            assert 0.8 < value.std() / before[key].std() < 1.25
