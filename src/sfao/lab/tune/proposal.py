"""The next settings to try, proposed by Optuna's tree-structured Parzen estimator (Bergstra et al. 2011)."""

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial

from sfao.lab.methods.search_range import Choice, Range, SearchSpace
from sfao.lab.streams.seeding import make_generator


def propose(trials: Sequence[FrozenTrial], space: SearchSpace, seed: int) -> dict[str, Any]:
    """Return {name: value} to try after these trials.

    Nothing but the trials, the space and the seed matters, so a study that was interrupted goes on as if it had not
    been. Numbers have four digits: more would only make them hard to read.
    """
    source = make_generator(seed, f"trial {len(trials)}").initial_seed() % 2**32
    scratch = optuna.create_study(direction="maximize", sampler=TPESampler(seed=source))
    scratch.add_trials(trials)
    proposed = scratch.ask(make_distributions(space)).params
    return {name: _round(proposed[name], where) for name, where in space.items()}


def make_distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    return {name: _make_distribution(where) for name, where in space.items()}


def _make_distribution(where: Range | Choice) -> BaseDistribution:
    if isinstance(where, Choice):
        return CategoricalDistribution(where.values)
    if isinstance(where.low, int) and isinstance(where.high, int):
        return IntDistribution(where.low, where.high, log=where.log)
    return FloatDistribution(where.low, where.high, log=where.log)


def _round(value: Any, where: Range | Choice) -> Any:
    if isinstance(where, Choice) or isinstance(value, int):
        return value
    return min(max(float(f"{value:.4g}"), where.low), where.high)
