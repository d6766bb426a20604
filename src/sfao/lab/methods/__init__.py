"""The methods that are compared, by name."""

from typing import Any

from sfao.lab.methods.agem import AGEM
from sfao.lab.methods.derpp import DERPP
from sfao.lab.methods.drift_bound import DriftBoundMethod
from sfao.lab.methods.er import ER
from sfao.lab.methods.ewc import EWC
from sfao.lab.methods.gem import GEM
from sfao.lab.methods.gpm import GPM
from sfao.lab.methods.joint import Joint
from sfao.lab.methods.lwf import LwF
from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.ogd import OGD
from sfao.lab.methods.sfao import SFAOMethod
from sfao.lab.methods.sgd import SGD
from sfao.lab.methods.sgp import SGP
from sfao.lab.methods.si import SI
from sfao.lab.methods.trgp import TRGP
from sfao.lab.names import Registry

__all__ = ["METHODS", "Method", "MethodOptions", "Training"]


def check_method(found: Any, name: str) -> type[Method]:
    """Return a class of one's own that is a method; else raise a TypeError."""
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise TypeError(f"must be a class derived from sfao.lab.methods.Method, got {found!r}")
    if not (isinstance(found.Options, type) and issubclass(found.Options, MethodOptions)):
        raise TypeError(f"must have Options derived from sfao.lab.methods.MethodOptions, got {found.Options!r}")
    return found


#: In the order of tables.
OURS = (SGD, Joint, EWC, SI, LwF, OGD, AGEM, GEM, ER, DERPP, GPM, SGP, TRGP, SFAOMethod, DriftBoundMethod)
METHODS: Registry[type[Method]] = Registry(
    "method", "sfao.methods", check_method, {method.name: method for method in OURS}
)
