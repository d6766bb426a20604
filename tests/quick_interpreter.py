"""Triton's interpreter, with what it works out again for every value of a kernel worked out once.

Nothing is left out: integers are checked for overflow as before, but by numpy instead of by the kernel's own language.
"""

import builtins
import operator
from functools import cache
from inspect import getattr_static
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from triton import language
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

OPERATIONS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}

_patch_language = interpreter._patch_lang
_find_numpy_type = interpreter._get_np_dtype
_make_constant = TritonSemantic.scalar_constant
_equals = core.dtype.__eq__
_patches: dict[FunctionType, list[tuple[Any, str, Any]]] = {}
_numpy_types: dict[str, np.dtype] = {}
_constants: dict[tuple[type, object, str], core.tensor] = {}


def hasten() -> None:
    """Let the interpreter remember types, shapes and constants from here on."""
    interpreter._patch_lang = patch_once
    interpreter._get_np_dtype = find_numpy_type
    core.dtype.__eq__ = lambda one, other: one is other or _equals(one, other)
    core.tensor.__init__ = make_tensor
    core.block_type.__init__ = make_block_type
    TritonSemantic.scalar_constant = make_constant
    TritonSemantic.binary_op_sanitize_overflow_impl = check_overflow


def patch_once(function: FunctionType) -> Any:
    """Prepare Triton's language for its interpreter, unless it is prepared.

    The interpreter does so at every call inside a kernel too, which takes a third of its time.
    """
    if not any(core.is_builtin(module.load) for module in _list_languages(function)):
        return interpreter._LangPatchScope()
    if function not in _patches:
        scope = _patch_language(function)
        _patches[function] = [(owner, name, getattr_static(owner, name)) for owner, name, _ in scope._changes]
        return scope
    scope = interpreter._LangPatchScope()
    for change in _patches[function]:
        scope.set_attr(*change)
    return scope


@cache
def _list_languages(function: FunctionType) -> list[ModuleType]:
    modules = [value for value in function.__globals__.values() if isinstance(value, ModuleType)]
    return [module for module in modules if module in (language, core)]


def find_numpy_type(kind: core.dtype) -> np.dtype:
    if kind.name not in _numpy_types:
        _numpy_types[kind.name] = _find_numpy_type(kind)
    return _numpy_types[kind.name]


def make_tensor(self: core.tensor, handle: interpreter.TensorHandle, type: core.dtype) -> None:
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.shape, self.numel = _make_shape(builtins.tuple(type.shape.values) if type.is_block() else ())


@cache
def _make_shape(sizes: builtins.tuple[int, ...]) -> tuple[core.tuple, core.constexpr]:
    return core.tuple([core.constexpr(size) for size in sizes]), core.constexpr(int(np.prod(sizes)))


def make_block_type(self: core.block_type, element_ty: core.dtype, shape: Any) -> None:
    values = shape.values if isinstance(shape, core.tuple) else shape
    sizes = builtins.tuple([size.value if isinstance(size, core.constexpr) else size for size in values])
    self.element_ty = element_ty
    self.shape, self.numel, self.name = _describe_block(sizes, str(element_ty))


@cache
def _describe_block(sizes: builtins.tuple[int, ...], element: str) -> tuple[core.tuple, int, str]:
    if not sizes:
        raise TypeError("0d block_type is forbidden")
    shape = core.tuple(sizes)
    return shape, core.validate_block_shape(shape), f"<{shape}, {element}>"


def make_constant(self: TritonSemantic, value: Any, dtype: core.dtype) -> core.tensor:
    """Return the one tensor of a constant; its data cannot be written to."""
    key = (type(value), value, str(dtype))
    if key not in _constants:
        made = _make_constant(self, value, dtype)
        made.handle.data.flags.writeable = False
        _constants[key] = made
    return _constants[key]


def check_overflow(self: TritonSemantic, left: core.tensor, right: core.tensor, operation: Any) -> None:
    """Compute in 64 bits, and compare with what the type of both holds."""
    kind = left.type.scalar
    assert kind == right.type.scalar
    if kind.int_bitwidth < 64 and self.builder.options.sanitize_overflow:
        found = OPERATIONS[operation.__name__](*(side.handle.data.astype(np.int64) for side in (left, right)))
        inside = kind.get_int_min_value() <= found.min() and found.max() <= kind.get_int_max_value()
        assert inside, f"int{kind.int_bitwidth} overflow detected for operation {operation.__name__}"
