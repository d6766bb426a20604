"""What is searched: how it is written, what is refused, and what each method searches by itself."""

import pytest

from sfao.lab.methods import METHODS
from sfao.lab.methods.search_range import Choice, Range
from sfao.lab.run.errors import ConfigError
from sfao.lab.streams.suite import BENCHMARKS
from sfao.lab.tune.search import make_search
from sfao.lab.tune.space import choose_space, parse_search
from tests.lab.methods.scenarios import set_scenario


def choose(*texts, method="sfao", **fixed):
    search = make_search("split-mnist-5k", method, [0], fixed)
    return choose_space(search, dict(parse_search(text) for text in texts))


def test_ranges_and_choices():
    assert parse_search("options.accept_above=0:1") == ("options.accept_above", Range(0, 1))
    assert parse_search("lr=1e-4:1e-1:log") == ("lr", Range(1e-4, 0.1, log=True))
    assert parse_search("options.target=loss,logit") == ("options.target", Choice(("loss", "logit")))


@pytest.mark.parametrize(
    ("name", "where", "kind"),
    [
        ("options.capacity", "50:400:log", int),
        ("options.accept_above", "0:1", float),
        ("options.samples", "1:20", int),
        ("batch_size", "8:64", int),
        ("lr", "1:2", float),
        ("model.hidden", "8:16", int),
    ],
)
def test_whole_numbers_where_the_setting_takes_no_others(name, where, kind):
    (found,) = choose(f"{name}={where}").values()
    assert (type(found.low), type(found.high)) == (kind, kind)
    assert str(found) == where


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_what_a_method_searches_by_itself_breaks_no_rule_of_its_own(method, benchmark):
    search = make_search(benchmark, method, [0], set_scenario(method))
    if not METHODS[method].search_space:
        with pytest.raises(ConfigError, match=f"got {method}: it has no options to choose; --search names settings"):
            choose_space(search, {})
        return
    found = choose_space(search, {})
    assert list(found) == [f"options.{name}" for name in METHODS[method].search_space]


def test_what_is_given_takes_the_place_of_the_methods_own():
    assert list(choose("lr=0.1:1")) == ["lr"]
    assert list(choose("lr=0.1:1", method="sgd")) == ["lr"]


def test_what_is_fixed_is_not_searched():
    assert list(choose(**{"options.target": "loss"})) == ["options.accept_above"]
    with pytest.raises(ConfigError, match="all of its options that it searches are fixed"):
        choose(method="ewc", **{"options.strength": 3})
    with pytest.raises(ConfigError, match="`lr` must be fixed by --set or chosen by --search, got both"):
        choose("lr=0.1:1", lr=0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("options.accept_above", "`--search` must be name=low:high, .*, got 'options.accept_above'"),
        (
            "options.accept_above=1:0",
            "`--search options.accept_above` must go from a lower to a higher number, got 1:0",
        ),
        ("options.accept_above=1:1", "lower to a higher number, got 1:1"),
        ("lr=0:1:log", "`--search lr` must begin above 0 to be `log`, got 0:1:log"),
        ("lr=0:1:lin", "`--search lr` must be name=low:high, .*, got '0:1:lin'"),
        ("lr=a:b", "got 'a:b'"),
        ("lr=0:inf", "got '0:inf'"),
        ("lr=1", "got '1'"),
        ("lr=1,1", "`--search lr` must list each value once, got 1 twice"),
        ("options.acept_above=0:1", "unknown setting `options.acept_above` .did you mean 'accept_above'?"),
        ("epoch=1:2", "unknown setting `epoch` .did you mean 'epochs'?"),
        ("options.accept_above=0:2", "`accept_above` must be in .-1, 1., got 2"),
        ("options.capacity=0.5:400", "`capacity` must be a whole number of at least 1, got 0.5"),
        ("options.target=loss,lgit", "`target` must be one of .*, got 'lgit'"),
        ("lr=-1:1", "`lr`: .* greater than 0, got -1"),
        ("seed=0:9", "`seed` must be the same for all"),
        ("fraction=0.1:1", "`fraction` must be the same for all"),
    ],
)
def test_bad_searches(text, message):
    with pytest.raises(ConfigError, match=message) as refused:
        choose(text)
    assert "\n" not in str(refused.value)
