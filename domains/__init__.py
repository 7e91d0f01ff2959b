"""Worlds that behaviour comes from, with simulators, true agents and bundled data: one module per world."""

from importlib import import_module
from types import ModuleType

__all__ = [
    "data",
    "diagnosis",
    "fluent_mdp",
    "fluent_team",
    "fluent_world",
    "football",
    "football_scenes",
    "gridworld5",
    "hard_networks",
    "highway",
    "labyrinth",
    "line_world",
    "objectworld",
    "optimal_policy",
    "predator_prey",
    "predator_prey_world",
    "rust_bus",
    "sysadmin",
    "tetris",
    "toy_chain",
    "toy_mdps",
    "toy_text",
    "two_roles",
    "uai_networks",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return __all__
