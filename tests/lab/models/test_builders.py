"""Models of one's own: modules, and functions and classes that make one."""

import pytest
import torch
from torch import nn

from sfao.lab.models import MODELS, build_model, size_options


class Net(nn.Module):
    def __init__(self, input_shape, outputs, width=4):
        super().__init__()
        self.layer = nn.Linear(input_shape[0], width)
        self.head = nn.Linear(width, outputs)


class Fixed(nn.Linear):
    def __init__(self, features=3):
        super().__init__(features, 2)


def build(thing, seed=0, **sizes):
    with MODELS.lend({"own": thing}):
        return build_model("own", (3,), 2, seed, **sizes), size_options("own")


@pytest.mark.parametrize("thing", [Net, lambda input_shape, outputs, width=4: Net(input_shape, outputs, width)])
def test_what_takes_shapes_gets_them_and_its_weights_are_of_the_seed(thing):
    (one, options), (same, _), (other, _) = build(thing, width=5), build(thing, width=5), build(thing, 1, width=5)
    assert options == ("width",)
    assert one.layer.weight.shape == (5, 3)
    assert torch.equal(one.layer.weight, same.layer.weight)
    assert not torch.equal(one.layer.weight, other.layer.weight)


def test_what_takes_sizes_alone_is_built_from_the_seed_too():
    made, options = build(Fixed, features=7)
    assert options == ("features",)
    assert made.weight.shape == (2, 7)
    assert torch.equal(made.weight, build(Fixed, features=7)[0].weight)


def test_of_a_module_every_run_has_a_copy():
    module = nn.Linear(3, 2)
    made, options = build(module)
    assert options == ()
    assert torch.equal(made.weight, module.weight)
    nn.init.zeros_(made.weight)
    assert module.weight.any()


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (3, "`model` 'own' must be a module, or a function or class that takes .*, got int"),
        (lambda a, b, c: None, r"got \(a, b, c\)"),
        (lambda a: None, r"got \(a\)"),
        (lambda: 3, "`model` 'own' must make a torch.nn.Module, got int"),
    ],
)
def test_what_makes_no_model_is_refused(thing, said):
    with pytest.raises(ValueError, match=said):
        build(thing)


def test_an_option_that_it_does_not_take_is_refused():
    with pytest.raises(ValueError, match=r"unknown option `widht` .did you mean 'width'?"):
        build(Net, widht=3)
