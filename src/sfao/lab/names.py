"""Things that are chosen by name: ours, those of installed packages, and `module:attribute` for one's own."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from sfao.checks import check_choice

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

Thing = TypeVar("Thing")


class Names(dict[str, Thing]):
    """The things of one kind: a dict of the built-in ones, and those that were loaded by name.

    Only `load` imports: it is for names that the user typed. `find` is for names from anywhere, such as a record or a
    file of settings: it returns built-in things and those that are loaded already, and never imports.

    `group` is the entry point group in which packages announce theirs. `adapt` returns what was found as a thing of
    this kind, or raises a TypeError that says what it must be. A name that leads nowhere is a ValueError that names it.
    """

    def __init__(self, noun: str, group: str, adapt: Callable[[Any, str], Thing], ours: Mapping[str, Thing]) -> None:
        super().__init__(ours)
        self._noun, self._group, self._adapt = noun, group, adapt
        self._found: dict[str, Thing] = {}

    def __missing__(self, name: str) -> Thing:
        return self.find(self._noun, name)

    def find(self, argument: str, name: str) -> Thing:
        """Return a built-in or loaded thing, or raise a ValueError that starts with `argument`; import nothing."""
        if name in self:
            return self[name]
        if name in self._found:
            return self._found[name]
        if is_own(name):
            raise ValueError(
                f"`{argument}` {name!r} is code that a file names, which is not imported; "
                "name it on the command line too, if you trust it"
            )
        raise self._explain(argument, name)

    def load(self, argument: str, name: str) -> Thing:
        """Return what a name that the user typed stands for, and import it if it is not built in."""
        if name not in self and name not in self._found:
            self._found[name] = self._import(argument, name)
        return self.find(argument, name)

    def is_known(self, name: object) -> bool:
        """Tell whether a name is built in or has been loaded."""
        return isinstance(name, str) and (name in self or name in self._found)

    def list_all(self) -> tuple[str, ...]:
        """Return our own names and those of installed packages."""
        return tuple(dict.fromkeys((*self, *(point.name for point in _find_entry_points(self._group)))))

    @contextmanager
    def lend(self, things: Mapping[str, Any]) -> Iterator[None]:
        """Know these things, adapted, by these names as well, as long as the context is open."""
        hidden = {name: self[name] for name in things if name in self}
        self.update({name: self.adapt(self._noun, name, thing) for name, thing in things.items()})
        try:
            yield
        finally:
            for name in things:
                del self[name]
            self.update(hidden)

    def _import(self, argument: str, name: str) -> Thing:
        points = [point for point in _find_entry_points(self._group) if point.name == name]
        if not points and not is_own(name):
            raise self._explain(argument, name)
        if len({point.value for point in points}) > 1:
            said = " and ".join(point.value for point in points)
            raise ValueError(f"`{argument}` must be one thing, but {name!r} is announced as {said}")
        point = points[0] if points else _make_entry_point(name, self._group)
        return self.adapt(argument, name, _load(argument, name, point))

    def _explain(self, argument: str, name: str) -> ValueError:
        try:
            check_choice(argument, name, self.list_all())
        except ValueError as error:
            return ValueError(f"{error}; your own is module:attribute")
        return ValueError(f"`{argument}` {name!r} is of an installed package; name it on the command line to load it")

    def adapt(self, argument: str, name: str, found: object) -> Thing:
        """Return something that was found, or given, as a thing of this kind; else raise a ValueError."""
        try:
            return self._adapt(found, name)
        except TypeError as error:
            raise ValueError(f"`{argument}` {name!r} {error}") from error


def is_own(name: object) -> bool:
    """Tell whether a name is `module:attribute`."""
    return isinstance(name, str) and all(name.partition(":"))


def name_folder(name: str) -> str:
    """Return a name as the name of a folder: a colon cannot be in one everywhere."""
    return name.replace(":", ".")


def read_parameters(found: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters that have names, `*args` and `**kwargs` left out; raise a TypeError if they are unknown."""
    try:
        every = signature(found).parameters.values()
    except (TypeError, ValueError) as error:  # written in C
        raise TypeError("must have parameters that can be read, got none") from error
    return [one for one in every if one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]


# Imported where they are needed: `--help` needs none of it.


def _find_entry_points(group: str) -> "EntryPoints":
    from importlib.metadata import entry_points

    return entry_points(group=group)


def _make_entry_point(name: str, group: str) -> "EntryPoint":
    from importlib.metadata import EntryPoint

    return EntryPoint(name, name, group)


def _load(argument: str, name: str, point: "EntryPoint") -> object:
    """Import what an entry point, or `module:attribute`, leads to, from the current folder too, like `python -m`."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    module, _, attribute = point.value.partition(":")
    try:
        holder = import_module(module)
    except (Exception, SystemExit) as error:  # a module of the user's may fail in any way
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"`{argument}` {name!r} cannot be imported: {type(error).__name__}: {said}") from error
    try:
        return attrgetter(attribute)(holder)
    except AttributeError:
        raise ValueError(f"`{argument}` {name!r} cannot be found: module {module!r} has no {attribute!r}") from None
