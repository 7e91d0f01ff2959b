"""Generated networks: shape, share of deterministic entries, noisy-or tables, and evidence that is possible."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import hard_networks
from ethogram.inference.networks.elimination import elimination_order
from ethogram.models.networks.bayes_net import BayesNet


@pytest.mark.parametrize("deterministic", [0.0, 0.5, 0.9, 1.0])
def test_grids_have_the_zeros_that_are_asked_for(deterministic):
    network = hard_networks.grid(jax.random.key(1), 20, deterministic)
    assert network.parents[0] == () and network.parents[1] == (0,) and network.parents[20] == (0,)
    assert network.parents[399] == (379, 398)
    rows = np.concatenate([table.reshape(-1, 2) for table in network.tables])
    np.testing.assert_allclose(rows.sum(1), 1, atol=1e-12)
    certain = np.isin(rows[:, 0], (0, 1))
    spread = 4.5 * np.sqrt(deterministic * (1 - deterministic) / len(rows))
    assert abs(certain.mean() - deterministic) <= spread
    if deterministic:
        assert 0.3 < rows[certain, 0].mean() < 0.7


def test_k_trees_have_the_width_and_tables_that_are_asked_for():
    network = hard_networks.k_tree(jax.random.key(0), 300, 4, 0.5)
    assert max(map(len, network.parents)) == 4
    assert min(map(len, network.parents[1:])) == 1
    families = [(*above, number) for number, above in enumerate(network.parents)]
    last_first = [[number] for number in reversed(range(300))]
    assert elimination_order(families, dict.fromkeys(range(300), 2), last_first).cells == 2**5
    functions = 0
    for table in network.tables[1:]:
        np.testing.assert_allclose(table.sum(-1), 1, atol=1e-12)
        certain = np.isin(table, (0, 1)).all()
        functions += certain
        if not certain:  # causes multiply the chance of no effect
            quiet = table[..., 0].reshape(-1)
            none = 1 - hard_networks.LEAK
            assert quiet[0] == pytest.approx(none)
            assert quiet[-1] == pytest.approx(
                none * np.prod([quiet[2**k] / none for k in range(table.ndim - 1)]), rel=1e-9
            )
    assert 100 < functions < 200


def test_evidence_is_possible_late_and_of_the_size_that_is_asked_for():
    network = hard_networks.k_tree(jax.random.key(3), 12, 3, 0.6)
    letters = "abcdefghijkl"
    words = ["".join(letters[v] for v in (*above, i)) for i, above in enumerate(network.parents)]
    joint = np.einsum(",".join(words) + "->" + letters, *network.tables, optimize="greedy")
    for seed in range(20):
        query = hard_networks.late_query(jax.random.key(seed), network, 0.3, 0.5)
        assert len(query.observed) == 3 and len(query.map_variables) == 4
        seen = dict(query.observed)
        assert joint[tuple(seen.get(v, slice(None)) for v in range(12))].sum() > 0
        inner = {parent for above in network.parents for parent in above}
        leaves = 12 - len(inner)
        assert sum(v not in inner for v in seen) == min(3, leaves)
        assert all(network.order.index(v) >= 6 for v in seen if v in inner)
    grid = hard_networks.grid(jax.random.key(0), 6, 0.9)
    query = hard_networks.late_query(jax.random.key(0), grid, 0.25, 0.2)
    assert 35 in dict(query.observed) and len(query.observed) == 9 and len(query.map_variables) == 5


def test_the_same_key_draws_the_same():
    first, again = (hard_networks.k_tree(jax.random.key(5), 30, 3, 0.5) for _ in range(2))
    assert first.parents == again.parents
    assert all((a == b).all() for a, b in zip(first.tables, again.tables, strict=True))
    other = hard_networks.k_tree(jax.random.key(6), 30, 3, 0.5)
    assert first.parents != other.parents
    queries = [hard_networks.late_query(jax.random.key(seed), first, 0.2, 0.5).evidence for seed in (0, 0, 1)]
    assert queries[0] == queries[1] != queries[2]


def test_small_sizes():
    assert hard_networks.grid(jax.random.key(0), 1, 0.5).parents == ((),)
    tree = hard_networks.k_tree(jax.random.key(0), 5, 1, 1.0)
    assert [len(above) for above in tree.parents] == [0, 1, 1, 1, 1]
    query = hard_networks.late_query(jax.random.key(0), tree, 0.0, 0.0)
    assert len(query.observed) == len(query.map_variables) == 1
    few = hard_networks.k_tree(jax.random.key(0), 3, 8, 0.5)
    assert few.num_variables == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda key: hard_networks.grid(key, 0, 0.5), "side must be at least 1"),
        (lambda key: hard_networks.grid(key, 3, 1.5), r"deterministic must be a share in \[0, 1\], not 1.5"),
        (lambda key: hard_networks.grid(key, 3, np.nan), r"deterministic must be a share in \[0, 1\], not nan"),
        (lambda key: hard_networks.k_tree(key, 10, 0, 0.5), "width must be at least 1"),
        (lambda key: hard_networks.k_tree(key, 0, 2, 0.5), "num_variables must be at least 1"),
        (lambda key: hard_networks.late_query(key, hard_networks.grid(key, 1, 0.5), 0.1, 0.5), "single variable"),
        (
            lambda key: hard_networks.late_query(key, hard_networks.grid(key, 3, 0.5), 0.9, 0.5),
            r"observed must be a share in \[0, 0.5\], not 0.9",
        ),
        (
            lambda key: hard_networks.late_query(key, hard_networks.grid(key, 3, 0.5), 0.1, -1.0),
            r"maximised must be a share in \[0, 1\], not -1.0",
        ),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(jax.random.key(0))


def test_bad_types_are_named():
    with pytest.raises(TypeError, match="key"):
        hard_networks.grid(np.zeros(2, np.uint32), 3, 0.5)
    with pytest.raises(TypeError, match="network"):
        hard_networks.late_query(jax.random.key(0), [], 0.1, 0.5)
    assert isinstance(hard_networks.grid(jax.random.key(0), 2, 0.5), BayesNet)
