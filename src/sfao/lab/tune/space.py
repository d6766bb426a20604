"""The space of a search: for each setting, the range or the values to choose from."""

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from sfao.lab.console import quote, shorten
from sfao.lab.methods import METHODS
from sfao.lab.methods.search_range import Choice, Range, SearchSpace
from sfao.lab.run.errors import ConfigError
from sfao.lab.safe_io import InputError, parse_yaml
from sfao.lab.tune.search import Search, check_may_vary

FORMS = "name=low:high, name=low:high:log or name=a,b"


def choose_space(search: Search, given: SearchSpace) -> SearchSpace:
    """Return {dotted name: where to look}: what is given, else the method's own options that are not fixed."""
    method = search.method
    own = {f"options.{name}": where for name, where in METHODS[method].search_space.items()}
    for name in given:
        if name in search.fixed:
            raise ConfigError(f"`{name}` must be fixed by --set or chosen by --search, got both")
    space = given or {name: where for name, where in own.items() if name not in search.fixed}
    if not space:
        reason = "all of its options that it searches are fixed" if own else "it has no options to choose"
        raise ConfigError(
            f"`method` must have something to choose, got {method}: {reason}; "
            "--search names settings, such as lr=0.001:0.1:log"
        )
    return {name: _check(name, where, search) for name, where in space.items()}


def parse_search(text: str) -> tuple[str, Range | Choice]:
    """Split `options.capacity=50:400:log` or `options.target=loss,logit` into a dotted name and where to look."""
    name, sign, where = text.partition("=")
    name, where = name.strip(), where.strip()
    if not (name and sign and where):
        raise ConfigError(f"`--search` must be {FORMS}, got {quote(text)}")
    return name, _parse_range(name, where) if ":" in where else _parse_choice(name, where)


def _parse_range(name: str, text: str) -> Range:
    low, high, *form = text.split(":")
    try:
        found = Range(_parse_number(low), _parse_number(high), log=form == ["log"])
    except ValueError:
        found = None
    if found is None or form not in ([], ["log"]):
        raise ConfigError(f"`--search {name}` must be {FORMS}, got {quote(text)}")
    if found.low >= found.high:
        raise ConfigError(f"`--search {name}` must go from a lower to a higher number, got {shorten(text, 80)}")
    if found.log and found.low <= 0:
        raise ConfigError(f"`--search {name}` must begin above 0 to be `log`, got {shorten(text, 80)}")
    return found


def _parse_number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError
    return number


def _parse_choice(name: str, text: str) -> Choice:
    try:
        values = parse_yaml(f"[{text}]")
    except InputError as error:
        raise ConfigError(f"`--search {name}`: {error}") from error
    if len(values) < 2 or any(isinstance(value, list | dict) for value in values):
        raise ConfigError(f"`--search {name}` must be {FORMS}, got {quote(text)}")
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(f"`--search {name}` must list each value once, got {value} twice")
    return Choice(tuple(values))


def _check(name: str, where: Range | Choice, search: Search) -> Range | Choice:
    """Return the range, of whole numbers where only they are allowed; refuse values that break the setting's rule."""
    check_may_vary(name)
    if isinstance(where, Range):
        kind = int if _takes_whole_numbers(name, where, search) else float
        where = replace(where, low=kind(where.low), high=kind(where.high))
    for value in where.examples:
        search.configure({name: value})
    return where


def _takes_whole_numbers(name: str, where: Range, search: Search) -> bool:
    """Tell whether the setting takes the whole numbers at the ends of the range, and none between two of them."""
    if not (float(where.low).is_integer() and float(where.high).is_integer()):
        return False
    if name.startswith("model."):  # sizes, which are checked only when the model is built
        return True
    return _is_allowed(search, {name: int(where.low)}) and not _is_allowed(search, {name: where.low + 0.5})


def _is_allowed(search: Search, chosen: Mapping[str, Any]) -> bool:
    try:
        search.configure(chosen)
    except ConfigError:
        return False
    return True
