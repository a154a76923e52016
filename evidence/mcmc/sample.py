"""Long Markov chains for one problem, written from the formulas and without graphmatern; see ../integration_mcmc.py.

    python sample.py problem.npz answer.npz --draws 5000 --chains 4

The process is f = U diag(√(a Ψ(λ))) z with Ψ(λ) = (2ν/κ² + λ)^(−ν), a = σ² N / Σ Ψ, and the logarithms of all
parameters are normal a priori. With Gaussian noise f and a constant with a flat prior are integrated out; otherwise z
is sampled with the parameters, and the constant, normal as well, is added to the coefficient of the constant
eigenvector.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import numpy as jnp
from jax.scipy.special import log_ndtr, ndtr
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from numpyro.infer import MCMC, NUTS

jax.config.update("jax_enable_x64", True)


def spectral_variances(problem: dict[str, Any], x: Any) -> Any:
    """Prior variances of the coefficients of the eigenvectors."""
    values = jnp.asarray(problem["eigenvalues"])
    nu, lengthscale, variance = jnp.exp(x[0]), jnp.exp(x[1]), jnp.exp(x[2])
    logs = -nu * jnp.log(2.0 * nu / lengthscale**2 + values)
    share = jnp.exp(logs - jax.scipy.special.logsumexp(logs))
    return variance * int(problem["n_nodes"]) * share


def parameters(problem: dict[str, Any]) -> Any:
    """Logarithms of ν, κ, σ², and of what the likelihood has."""
    names = [str(name) for name in problem["names"]]
    return [
        numpyro.sample(name, dist.Normal(np.log(median), spread))
        for name, median, spread in zip(names, problem["medians"], problem["spreads"], strict=True)
    ]


# ---------------------------------------------------------------------- Gaussian noise, everything integrated out
def gaussian_parts(problem: dict[str, Any], x: Any) -> tuple[Any, Any, Any, Any]:
    """Factor of K + σ²I, C⁻¹1, the estimate of the constant and C⁻¹(y − constant)."""
    basis, y = jnp.asarray(problem["basis"])[problem["nodes"]], jnp.asarray(problem["y"])
    covariance = (basis * spectral_variances(problem, x)) @ basis.T + jnp.exp(x[3]) * jnp.eye(len(y))
    factor = jnp.linalg.cholesky(covariance)
    ones = jax.scipy.linalg.cho_solve((factor, True), jnp.ones(len(y)))
    constant = (ones @ y) / ones.sum()
    return factor, ones, constant, jax.scipy.linalg.cho_solve((factor, True), y - constant)


def gaussian_model(problem: dict[str, Any]) -> None:
    """Add log p(y | θ) with a flat prior of the constant."""
    factor, ones, constant, alpha = gaussian_parts(problem, parameters(problem))
    residual = jnp.asarray(problem["y"]) - constant
    log_likelihood = -jnp.log(jnp.diag(factor)).sum() - 0.5 * jnp.log(ones.sum()) - 0.5 * residual @ alpha
    numpyro.factor("likelihood", log_likelihood)


def gaussian_latents(problem: dict[str, Any], draws: np.ndarray) -> dict[str, np.ndarray]:
    """Moments and quantiles of constant + f at all nodes, as mixtures over the draws."""
    basis = jnp.asarray(problem["basis"])

    @jax.jit
    def conditional(x: Any) -> tuple[Any, Any]:
        factor, ones, constant, alpha = gaussian_parts(problem, x)
        spread = spectral_variances(problem, x)
        cross = (basis * spread) @ basis[problem["nodes"]].T
        half = jax.scipy.linalg.solve_triangular(factor, cross.T, lower=True)
        of_constant = (1.0 - cross @ ones) ** 2 / ones.sum()
        return constant + cross @ alpha, (basis**2) @ spread - (half**2).sum(axis=0) + of_constant

    kept = draws[:: max(1, len(draws) // 2000)]
    means, variances = (np.stack(one) for one in zip(*(map(np.asarray, conditional(x)) for x in kept), strict=True))
    deviations = np.sqrt(np.maximum(variances, 1e-14))
    mean = means.mean(axis=0)
    spread = np.sqrt((variances + (means - mean) ** 2).mean(axis=0))
    found = {"latent_mean": mean, "latent_sd": spread}
    for name, level in (("latent_low", 0.025), ("latent_high", 0.975)):
        low, high = mean - 12 * spread, mean + 12 * spread
        for _ in range(45):
            middle = 0.5 * (low + high)
            below = np.asarray(ndtr((middle - means) / deviations)).mean(axis=0) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        found[name] = 0.5 * (low + high)
    return found


# ---------------------------------------------------------------------- other likelihoods
def latent(problem: dict[str, Any], x: Any, z: Any) -> Any:
    """Constant + f at all nodes."""
    variances = spectral_variances(problem, x)
    if bool(problem["constant"]):  # 1 = √N u₀
        variances = variances.at[0].add(problem["effect_variance"] * int(problem["n_nodes"]))
    return (z * jnp.sqrt(variances)) @ jnp.asarray(problem["basis"]).T


def latent_model(problem: dict[str, Any]) -> None:
    """Sample z and the parameters; log p(y | f) from its definition."""
    kind, y, nodes = str(problem["kind"]), jnp.asarray(problem["y"]), problem["nodes"]
    count = int(problem["n_latents"])
    x = parameters(problem)
    z = numpyro.sample("z", dist.Normal(jnp.zeros((count, len(problem["eigenvalues"]))), 1.0).to_event(2))
    f = numpyro.deterministic("f", latent(problem, x, z))[:, nodes]
    if kind == "poisson":
        eta = problem["level"] + f[0]
        logs = y * eta - jnp.exp(eta)
    elif kind == "negative_binomial":
        eta, size = problem["level"] + f[0], jnp.exp(-x[3])
        logs = (
            jax.scipy.special.gammaln(y + size)
            - jax.scipy.special.gammaln(size)
            + size * jnp.log(size)
            + y * eta
            - (y + size) * jnp.logaddexp(jnp.log(size), eta)
        )
    elif kind == "student_t":
        scale, df = jnp.exp(x[3]), 2.0 + jnp.exp(x[4])
        logs = dist.StudentT(df, f[0], scale).log_prob(y)
    elif kind == "binary":
        logs = log_ndtr((2.0 * y - 1.0) * f[0])
    else:  # the largest of f_c + ε_c, with ε of the class observed sampled and the others integrated out
        own = numpyro.sample("own", dist.Normal(jnp.zeros(len(y)), 1.0).to_event(1))
        label = y.astype(int)
        ahead = f[label, jnp.arange(len(y))] + own - f
        others = jnp.arange(count)[:, None] != label
        logs = jnp.where(others, log_ndtr(ahead), 0.0).sum(axis=0)
    numpyro.factor("likelihood", logs.sum())


def class_probabilities(f: np.ndarray) -> np.ndarray:
    """Probability of each class to be the largest of f_c + ε_c, average over draws; shape (n_nodes, n_classes)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    weights = weights / weights.sum()
    count = f.shape[1]
    total = np.zeros((f.shape[2], count))
    for part in np.array_split(f, max(1, len(f) // 500)):
        for c in range(count):
            ahead = part[:, c : c + 1] - np.delete(part, c, axis=1)
            pairs = zip(nodes, weights, strict=True)
            share = sum(w * np.exp(np.asarray(log_ndtr(ahead + x)).sum(axis=1)) for x, w in pairs)
            total[:, c] += share.sum(axis=0)
    return total / len(f)


def main() -> None:
    """Sample, and write what is to be compared."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problem")
    parser.add_argument("answer")
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=1500)
    parser.add_argument("--accept", type=float, default=0.95, help="the acceptance that steps are adapted to")
    given = parser.parse_args()
    problem = dict(np.load(given.problem))
    names = [str(name) for name in problem["names"]]
    exact = str(problem["kind"]) == "gaussian"
    # The coefficients are correlated given the data: with all covariances adapted to, far shorter paths suffice.
    dense = True if exact or problem["n_latents"] == 1 else [tuple(names)]
    kernel = NUTS(gaussian_model if exact else latent_model, dense_mass=dense, target_accept_prob=given.accept)
    start = time.perf_counter()
    chains = MCMC(
        kernel,
        num_warmup=given.warm_up,
        num_samples=given.draws,
        num_chains=given.chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.key(0), problem)
    by_chain = {name: np.asarray(one) for name, one in chains.get_samples(group_by_chain=True).items() if name != "z"}
    draws = np.stack([by_chain[name].reshape(-1) for name in names], axis=1)
    found: dict[str, Any] = {"draws": draws}
    watched = {name: by_chain[name] for name in names}
    if exact:
        found |= gaussian_latents(problem, draws)
    else:
        f = by_chain["f"]  # (chains, draws, latents, nodes)
        watched["f"] = f
        flat = f.reshape(-1, *f.shape[2:])
        found |= {"latent_mean": flat.mean(axis=0), "latent_sd": flat.std(axis=0)}
        found["latent_low"], found["latent_high"] = np.quantile(flat, [0.025, 0.975], axis=0)
        if str(problem["kind"]) == "binary":
            share = np.asarray(ndtr(flat[:, 0])).mean(axis=0)
            found["probabilities"] = np.stack([1.0 - share, share], axis=1)
        elif str(problem["kind"]) == "classes":
            found["probabilities"] = class_probabilities(flat[::5])
    found["r_hat"] = max(float(np.max(gelman_rubin(one))) for one in watched.values())
    found["ess"] = min(float(np.min(effective_sample_size(one))) for one in watched.values())
    found["ess_parameters"] = min(float(effective_sample_size(by_chain[name])) for name in names)
    found["divergences"] = int(np.sum(np.asarray(chains.get_extra_fields()["diverging"])))
    found["seconds"] = time.perf_counter() - start
    np.savez(given.answer, **found)
    print({name: found[name] for name in ("r_hat", "ess", "ess_parameters", "divergences", "seconds")}, flush=True)


if __name__ == "__main__":
    main()
