"""Tables of action frequencies against direct counting."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.models.data.action_tables import PSEUDO_COUNTS, ActionTable
from ethogram.models.data.trajectories import Trajectories

S, A = 3, 2


def drawn_traces():
    random = np.random.default_rng(0)
    states = [random.integers(S, size=length).tolist() for length in (9, 1, 5)]
    return states, [random.integers(-1, A, size=len(trace)).tolist() for trace in states]


@pytest.mark.parametrize(("order", "of"), [(0, "actions"), (1, "actions"), (2, "actions"), (2, "states")])
def test_a_table_is_what_counting_gives(order, of):
    """Frequencies and held-out scores step by step, and the pseudo-count by leaving out every step in turn."""
    states, actions = drawn_traces()
    seen = []
    for trace, taken in zip(states, actions, strict=True):
        for step, (state, action) in enumerate(zip(trace, taken, strict=True)):
            past = (taken if of == "actions" else trace)[max(step - order, 0) : step]
            before = tuple("none" if one < 0 else one for one in past)
            seen.append(((state, ("none",) * (order - len(past)) + before), action))
    seen = [(context, action) for context, action in seen if action >= 0]

    def chance(steps, context, action, weight):
        here = [taken for one, taken in steps if one == context]
        return (here.count(action) + weight) / (len(here) + weight * A)

    left_out = [
        sum(np.log(chance(seen[:i] + seen[i + 1 :], *one, weight)) for i, one in enumerate(seen))
        for weight in PSEUDO_COUNTS
    ]
    data = Trajectories.from_list(states=states, actions=actions)
    fitted = ActionTable(S, A, order, of).fit(data)
    assert fitted.pseudo_count == PSEUDO_COUNTS[int(np.argmax(left_out))]
    total = sum(np.log(chance(seen, *one, fitted.pseudo_count)) for one in seen)
    np.testing.assert_allclose(fitted.log_prob(data).sum(), total, rtol=1e-12)
    np.testing.assert_allclose(fitted.probability.sum(1), 1, rtol=1e-12)
    other = Trajectories.from_list(states=[[0, 1, 2]], actions=[[1, -1, 0]])
    past = ["none", "none"] + ([1, "none"] if of == "actions" else [0, 1])
    asked = [((0, tuple(past[2 - order : 2])), 1), ((2, tuple(past[4 - order :])), 0)]
    total = sum(np.log(chance(seen, *one, fitted.pseudo_count)) for one in asked)
    np.testing.assert_allclose(fitted.log_prob(other).sum(), total, rtol=1e-12)
