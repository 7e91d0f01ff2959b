"""A fit that stops before it begins."""

from __future__ import annotations

import pytest

from ethogram.commands import fit_results


@pytest.fixture
def reached(monkeypatch):
    """What `fit` is called with, in place of a fit."""
    seen = {}

    def stop(key, model, data, method, **settings):
        seen.update(model=model, data=data, method=method, settings=settings)
        raise ValueError("not fitted")

    monkeypatch.setattr(fit_results, "fit", stop)
    return seen
