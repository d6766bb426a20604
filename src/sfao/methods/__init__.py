"""The methods that are compared, by name."""

from sfao.methods.agem import AGEM
from sfao.methods.ewc import EWC
from sfao.methods.gem import GEM
from sfao.methods.gpm import GPM
from sfao.methods.joint import Joint
from sfao.methods.method import Method, MethodOptions, Training
from sfao.methods.ogd import OGD
from sfao.methods.sfao import SFAOMethod
from sfao.methods.sgd import SGD
from sfao.methods.si import SI

__all__ = ["METHODS", "Method", "MethodOptions", "Training"]

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (SGD, Joint, EWC, SI, OGD, AGEM, GEM, GPM, SFAOMethod)
}
