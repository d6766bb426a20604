"""The methods that are compared, by name."""

from sfao.methods.agem import AGEM
from sfao.methods.gem import GEM
from sfao.methods.gpm import GPM
from sfao.methods.joint import Joint
from sfao.methods.method import Method, MethodOptions, Training
from sfao.methods.ogd import OGD
from sfao.methods.sgd import SGD

__all__ = ["METHODS", "Method", "MethodOptions", "Training"]

METHODS: dict[str, type[Method]] = {method.name: method for method in (SGD, Joint, OGD, AGEM, GEM, GPM)}
