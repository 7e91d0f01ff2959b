"""Agent Markov models by enumeration of every sequence of intents, in NumPy, written apart from the package."""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, logsumexp


class Trace(NamedTuple):
    states: list[int]
    actions: list[int]  # -1 where missing
    stay: list[int]  # of each step that is left: 1, 0, -1


def paths_of(trace, num_intents):
    return itertools.product(range(num_intents), repeat=len(trace.states))


def log_evidence_factor(trace, path, accuracy):
    """What was said of the intents along a path, in logs."""
    total = 0.0
    for t, said in enumerate(trace.stay):
        if said >= 0 and accuracy is not None:
            right = (path[t] == path[t + 1]) == (said == 1)
            with np.errstate(divide="ignore"):
                total += np.log(accuracy if right else 1 - accuracy)
    return total


def counts_of(trace, path, num_states, num_actions, num_intents):
    """Counts of one path: initial (intent + 1), transition (state, action + 1, intent, intent + 1), policy."""
    initial = np.zeros(num_intents + 1)
    transition = np.zeros((num_states, num_actions + 1, num_intents, num_intents + 1))
    policy = np.zeros((num_intents, num_states, num_actions))
    initial[path[0]] += 1
    for t, (s, a) in enumerate(zip(trace.states, trace.actions, strict=True)):
        if a >= 0:
            policy[path[t], s, a] += 1
        if t + 1 < len(trace.states):
            transition[s, a, path[t], path[t + 1]] += 1  # a of -1 is the last: missing
    return initial, transition, policy


def local_step(traces, log_initial, log_transition, log_policy, accuracy):
    """Summed log normaliser and expected counts under log potentials, by enumeration."""
    num_intents, num_states, num_actions = log_policy.shape
    value, totals = 0.0, None
    for trace in traces:
        logs, parts = [], []
        for path in paths_of(trace, num_intents):
            n = counts_of(trace, path, num_states, num_actions, num_intents)
            weight = log_evidence_factor(trace, path, accuracy)
            for count, log in zip(n, (log_initial, log_transition, log_policy), strict=True):
                weight += np.sum(count[count > 0] * log[count > 0])
            logs.append(weight)
            parts.append(n)
        log_z = logsumexp(logs)
        value += log_z
        share = np.exp(np.array(logs) - log_z)
        each = [np.tensordot(share, np.stack(part), 1) for part in zip(*parts, strict=True)]
        totals = each if totals is None else [x + y for x, y in zip(totals, each, strict=True)]
    return value, totals


def expected_log(concentration):
    return digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))


def log_beta(concentration):
    return gammaln(concentration).sum(-1) - gammaln(concentration.sum(-1))


def log_marginal(traces, alpha, beta, rho, num_states, num_actions, accuracy=None):
    """Exact log evidence of all traces with fixed weights, intents within the truncation."""
    num_intents = len(beta) - 1
    logs = []
    for paths in itertools.product(*(list(paths_of(trace, num_intents)) for trace in traces)):
        n = [
            counts_of(trace, path, num_states, num_actions, num_intents)
            for trace, path in zip(traces, paths, strict=True)
        ]
        initial, transition, policy = (sum(part) for part in zip(*n, strict=True))
        weight = sum(log_evidence_factor(t, p, accuracy) for t, p in zip(traces, paths, strict=True))
        for count, prior in ((initial, alpha * beta), (transition, alpha * beta), (policy, rho)):
            prior = np.broadcast_to(prior, count.shape)
            weight += np.sum(log_beta(prior + count) - log_beta(prior))
        logs.append(weight)
    return logsumexp(logs)
