"""Certified lower bounds against enumeration, and the answer that they allow."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from ethogram.inference.networks.anytime import Clock, Incumbent, Task
from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.certified_answers import CertifiedAnswers, cutset
from ethogram.inference.networks.samples import draw_states
from ethogram.inference.networks.zero_propagation import propagate_zeros, query_factors


def task_of(query, most_cells):
    possible = propagate_zeros(query_factors(query))
    return Task(jax.random.key(0), query, possible, Incumbent(query, Clock(None)), None, most_cells)


@pytest.mark.parametrize("seed", [0, 1, 3, 5, 8])
def test_lower_bounds_are_below_the_answer_and_above_the_joint(seed, drawn, enumerated):
    network, query = drawn(seed)
    table = enumerated(network, query)
    task = task_of(query, 4)
    answers, random = CertifiedAnswers(task), np.random.default_rng(seed)
    task_scores = {}
    for _ in range(40):
        states = draw_states(random, query)
        answers.offer(states, "a sample")
        for key, found in answers.answers.items():
            assert found.lower_bound <= np.log(table[key]) + 1e-9
            task_scores[key] = found
    best = task.incumbent
    if not task_scores:
        assert best.states is None
        return
    assert best.lower_bound >= answers.best_joint
    assert math.log(table[tuple(best.states)]) >= answers.best_joint - 1e-9


def test_an_estimate_without_a_certificate_is_not_the_answer(drawn, monkeypatch):
    query = drawn(3)[1]
    task = task_of(query, 4)
    answers, random = CertifiedAnswers(task), np.random.default_rng(0)
    seen = []
    score = iter([(-0.1, "estimate")] + [(-50.0, "estimate")] * 100)
    monkeypatch.setattr(Task, "score", lambda self, states: seen.append(tuple(states)) or next(score))
    while len(answers.answers) < 4:
        answers.offer(draw_states(random, query), "a sample")
    lower = {key: each.lower_bound for key, each in answers.answers.items()}
    chosen = tuple(task.incumbent.states)
    assert lower[chosen] >= answers.best_joint
    if lower[seen[0]] < answers.best_joint:
        assert chosen != seen[0]


def test_rounding_does_not_rule_out_the_only_answer(drawn, monkeypatch):
    query = drawn(3)[1]
    task = task_of(query, 4)
    answers, random = CertifiedAnswers(task), np.random.default_rng(0)
    monkeypatch.setattr(Task, "score", lambda self, states: (answers.best_joint - 1e-13, "exact"))
    while not answers.answers:
        answers.offer(draw_states(random, query), "a sample")
    assert task.incumbent.kind == "exact"
    assert tuple(task.incumbent.states) in answers.answers


@pytest.mark.parametrize("seed", range(4))
def test_cutsets_make_sums_affordable(seed, drawn):
    possible = propagate_zeros(query_factors(drawn(seed, 10)[1]))
    factors = [factor for factor in possible.factors if factor.scope]
    sizes = {variable: len(each) for variable, each in possible.states.items()}
    for most_cells in (4, 8, 16):
        held = cutset(factors, sizes, [], most_cells)
        assert BucketTree(factors, sizes, held).cells <= most_cells
    assert not cutset(factors, sizes, [], 10**9)
