"""One fit on several devices: sequences are spread over a mesh, and parameters are on each of its devices.

Every device computes the local step of its own sequences; the ELBO and the statistics are summed over devices, once per
local step, and the global step is the same on all. Hoffman, Blei, Wang, Paisley (2013), section 2.2, whose statistics
are sums over the data.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ethogram.inference.conjugate.padded_shapes import num_steps_of, pad_batch
from ethogram.models.conjugate_model import group_size
from ethogram.models.model_object import model_object, static_field

__all__ = ["SpreadBatch", "check_mesh", "local_step", "spread", "whole"]


@model_object
class SpreadBatch:
    """An arranged batch whose sequences are spread over the devices of a mesh."""

    batch: Any
    mesh: Mesh = static_field()


def check_mesh(mesh: Any) -> None:
    """Raise TypeError or ValueError unless `mesh` is None or a mesh of one axis."""
    if mesh is None:
        return
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f'mesh is {type(mesh).__name__}: give one of jax.make_mesh, such as ((2,), ("data",))'
        )
    if len(mesh.axis_names) != 1:
        raise ValueError(f"mesh has the axes {', '.join(mesh.axis_names)}: give one axis, of all devices")


def spread(batches: list[Any], mesh: Mesh) -> list[Any]:
    """Arranged batches spread over a mesh, groups whole; empty sequences fill the devices up."""
    mesh = Mesh(mesh.devices, mesh.axis_names)
    place = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
    found = []
    for batch in batches:
        count, each = len(jax.tree.leaves(batch)[0]), mesh.size * group_size(batch)
        full = pad_batch(batch, -(-count // each) * each, num_steps_of(batch))
        found.append(SpreadBatch(jax.tree.map(lambda x: jax.device_put(x, place), full), mesh))
    return found


def whole(batch: Any) -> Any:
    """An arranged batch, be it spread or not, as one."""
    return batch.batch if isinstance(batch, SpreadBatch) else batch


def local_step(model: Any, expected: Any, batch: Any, local: Any, step: Any) -> Any:
    """The local step of a model on a batch: log normaliser, statistics, and the local state of the next iteration."""
    if not isinstance(batch, SpreadBatch):
        return model.e_step.step(expected, batch, local, step)
    (axis,) = batch.mesh.axis_names

    def own(model: Any, expected: Any, part: Any, local: Any, step: Any) -> Any:
        value, statistics, local = model.e_step.step(expected, part, local, step)
        return *jax.lax.psum((value, statistics), axis), local

    each, same = PartitionSpec(axis), PartitionSpec()
    given, found = (same, same, each, each, same), (same, same, each)
    spread_step = jax.shard_map(own, mesh=batch.mesh, in_specs=given, out_specs=found, check_vma=False)
    return spread_step(model, expected, batch.batch, local, step)
