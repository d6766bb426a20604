"""Plain descent, and the fresh model per task of the paper's released CIFAR notebooks."""

from dataclasses import replace

import pytest
import torch

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
    untrained, other = (make("sgd", tasks, FRESH, model, seed=9) for _ in range(2))
    asked[begin](untrained)
    assert torch.equal(weights(fresh), weights(untrained))
    assert not torch.equal(weights(fresh), learnt)
    other.training = replace(other.training, seed=4)
    asked[begin](other)
    assert not torch.equal(weights(other), weights(fresh))
    asked[2 * begin](fresh)
    assert not torch.equal(weights(fresh), weights(untrained))  # another model for every task
