"""Building models by name: exact sizes, seeds, and a caller whose random numbers are left alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfao.lab.models import MODELS, build_model, size_options

GREY, RGB = (1, 28, 28), (3, 32, 32)


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def same_weights(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "count"),
    [
        ("mlp", GREY, 2, 201_474),
        ("mlp", GREY, 10, 203_530),
        ("cnn", RGB, 2, 1_068_738),
        ("cnn", RGB, 10, 1_070_794),
        ("wrn-28-10", RGB, 10, 36_479_194),
        ("alexnet", RGB, 10, 6_528_896),
        ("resnet-18", RGB, 10, 11_173_962),
        ("vit", RGB, 10, 207_946),
    ],
)
def test_the_number_of_parameters(name, shape, outputs, count):
    assert parameters(build_model(name, shape, outputs, seed=0)) == count


@given(seed=st.integers(0, 2**63 - 1), name=st.sampled_from(["mlp", "cnn"]))
@settings(max_examples=10, deadline=None)
def test_the_seed_alone_decides_the_weights(seed, name):
    model = build_model(name, (1, 8, 8), 2, seed)
    torch.rand(3)
    assert same_weights(model, build_model(name, (1, 8, 8), 2, seed))
    assert not same_weights(model, build_model(name, (1, 8, 8), 2, seed ^ 1))


def test_weights_are_what_torch_gives_after_seeding_it():
    torch.manual_seed(3)
    expected = torch.nn.Linear(4, 5).weight
    assert torch.equal(build_model("mlp", (1, 2, 2), 2, seed=3, hidden=5).hidden1.weight, expected)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "timm"])
def test_the_callers_random_numbers_go_on_as_if_nothing_was_built(name):
    torch.manual_seed(11)
    expected = torch.rand(4)
    torch.manual_seed(11)
    build_model(name, RGB, 2, seed=5)
    assert torch.equal(torch.rand(4), expected)


def test_unknown_names_are_refused_with_the_nearest_valid_one():
    with pytest.raises(
        ValueError,
        match=r"`model` must be one of mlp, cnn, alexnet, resnet-18, wrn-28-10, vit, timm, got 'wrn-28' .*'wrn-28-10'",
    ):
        build_model("wrn-28", RGB, 2, seed=0)
    with pytest.raises(ValueError, match=r"unknown option `hiden` \(did you mean 'hidden'\?\)"):
        build_model("mlp", GREY, 2, seed=0, hiden=8)
    with pytest.raises(ValueError, match="unknown option `hidden`; the options are fc"):
        build_model("cnn", RGB, 2, seed=0, hidden=8)


# Models of your own


class Net(nn.Module):
    def __init__(self, input_shape, outputs, width=4):
        super().__init__()
        self.layer = nn.Linear(input_shape[0], width)
        self.head = nn.Linear(width, outputs)


class Fixed(nn.Linear):
    def __init__(self, features=3):
        super().__init__(features, 2)


def build(thing, seed=0, **sizes):
    with MODELS.override({"own": thing}):
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
