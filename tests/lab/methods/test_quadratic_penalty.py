import pytest
import torch
from scipy.optimize import minimize_scalar

from sfao.lab.methods.optimizers import Descent
from sfao.lab.methods.quadratic_penalty import QuadraticPenalty, largest_stable_curvature, steady_step
from tests.lab.methods.short_runs import make_training


def parameters(*shapes):
    return [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]


def make_penalty(tasks=3, step_size=0.1):
    """A penalty of several tasks, and its parts: (weights, anchors) of every task."""
    theta = parameters((3, 2), (4,))
    penalty, made = QuadraticPenalty(theta, step_size), []
    for _ in range(tasks):
        weights = [torch.rand_like(p).detach() * (torch.rand_like(p) > 0.3) for p in theta]
        penalty.add(weights)
        made.append((weights, [p.detach().clone() for p in theta]))
        move(theta)
    return theta, penalty, made


@torch.no_grad()
def move(theta):
    for p in theta:
        p.add_(torch.randn_like(p))


def written_out(theta, made):
    return sum(
        (w * (p - a) ** 2).sum() / 2
        for weights, anchors in made
        for w, p, a in zip(weights, theta, anchors, strict=True)
    )


def test_the_gradient_is_that_of_the_separate_penalties():
    theta, penalty, made = make_penalty()
    expected = torch.autograd.grad(written_out(theta, made), theta)
    for p in theta:
        p.grad = torch.ones_like(p)
    theta[1].grad = None
    penalty.add_gradient()
    torch.testing.assert_close(theta[0].grad, expected[0] + 1)
    torch.testing.assert_close(theta[1].grad, expected[1])


def test_the_value_differs_from_the_separate_penalties_by_a_constant():
    theta, penalty, made = make_penalty()
    constants = []
    for _ in range(3):
        move(theta)
        joined = written_out(theta, [(penalty.weights, penalty.anchors)])
        constants.append(float((written_out(theta, made) - joined).detach()))
    assert constants[0] == pytest.approx(constants[1])
    assert constants[0] == pytest.approx(constants[2])
    assert constants[0] > 0


def test_the_proximal_step_is_the_minimiser():
    theta, penalty, made = make_penalty(step_size=0.7)
    half = theta[1].detach().clone()
    penalty.minimise()
    for i, start in enumerate(half.tolist()):
        terms = [(float(weights[1][i]), float(anchors[1][i])) for weights, anchors in made]

        def objective(x, start=start, terms=terms):
            return sum(w * (x - a) ** 2 / 2 for w, a in terms) + (x - start) ** 2 / (2 * 0.7)

        assert float(theta[1][i].detach()) == pytest.approx(minimize_scalar(objective).x, abs=1e-6)


@pytest.mark.parametrize("weight", [1e12, 1e38])
def test_an_enormous_penalty_holds_the_parameters_where_they_were(weight):
    (theta,) = parameters((5,))
    theta.data = theta.data.float()
    penalty = QuadraticPenalty([theta], step_size=100.0)
    anchor = theta.detach().clone()
    penalty.add([torch.full((5,), weight)])
    move([theta])
    penalty.minimise()
    torch.testing.assert_close(theta.detach(), anchor, rtol=1e-6, atol=1e-6)


def test_no_weight_means_no_pull():
    (theta,) = parameters((5,))
    penalty = QuadraticPenalty([theta], step_size=0.1)
    for _ in range(2):
        penalty.add([torch.zeros(5, dtype=torch.float64)])
        move([theta])
    before = theta.detach().clone()
    penalty.minimise()
    assert torch.equal(theta.detach(), before)
    assert penalty.steepest == 0


@pytest.mark.parametrize(
    ("momentum", "form", "expected"), [(0.0, "ema", 0.1), (0.9, "ema", 0.1), (0.9, "heavy_ball", 1.0)]
)
def test_both_steps_rest_where_loss_and_penalty_balance(momentum, form, expected):
    """Loss (theta - 1)^2 / 2, penalty 3/2 theta^2: the least is at 1/4, whatever the momentum."""
    setting = make_training(momentum=momentum, momentum_form=form)
    assert steady_step(setting) == pytest.approx(expected)
    theta = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    penalty = QuadraticPenalty([theta], steady_step(setting))
    penalty.add([torch.tensor([3.0], dtype=torch.float64)])
    optimizer = Descent([theta], lr=setting.lr, momentum=momentum, momentum_form=form)
    for _ in range(500):
        theta.grad = theta.detach() - 1
        optimizer.step()
        penalty.minimise()
    assert float(theta.detach()) == pytest.approx(0.25)


@pytest.mark.parametrize(("momentum", "form"), [(0.0, "ema"), (0.9, "ema"), (0.9, "heavy_ball"), (0.5, "heavy_ball")])
def test_the_bound_separates_what_converges_from_what_diverges(momentum, form):
    bound = largest_stable_curvature(make_training(lr=0.1, momentum=momentum, momentum_form=form))
    ends = []
    for curvature in (0.98 * bound, 1.02 * bound):
        theta = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
        optimizer = Descent([theta], lr=0.1, momentum=momentum, momentum_form=form)
        for _ in range(3000):
            theta.grad = curvature * theta.detach()
            optimizer.step()
        ends.append(abs(float(theta.detach())))
    assert ends[0] < 1e-3
    assert ends[1] > 1e3
