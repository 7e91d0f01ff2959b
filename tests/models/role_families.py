"""Conjugate emissions as books print them: expected densities, updates, divergences, marginals.

All in usual parameters and float64 NumPy, states on the leading axis; ``error=`` names a misprint, as
`role_oracle` lists them. Formulas: Murphy (2007), Bishop (2006, chapter 10).
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln, multigammaln

NIW = ("mean", "strength", "dof", "scale")


def dirichlet_kl(q, p):
    """KL of Dirichlet rows; entries that are zero in both are forbidden and count for nothing."""
    total = 0.0
    for a, b in zip(q.reshape(-1, q.shape[-1]), p.reshape(-1, p.shape[-1]), strict=True):
        a, b = a[b > 0], b[b > 0]
        total += gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum()
        total += ((a - b) * (digamma(a) - digamma(a.sum()))).sum()
    return total


def expected_log(concentration):
    """Psi(a) - psi(sum a), -inf where a is zero."""
    with np.errstate(invalid="ignore"):
        each = np.where(concentration > 0, digamma(np.where(concentration > 0, concentration, 1)), -np.inf)
    return each - digamma(concentration.sum(-1, keepdims=True))


def dirichlet_multinomial(counts, concentration):
    """Log probability of label counts (..., category) in a given order; impossible counts give -inf."""
    some = concentration > 0
    safe = np.where(some, concentration, 1)
    each = np.where(some, gammaln(safe + counts) - gammaln(safe), np.where(counts > 0, -np.inf, 0))
    total = concentration.sum(-1)
    return each.sum(-1) + gammaln(total) - gammaln(total + counts.sum(-1))


class Gaussian:
    """Normal-inverse-Wishart: mean (state, D), strength, dof (state,), scale (state, D, D). Murphy (2007)."""

    num_components = None

    def log_likelihood(self, q, x, error=None):
        size = x.shape[1]
        out = np.empty((len(x), *q["strength"].shape))
        for k in np.ndindex(q["strength"].shape):
            kappa, nu, psi = q["strength"][k], q["dof"][k], q["scale"][k]
            log_precision = digamma((nu + 1 - np.arange(1, size + 1)) / 2).sum() + size * np.log(2)
            log_precision -= np.linalg.slogdet(psi)[1]
            gap = x - q["mean"][k]
            distance = size / kappa + nu * np.einsum("ni,ij,nj->n", gap, np.linalg.inv(psi), gap)
            out[(slice(None), *k)] = 0.5 * (log_precision - distance)
        return out - (0 if error == "two_pi" else 0.5 * size * np.log(2 * np.pi))

    def update(self, prior, x, weight, error=None):
        q = {name: np.empty_like(part) for name, part in prior.items()}
        for k in np.ndindex(prior["strength"].shape):
            kappa0, nu0, m0, psi0 = (prior[name][k] for name in ("strength", "dof", "mean", "scale"))
            w = weight[(slice(None), *k)]
            count = weight.sum() if error == "counts" else w.sum()
            mean = (kappa0 * m0 + w @ x) / (kappa0 + count)
            scatter = psi0 + kappa0 * np.outer(m0, m0) + np.einsum("n,ni,nj->ij", w, x, x)
            q["mean"][k], q["strength"][k], q["dof"][k] = mean, kappa0 + count, nu0 + count
            q["scale"][k] = scatter - (kappa0 + count) * np.outer(mean, mean)
            if error != "counts" and count > 0:  # the same in its centred form
                centre = w @ x / count
                spread = np.einsum("n,ni,nj->ij", w, x - centre, x - centre)
                shift = kappa0 * count / (kappa0 + count) * np.outer(centre - m0, centre - m0)
                q["scale"][k] = psi0 + spread + shift
        return q

    def mix(self, old, new, rho, usual=False):
        if usual:
            return {name: (1 - rho) * old[name] + rho * new[name] for name in old}

        def natural(q):
            kappa = q["strength"][..., None]
            outer = np.einsum("...i,...j->...ij", q["mean"], q["mean"])
            return kappa * q["mean"], q["strength"], q["dof"], q["scale"] + kappa[..., None] * outer

        first, kappa, nu, second = (
            (1 - rho) * a + rho * b for a, b in zip(natural(old), natural(new), strict=True)
        )
        mean = first / kappa[..., None]
        outer = np.einsum("...i,...j->...ij", mean, mean)
        return {"mean": mean, "strength": kappa, "dof": nu, "scale": second - kappa[..., None, None] * outer}

    def kl(self, q, p):
        total = 0.0
        for k in np.ndindex(q["strength"].shape):
            (k1, v1, m1, s1), (k0, v0, m0, s0) = (
                [z[name][k] for name in ("strength", "dof", "mean", "scale")] for z in (q, p)
            )
            size, inverse = len(m1), np.linalg.inv(s1)
            logdets = np.linalg.slogdet(s1)[1] - np.linalg.slogdet(s0)[1]
            total += 0.5 * (
                size * (k0 / k1 - 1 - np.log(k0 / k1)) + k0 * v1 * (m1 - m0) @ inverse @ (m1 - m0)
            )
            total += 0.5 * v0 * logdets + 0.5 * v1 * (np.trace(s0 @ inverse) - size)
            total += multigammaln(v0 / 2, size) - multigammaln(v1 / 2, size)
            total += 0.5 * (v1 - v0) * digamma((v1 + 1 - np.arange(1, size + 1)) / 2).sum()
        return total

    def sums(self, x, weight, origin):
        """Weighted sums of x, 1, 1 and x x' of every state, x relative to an origin."""
        x, count = x - origin, weight.sum(0)
        first, second = np.einsum("n...,ni->...i", weight, x), np.einsum("n...,ni,nj->...ij", weight, x, x)
        return {"mean_covariance": (first, count, count, second)}

    def log_marginal(self, prior, k, x):
        one = {name: part[k][None] for name, part in prior.items()}
        q, size = Gaussian.update(self, one, x, np.ones((len(x), 1))), x.shape[1]

        def log_partition(z):
            nu = z["dof"][0]
            return (
                multigammaln(nu / 2, size)
                - 0.5 * nu * np.linalg.slogdet(z["scale"][0])[1]
                - 0.5 * size * np.log(z["strength"][0])
            )

        return log_partition(q) - log_partition(one) - 0.5 * len(x) * size * np.log(np.pi)


class KnownCovariance:
    """Normal prior of means: mean (state, D), variance V (state, D, D); observations have covariance R."""

    num_components = None

    def __init__(self, covariance):
        self.covariance = np.asarray(covariance, float)

    def log_likelihood(self, q, x, error=None):
        size, precision = x.shape[1], np.linalg.inv(self.covariance)
        gap = x[:, None] - q["mean"]
        distance = np.einsum("nki,ij,nkj->nk", gap, precision, gap)
        distance = distance + np.einsum("ij,kji->k", precision, q["variance"])
        constant = np.linalg.slogdet(self.covariance)[1] + (
            0 if error == "two_pi" else size * np.log(2 * np.pi)
        )
        return -0.5 * (distance + constant)

    def update(self, prior, x, weight, error=None):
        precision = np.linalg.inv(self.covariance)
        q = {name: np.empty_like(part) for name, part in prior.items()}
        for k in range(len(prior["mean"])):
            count = weight.sum() if error == "counts" else weight[:, k].sum()
            before = np.linalg.inv(prior["variance"][k])
            q["variance"][k] = np.linalg.inv(before + count * precision)
            q["mean"][k] = q["variance"][k] @ (before @ prior["mean"][k] + precision @ (weight[:, k] @ x))
        return q

    def mix(self, old, new, rho, usual=False):
        if usual:
            return {name: (1 - rho) * old[name] + rho * new[name] for name in old}
        parts = [np.linalg.inv(z["variance"]) for z in (old, new)]
        precision = (1 - rho) * parts[0] + rho * parts[1]
        first = sum(
            share * np.einsum("kij,kj->ki", part, z["mean"])
            for share, part, z in zip((1 - rho, rho), parts, (old, new), strict=True)
        )
        variance = np.linalg.inv(precision)
        return {"mean": np.einsum("kij,kj->ki", variance, first), "variance": variance}

    def kl(self, q, p):
        total = 0.0
        for m1, v1, m0, v0 in zip(q["mean"], q["variance"], p["mean"], p["variance"], strict=True):
            inverse = np.linalg.inv(v0)
            total += np.trace(inverse @ v1) - len(m1) + (m1 - m0) @ inverse @ (m1 - m0)
            total += np.linalg.slogdet(v0)[1] - np.linalg.slogdet(v1)[1]
        return 0.5 * total

    def sums(self, x, weight, origin):
        precision = np.linalg.inv(self.covariance)
        return {"mean": (weight.T @ (x - origin) @ precision, weight.sum(0)[:, None, None] * precision)}

    def log_marginal(self, prior, k, x):
        if len(x) == 0:
            return 0.0
        mean, count = np.tile(prior["mean"][k], len(x)), len(x)
        joint = np.kron(np.eye(count), self.covariance) + np.kron(
            np.ones((count, count)), prior["variance"][k]
        )
        gap = x.ravel() - mean
        return -0.5 * (np.linalg.slogdet(2 * np.pi * joint)[1] + gap @ np.linalg.solve(joint, gap))


class Categorical:
    """Dirichlet prior of symbols: concentration (state, category); x holds symbols in its one feature."""

    num_components = None

    def log_likelihood(self, q, x, error=None):
        return expected_log(q["concentration"])[:, x[:, 0].astype(int)].T

    def update(self, prior, x, weight, error=None):
        counts = self._counts(prior["concentration"].shape[1], x, weight)
        if error == "counts":  # in the minimal form the last category is what is left of the count
            counts[:, -1] = weight.sum() - counts[:, :-1].sum(1)
        return {"concentration": prior["concentration"] + counts}

    @staticmethod
    def _counts(num_categories, x, weight):
        counts = np.zeros((weight.shape[1], num_categories))
        for symbol, row in zip(x[:, 0].astype(int), weight, strict=True):
            counts[:, symbol] += row
        return counts

    def mix(self, old, new, rho, usual=False):
        return {name: (1 - rho) * old[name] + rho * new[name] for name in old}

    def kl(self, q, p):
        return dirichlet_kl(q["concentration"], p["concentration"])

    def sums(self, x, weight, origin):
        return {"probability": (self._counts(origin, x, weight),)}

    def log_marginal(self, prior, k, x):
        concentration = prior["concentration"][k]
        counts = np.bincount(x[:, 0].astype(int), minlength=len(concentration))
        return dirichlet_multinomial(counts, concentration)


class Binomial:
    """Beta priors, a and b (state, feature); counts out of n (feature,)."""

    num_components = None

    def __init__(self, total):
        self.total = np.asarray(total, float)

    def _log_choose(self, x):
        n = self.total
        return (gammaln(n + 1) - gammaln(x + 1) - gammaln(n - x + 1)).sum(-1)

    def log_likelihood(self, q, x, error=None):
        total = digamma(q["a"] + q["b"])
        success, failure = digamma(q["a"]) - total, digamma(q["b"]) - total
        return x @ success.T + (self.total - x) @ failure.T + self._log_choose(x)[:, None]

    def update(self, prior, x, weight, error=None):
        trials = weight.sum() if error == "counts" else weight.sum(0)[:, None]
        successes = weight.T @ x
        return {"a": prior["a"] + successes, "b": prior["b"] + trials * self.total - successes}

    def mix(self, old, new, rho, usual=False):
        return {name: (1 - rho) * old[name] + rho * new[name] for name in old}

    def kl(self, q, p):
        return dirichlet_kl(np.stack([q["a"], q["b"]], -1), np.stack([p["a"], p["b"]], -1))

    def sums(self, x, weight, origin):
        return {"probability": (weight.T @ x, weight.T @ (self.total - x))}

    def log_marginal(self, prior, k, x):
        counts = np.stack([x.sum(0), (self.total - x).sum(0)], -1)
        pair = np.stack([prior["a"][k], prior["b"][k]], -1)
        return dirichlet_multinomial(counts, pair).sum() + self._log_choose(x).sum()


class Mixture(Gaussian):
    """Weights concentration (state, component), and Gaussians of every state and component."""

    def __init__(self, num_components):
        self.num_components = num_components

    def log_likelihood(self, q, x, error=None):
        return expected_log(q["concentration"]) + super().log_likelihood(q, x, error)

    def update(self, prior, x, weight, error=None):
        counts = weight.sum() if error == "counts" else weight.sum(0)
        gaussians = {name: part for name, part in prior.items() if name != "concentration"}
        return {
            "concentration": prior["concentration"] + counts,
            **super().update(gaussians, x, weight, error),
        }

    def mix(self, old, new, rho, usual=False):
        weights = (1 - rho) * old["concentration"] + rho * new["concentration"]
        return {
            "concentration": weights,
            **super().mix(*({n: z[n] for n in NIW} for z in (old, new)), rho, usual),
        }

    def kl(self, q, p):
        return dirichlet_kl(q["concentration"], p["concentration"]) + super().kl(q, p)

    def sums(self, x, weight, origin):
        return {"weight": (weight.sum(0),), **super().sums(x, weight, origin)}
