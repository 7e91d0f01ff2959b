r"""The Markov chain of a policy, and its linear systems :math:`(I - \gamma P_\pi)\, x = b`.

With a discount near one such a system is nearly singular along one direction that is known: rows of P sum to one, so
a constant is multiplied by :math:`1 - \gamma`. Solutions have the form :math:`x = e + k\,\bar e\, 1` with
:math:`k = \gamma / (1 - \gamma)` and the mean :math:`\bar e`, where e solves the system of the matrix

.. math:: G = I - \gamma P_\pi + g\, 1^\top\!/S, \qquad g = k\, (I - \gamma P_\pi)\, 1

whose condition number depends on the mixing of the chain, not on the discount (cf. Puterman 1994, section 6.6, on
relative values; BiCGSTAB is van der Vorst's, 1992). Transposed, :math:`(I - \gamma P_\pi)^\top y
= b` is :math:`G^\top y = b + k\, \bar b\, 1`. Lower discounts need none of this, and take k = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import sequential_vmap
from jax.scipy.sparse.linalg import bicgstab

__all__ = ["WRITTEN_OUT", "DenseChain", "ListChain", "PolicySystem", "add_up"]

WRITTEN_OUT = 32
"""Sums of up to this many terms are unrolled: XLA fuses those, and is several times slower in reductions."""

KRYLOV_STEPS = 400
"""Iterations of BiCGSTAB before it restarts."""

ROUNDS = 40

LIFTED_BELOW = 0.005
"""Lift of systems where one minus the discount is below this: it saves iterations there, and costs a reduction each."""


class DenseChain(NamedTuple):
    """P (state, next state)."""

    table: Array

    def matrix(self) -> Array:
        return self.table

    def forward(self) -> Callable[[Array], Array]:
        """Multiplication by P."""
        return lambda x: jnp.matmul(self.table, x, precision="highest")

    def backward(self) -> Callable[[Array], Array]:
        """Multiplication by the transpose of P."""
        return lambda x: jnp.matmul(x, self.table, precision="highest")


class ListChain(NamedTuple):
    """P as lists of weights and next states, both (slot, state), and of predecessors.

    `entering (slot, state)` has places in the flattened weights, or their size where there is none; it may be None.
    """

    neighbours: Any
    weights: Array
    entering: Any

    def matrix(self) -> Array:
        num_states = self.weights.shape[1]
        table = jnp.zeros((num_states, num_states), self.weights.dtype)
        return table.at[jnp.arange(num_states)[None], self.neighbours].add(self.weights)

    def forward(self) -> Callable[[Array], Array]:
        """Multiplication by P."""
        return lambda x: add_up(lambda i: self.weights[i] * x[self.neighbours[i]], len(self.weights))

    def backward(self) -> Callable[[Array], Array]:
        """Multiplication by the transpose of P."""
        if self.entering is None:
            nothing = jnp.zeros_like(self.weights[0])
            return lambda x: nothing.at[self.neighbours].add(self.weights * x[None])
        arriving = self.weights.reshape(-1).at[self.entering].get(mode="fill", fill_value=0)
        return ListChain(self.entering % self.weights.shape[1], arriving, None).forward()


def add_up(part: Callable[[Any], Array], count: int) -> Array:
    """Sum of the parts 0, ..., count - 1."""
    if count <= WRITTEN_OUT:
        total = part(0)
        for i in range(1, count):
            total += part(i)
        return total
    return lax.fori_loop(1, count, lambda i, total: total + part(i), part(0))


class PolicySystem(NamedTuple):
    """The system of one policy."""

    chain: DenseChain | ListChain  # P
    discount: Array  # gamma
    interest: Array  # 1 - gamma, computed in double precision
    excess: Array  # P 1 - 1 (state,), row sums minus one

    def factored(self, b: Array) -> tuple[Array, Array]:
        """A constant and a remainder (state,), whose sum is the solution."""
        return self._lifted(jnp.linalg.solve(self._matrix(), b))

    def roughly(self, b: Array, tol: Any, atol: Any) -> tuple[tuple[Array, Array], Array]:
        """As :meth:`factored`, by BiCGSTAB to the relative residual `tol` or to `atol`; and whether it was halved."""
        times = self._forward()
        rest = bicgstab(times, b, tol=tol, atol=atol, maxiter=KRYLOV_STEPS)[0]
        # Not so for NaN, the sign of a breakdown.
        return self._lifted(rest), _norm(b - times(rest)) <= 0.5 * _norm(b)

    def solve(self, b: Array, tol: Any, direct: bool) -> Array:
        """Solution (state,); by BiCGSTAB, unless `direct`, to the relative residual `tol` or the limit of rounding."""
        constant, rest = self.factored(b) if direct else self._lifted(_iterate_forward(self, b, tol))
        return constant + rest

    def solve_transposed(self, b: Array, tol: Any, direct: bool) -> Array:
        """Solution (state,) of the transposed system."""
        b = b + self._lift() * jnp.mean(b)
        return jnp.linalg.solve(self._matrix().T, b) if direct else _iterate_backward(self, b, tol)

    def _lifted(self, rest: Array) -> tuple[Array, Array]:
        return self._lift() * jnp.mean(rest), rest

    def _near_one(self) -> Array:
        return self.interest < LIFTED_BELOW

    def _lift(self) -> Array:
        return jnp.where(self._near_one(), self.discount / self.interest, 0)

    def _gain(self) -> Array:
        return self._lift() * (self.interest - self.discount * self.excess)

    def _matrix(self) -> Array:
        table = self.chain.matrix()
        identity = jnp.eye(len(table), dtype=table.dtype)
        return identity - self.discount * table + self._gain()[:, None] / len(table)

    def _forward(self) -> Callable[[Array], Array]:
        times, gain = self.chain.forward(), self._gain()
        return lambda x: self._added(lambda x: gain * jnp.mean(x), x) - self.discount * times(x)

    def _backward(self) -> Callable[[Array], Array]:
        times, gain = self.chain.backward(), self._gain() / len(self.excess)
        return lambda x: self._added(lambda x: jnp.dot(gain, x), x) - self.discount * times(x)

    def _added(self, lift: Callable[[Array], Array], x: Array) -> Array:
        """The sum of x and its lift, where there is one: a branch, so that the reduction costs nothing elsewhere."""
        return lax.cond(self._near_one(), lambda x: x + lift(x), lambda x: x, x)


# One after the other where mapped: a batch of loops runs until its slowest is through, and gathers worse.
@sequential_vmap
def _iterate_forward(system, b, tol):
    return _iterate(system._forward(), b, tol, system.interest)


@sequential_vmap
def _iterate_backward(system, b, tol):
    return _iterate(system._backward(), b, tol, system.interest)


def _iterate(times: Callable[[Array], Array], b: Array, tol: Any, interest: Array) -> Array:
    """Solution of ``times(x) = b`` by BiCGSTAB, and by plain sweeps ``x + b - times(x)`` wherever that stalls.

    Sweeps always converge, in about 1 / interest of them a digit. Iterations stop at the relative residual `tol`, or at
    the limit of rounding.
    """
    eps = jnp.finfo(b.dtype).eps
    goal = tol * _norm(b)
    patience = jnp.ceil(4 / interest) + 10

    def unfinished(state):
        x, _, size, before, rounds = state
        return (size > jnp.maximum(goal, 8 * eps * _norm(x))) & (size <= 0.5 * before) & (rounds < ROUNDS)

    def improve(state):
        x, rest, size, _, rounds = state
        step = bicgstab(times, rest, tol=0.5 * goal / size, maxiter=KRYLOV_STEPS)[0]
        there = b - times(x + step)
        better = _norm(there) <= 0.5 * size
        x, rest = jnp.where(better, x + step, x), jnp.where(better, there, rest)

        def stalls(state):
            return ~better & (_norm(state[1]) > 0.1 * size) & (state[2] < patience)

        x, rest, _ = lax.while_loop(stalls, sweep, (x, rest, jnp.zeros((), patience.dtype)))
        return x, rest, _norm(rest), size, rounds + 1

    def sweep(state):
        x, rest, count = state
        x = x + rest
        return x, b - times(x), count + 1

    size = _norm(b)
    start = (jnp.zeros_like(b), b, size, jnp.full_like(size, jnp.inf), 0)
    return lax.while_loop(unfinished, improve, start)[0]


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.square(x)))
