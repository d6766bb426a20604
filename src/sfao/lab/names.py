"""Things chosen by name: ours, those of installed packages (entry points), and `module:attribute` for your own."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, signature
from operator import attrgetter
from typing import Any, TypeVar

from sfao.checks import check_choice

Thing = TypeVar("Thing")


class Registry(dict[str, Thing]):
    """The things of one kind: a dict of the built-in ones, and those that were loaded by name.

    Only `load` imports: it is for names that the user typed. `find` is for names from anywhere, such as a record or a
    file of settings: it returns built-in things and those that are loaded already. Both raise a ValueError that starts
    with `argument` for a name that leads nowhere.

    Args:
        noun: the argument that the things are for, for errors.
        group: the entry point group in which packages announce theirs.
        adapt: returns what was found under a name as a thing of this kind; a TypeError says what it must be.
        ours: the built-in things.
    """

    def __init__(self, noun: str, group: str, adapt: Callable[[Any, str], Thing], ours: Mapping[str, Thing]) -> None:
        super().__init__(ours)
        self._noun, self._group, self._adapt = noun, group, adapt
        self._loaded: dict[str, Thing] = {}

    def __missing__(self, name: str) -> Thing:
        return self.find(self._noun, name)

    def find(self, argument: str, name: str) -> Thing:
        """Return a built-in or loaded thing; import nothing."""
        if name in self:
            return self[name]
        if name in self._loaded:
            return self._loaded[name]
        if is_own(name):
            raise ValueError(
                f"`{argument}` {name!r} is code that a file names, which is not imported; "
                "name it on the command line too, if you trust it"
            )
        self._check_known(argument, name)
        raise ValueError(f"`{argument}` {name!r} is of an installed package; name it on the command line to load it")

    def load(self, argument: str, name: str) -> Thing:
        """Return the thing of a name that the user typed; import it if it is not built in."""
        if name not in self and name not in self._loaded:
            target = name if is_own(name) else self._find_entry_points().get(name)
            if target is None:
                self._check_known(argument, name)
            else:
                self._loaded[name] = self.adapt(argument, name, _import(argument, name, target))
        return self.find(argument, name)

    def is_known(self, name: object) -> bool:
        """Return whether a name is built in or has been loaded."""
        return isinstance(name, str) and (name in self or name in self._loaded)

    def list_all(self) -> tuple[str, ...]:
        """Return our own names and those of installed packages."""
        return tuple(dict.fromkeys((*self, *self._find_entry_points())))

    @contextmanager
    def override(self, things: Mapping[str, Any]) -> Iterator[None]:
        """Know these things, adapted, by these names while the context is open."""
        hidden = {name: self[name] for name in things if name in self}
        self.update({name: self.adapt(self._noun, name, thing) for name, thing in things.items()})
        try:
            yield
        finally:
            for name in things:
                del self[name]
            self.update(hidden)

    def adapt(self, argument: str, name: str, found: object) -> Thing:
        """Return what was found, or given, as a thing of this kind; else raise a ValueError."""
        try:
            return self._adapt(found, name)
        except TypeError as error:
            raise ValueError(f"`{argument}` {name!r} {error}") from error

    def _check_known(self, argument: str, name: str) -> None:
        try:
            check_choice(argument, name, self.list_all())
        except ValueError as error:
            raise ValueError(f"{error}; your own is module:attribute") from None

    def _find_entry_points(self) -> dict[str, str]:
        from importlib.metadata import entry_points  # `--help` does without it

        return {point.name: point.value for point in entry_points(group=self._group)}


def is_own(name: object) -> bool:
    """Return whether a name is `module:attribute`."""
    return isinstance(name, str) and all(name.partition(":"))


def name_folder(name: str) -> str:
    """Return a name as the name of a folder: not every system allows a colon."""
    return name.replace(":", ".")


def read_parameters(found: Callable[..., Any]) -> list[Parameter]:
    """Return the named parameters, without `*args` and `**kwargs`; raise a TypeError if they are unknown."""
    try:
        every = signature(found).parameters.values()
    except (TypeError, ValueError) as error:  # written in C
        raise TypeError("must have parameters that can be read, got none") from error
    return [one for one in every if one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]


def _import(argument: str, name: str, target: str) -> object:
    """Import `module:attribute`, from the current folder too, like `python -m`."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    module, _, attribute = target.partition(":")
    try:
        holder = import_module(module)
    except (Exception, SystemExit) as error:  # a module of the user's may fail in any way
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"`{argument}` {name!r} cannot be imported: {type(error).__name__}: {said}") from error
    try:
        return attrgetter(attribute)(holder)
    except AttributeError:
        raise ValueError(f"`{argument}` {name!r} cannot be found: module {module!r} has no {attribute!r}") from None
