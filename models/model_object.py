"""How model objects become pytrees: priors are leaves, structure is static.

Jitted functions take model objects as arguments, so that two models of one structure share a compilation.
Construction by the user runs ``__post_init__`` and its checks; reconstruction by JAX, whose leaves may be
tracers or placeholders, does not.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, dataclass_transform

import jax

from ethogram.models.arguments import is_concrete
from ethogram.models.printing import short_repr

__all__ = ["DEFINED", "changed", "computed_once", "model_object", "static_field"]

T = TypeVar("T")

DEFINED: dict[str, type] = {}
"""Model objects that are defined, by ``module:Name``: files may hold them, and of other modules no others."""


def static_field(**options: Any) -> Any:
    """A dataclass field that is structure: hashable, compared, never traced."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(static_field,))
def model_object(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass without ``==`` that prints short, registered as a pytree."""
    cls = cls if "__repr__" in vars(cls) else short_repr(cls)
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    leaves = tuple(field.name for field in fields if not field.metadata.get("static"))
    static = tuple(field.name for field in fields if field.metadata.get("static"))

    def flatten_with_keys(obj):
        children = tuple((jax.tree_util.GetAttrKey(name), getattr(obj, name)) for name in leaves)
        return children, tuple(getattr(obj, name) for name in static)

    def flatten(obj):
        return tuple(getattr(obj, name) for name in leaves), tuple(getattr(obj, name) for name in static)

    def unflatten(structure, children):
        obj = object.__new__(cls)
        for name, value in zip(static + leaves, (*structure, *children), strict=True):
            object.__setattr__(obj, name, value)
        return obj

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    DEFINED[f"{cls.__module__}:{cls.__qualname__}"] = cls
    return cls


def changed(obj: T, kept: Sequence[str] = (), **fields: Any) -> T:
    """A copy of a model object with other fields, which are not checked again: they come from the package itself.

    Of what `computed_once` keeps, the copy has the methods that are named in `kept`, which do not read these fields.
    """
    copy = object.__new__(type(obj))
    keeps = {f"_{name}_kept" for name in kept}
    own = {name: value for name, value in vars(obj).items() if not name.endswith("_kept") or name in keeps}
    for name, value in (own | fields).items():
        object.__setattr__(copy, name, value)
    return copy


def computed_once(method: Callable[[Any], T]) -> Callable[[Any], T]:
    """A method without arguments whose value a model object keeps, unless it is traced.

    Concrete also inside jit, where the object is.
    """
    name = f"_{method.__name__}_kept"

    @functools.wraps(method)
    def kept(self: Any) -> T:
        if name not in vars(self):
            with jax.ensure_compile_time_eval():
                value = method(self)
            if not is_concrete(*jax.tree.leaves(value)):
                return value
            object.__setattr__(self, name, value)
        return vars(self)[name]

    return kept
