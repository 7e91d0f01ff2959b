"""Labels of sequences under jit: models need them concretely, so that compiled functions take them as tuples."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ethogram.models.data.trajectories import Metadata, Trajectories

__all__ = ["with_labels", "without_labels"]

LABELS = ("agent", "group", "subject")


def without_labels(data: Trajectories) -> tuple[Trajectories, tuple[tuple[int, ...] | None, ...]]:
    """Data on the device without labels, times and metadata, and their labels as tuples, which can be static."""
    labels = [getattr(data, name) for name in LABELS]
    bare = data._replace(agent=None, group=None, subject=None, times=None, metadata=Metadata())
    return jax.device_put(bare), tuple(None if x is None else tuple(np.asarray(x).tolist()) for x in labels)


def with_labels(data: Any, labels: Any) -> Any:
    """Data, traced or not, with the labels that :func:`without_labels` took off."""
    restored = [None if x is None else np.asarray(x, np.int32) for x in labels]
    return data._replace(**dict(zip(LABELS, restored, strict=True)))
