"""Mini-batches: whole groups, equally often, and statistics that are right on average."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.inference.conjugate import problem as problem_module
from ethogram.inference.conjugate import stochastic as stochastic_module
from ethogram.inference.conjugate.mini_batches import group_layout, in_group_order, plan_batches
from ethogram.inference.conjugate.steps import BLOCK, full_steps, stochastic_steps


def test_group_order_keeps_groups_together(symbols):
    data = symbols(group=np.array([7, -1, 3, 7, -1, 3, 2**31 - 1, 3, 0], dtype=np.int32))
    data = data._replace(subject=np.arange(9, dtype=np.int32))
    ordered = in_group_order(data)
    np.testing.assert_array_equal(ordered.group, [0, 1, 1, 1, 2, 2, 3, 4, 5])
    np.testing.assert_array_equal(ordered.subject, [8, 2, 5, 7, 0, 3, 6, 1, 4])
    np.testing.assert_array_equal(ordered.lengths, data.lengths[ordered.subject])
    np.testing.assert_array_equal(in_group_order(data._replace(group=None)).group, np.arange(9))
    assert data.group[1] == -1


@pytest.mark.parametrize("max_waste", [0.999, 0.2])
def test_layout(symbols, max_waste):
    data = in_group_order(symbols())
    layout = group_layout(data, max_waste)
    assert len(layout.members) == 5
    np.testing.assert_array_equal(layout.longest, [4, 12, 9, 11, 6])
    np.testing.assert_array_equal(
        layout.members, [[0, 1, 2], [3, 4, -1], [5, -1, -1], [6, -1, -1], [7, 8, -1]]
    )
    assert layout.widths == ((12,) if max_waste > 0.9 else (6, 12))


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5])
def test_every_group_comes_equally_often_and_whole(symbols, batch_size):
    data = in_group_order(symbols())
    layout = group_layout(data, 0.2)
    num_steps = 3 * math.lcm(5, batch_size) // batch_size
    plan = plan_batches(layout, batch_size, 0, num_steps, [1, 2])
    assert plan.scale == 5 / batch_size
    assert plan.rows.shape == (num_steps, 3 * batch_size)
    counts = np.bincount(plan.rows[plan.rows >= 0], minlength=9)
    np.testing.assert_array_equal(counts, num_steps * batch_size / 5)
    for rows, width in zip(plan.rows, plan.width, strict=True):
        for slots in rows.reshape(batch_size, 3):
            assert slots.tolist() in layout.members.tolist()
        longest = max(data.lengths[rows[rows >= 0]].max(), 1)
        assert layout.widths[width] == min(size for size in layout.widths if size >= longest)
    heads = plan.rows.reshape(-1, 3)[:, 0].reshape(-1, 5)
    assert all(sorted(epoch) == layout.members[:, 0].tolist() for epoch in heads.tolist())


def test_plans_do_not_depend_on_how_they_are_cut(symbols):
    layout = group_layout(in_group_order(symbols()), 0.2)
    whole = plan_batches(layout, 2, 0, 20, [3])
    for start, stop in ((0, 7), (7, 8), (8, 20)):
        part = plan_batches(layout, 2, start, stop, [3])
        np.testing.assert_array_equal(part.rows, whole.rows[start:stop])
        np.testing.assert_array_equal(part.width, whole.width[start:stop])
    other = plan_batches(layout, 2, 0, 20, [4])
    assert not np.array_equal(other.rows, whole.rows)
    first, second = whole.rows[:5].ravel(), whole.rows[5:10].ravel()
    assert not np.array_equal(first, second)


@pytest.mark.slow
def test_compiled_steps_see_every_group_alike(symbol_model, symbols, monkeypatch):
    """Targets of one step, undone from q' = q + rho (prior + b t - q), average over an epoch to those of all data."""
    monkeypatch.setattr(problem_module, "SMALL_CELLS", 0)
    monkeypatch.setattr(stochastic_module, "MAX_WASTE", 0.2)
    model = symbol_model()
    problem = problem_module.make_problem(model, symbols())
    run = stochastic_module.plan_steps(problem, symbols(), jax.random.key(0), 1, None)
    blocks = jax.tree.map(lambda x: jnp.asarray(x)[None], model.prior())
    step_size, num_groups, empty = 0.5, len(run.layout.members), run.empty
    assert len(run.layout.widths) > 1
    targets = []
    for group in range(num_groups):
        members, sizes = run.layout.members[group], np.zeros(BLOCK)
        rows = np.full((BLOCK, len(members)), empty)
        rows[0], sizes[0] = np.where(members < 0, empty, members), step_size
        width = np.zeros(BLOCK, int)
        width[0] = np.searchsorted(run.layout.widths, run.layout.longest[group])
        moved = stochastic_steps(
            model, blocks, problem.prior, run.everything, rows, width, sizes, num_groups, run.layout.widths
        )
        targets.append(
            jax.tree.map(lambda new, old: (new - (1 - step_size) * old) / step_size, moved, blocks)
        )
    mean = jax.tree.map(lambda *parts: sum(parts) / num_groups, *targets)
    whole = full_steps(model, blocks, problem.prior, problem.batches, np.eye(BLOCK)[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), mean, whole)
