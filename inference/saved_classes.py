"""Classes that files may hold, by tags that say the subpackage and the name: ``ethogram.models.roles.RoleHMM``.

Any model object, named tuple or distribution of ``ethogram.models`` and ``ethogram.inference`` may be saved; reading
one imports its subpackage. Model objects that a user has defined are recorded as ``module:Name``, and no module is
imported for them: a file must not run code of its own choice.
"""

from __future__ import annotations

import dataclasses
import sys
from importlib import import_module

import numpyro.distributions
from numpyro.distributions import Distribution

from ethogram.models.model_object import DEFINED

__all__ = ["find_class", "find_distribution", "tag_of"]

PACKAGE = "ethogram"
LAYERS = (f"{PACKAGE}.models.", f"{PACKAGE}.inference.")
DEPTH = 3
"""Parts of the name of a subpackage. Modules within it are no part of tags: classes may move from one to another."""


def tag_of(cls: type) -> str | None:
    """The tag under which a class is recorded; None where it may not be saved."""
    module, name = cls.__module__, cls.__qualname__
    if module.partition(".")[0] == "numpyro" and issubclass(cls, Distribution):
        return f"numpyro.{name}"
    if module.startswith(LAYERS):
        return (
            ".".join([*module.split(".")[:DEPTH], name]) if _is_record(cls) and name.isidentifier() else None
        )
    return f"{module}:{name}" if f"{module}:{name}" in DEFINED else None


def find_class(recorded: str) -> type:
    """The class of a tag; a ValueError if this package has none, or no model object of the user's own is defined."""
    home, _, name = recorded.rpartition(".")
    if ":" in recorded:
        return _own_class(*recorded.split(":", 1))
    if home.startswith(LAYERS) and home.count(".") == DEPTH - 1:
        try:
            import_module(home)
        except (ImportError, ValueError):
            home = "nowhere"
        for place, module in list(sys.modules.items()):
            cls = vars(module).get(name) if place == home or place.startswith(f"{home}.") else None
            if isinstance(cls, type) and cls.__module__ == place and _is_record(cls):
                return cls
    raise ValueError(f"it refers to {recorded}, which is not a class of {PACKAGE}")


def find_distribution(recorded: str) -> type[Distribution]:
    """The distribution class of a tag of this package or of numpyro; a ValueError if it is none."""
    package, _, name = recorded.partition(".")
    found = getattr(numpyro.distributions, name, None) if package == "numpyro" else find_class(recorded)
    if not isinstance(found, type) or not issubclass(found, Distribution):
        raise ValueError(f"it refers to {recorded}, which is not a distribution")
    return found


def _is_record(cls: type) -> bool:
    return hasattr(cls, "_fields") or dataclasses.is_dataclass(cls) or issubclass(cls, Distribution)


def _own_class(module: str, name: str) -> type:
    """The model object of the user's own with this name: that of the module, or else the one defined last."""
    named = [cls for tag, cls in DEFINED.items() if not tag.startswith(LAYERS) and tag.endswith(f":{name}")]
    if not named:
        raise ValueError(
            f"it refers to {module}:{name}, which is not a class of {PACKAGE}: if it is a model of yours, define it, "
            f"or import it from {module}, before you load"
        )
    return DEFINED.get(f"{module}:{name}", named[-1])
