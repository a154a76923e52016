"""GPJax's graph kernel. It uses all eigenpairs; for a truncated comparison they are cut here by hand."""

from __future__ import annotations

import math
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import common
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)


def kernel_of(data, n_pairs, nu, fixed_nu):
    import equinox as eqx
    import gpjax as gpx
    import paramax

    smoothness = paramax.non_trainable(jnp.asarray(nu)) if fixed_nu else nu
    kernel = gpx.kernels.GraphKernel(common.laplacian_of(data), lengthscale=5.0, smoothness=smoothness)
    values, vectors = (gpx.kernels.base.val(part) for part in (kernel.eigenvalues, kernel.eigenvectors))
    # Rounding makes the smallest eigenvalue negative; the Laplacian itself is not needed any more.
    kept = (jnp.maximum(values[:n_pairs], 0.0), vectors[:, :n_pairs], jnp.zeros((1, 1)))
    frozen = tuple(paramax.non_trainable(part) for part in kept)
    places = lambda k: (k.eigenvalues, k.eigenvectors, k.laplacian)  # noqa: E731
    kernel = eqx.tree_at(places, kernel, frozen)
    jax.block_until_ready(kept)
    return kernel


def fit_exact(kernel, data):
    import gpjax as gpx

    x, y = jnp.asarray(data["train"])[:, None], jnp.asarray(data["y"])[:, None]
    given = gpx.Dataset(X=x, y=y)
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel)
    posterior = prior * gpx.likelihoods.Gaussian(obs_stddev=0.7)
    loss = lambda model, batch: -gpx.objectives.conjugate_mll(model, batch)  # noqa: E731
    posterior, _ = gpx.fit_lbfgs(model=posterior, objective=loss, train_data=given, max_iters=200, gtol=1e-3)
    value = float(-gpx.objectives.conjugate_mll(posterior, given))
    return posterior, given, value - 0.5 * len(y) * math.log(2.0 * math.pi)


def predict(posterior, given, nodes):
    means, stds = [], []
    for batch in common.in_batches(len(nodes), 1000):
        latent = posterior.predict(jnp.asarray(nodes[batch])[:, None], train_data=given)
        means.append(np.asarray(latent.mean).ravel())
        stds.append(np.sqrt(np.asarray(latent.variance).ravel()))
    return np.concatenate(means), np.concatenate(stds)


def value_of(parameter):
    import gpjax as gpx

    return gpx.kernels.base.val(parameter)


def noise_of(posterior):
    return float(value_of(posterior.likelihood.obs_stddev)) ** 2


def traffic(job):
    data = common.load(job)
    spectrum, kernel = common.timed(lambda: kernel_of(data, job["pairs"], 1.5, False))
    fits, (posterior, given, nll) = common.several(lambda: fit_exact(kernel, data), job["inner"])
    mean, std = predict(posterior, given, data["test"])
    std = np.sqrt(std**2 + noise_of(posterior))
    return {"spectrum": spectrum, "fits": fits, "nll": nll, **common.traffic_scores(data, mean, std)}


def scaling(job):
    data = common.load(job)

    nu = (1.5, False) if job.get("learn_nu") else (1.0, True)

    def everything():
        posterior, given, nll = fit_exact(kernel_of(data, None, *nu), data)
        return *predict(posterior, given, np.arange(len(data["truth"]))), nll, posterior

    seconds, (mean, std, nll, posterior) = common.timed(everything)
    learned = {"nll": nll, "nu": float(value_of(posterior.prior.kernel.smoothness))}
    return {"seconds": seconds, **learned, **common.hidden_scores(data, mean, std)}


def coverage(job):
    def intervals(data):
        posterior, given, _ = fit_exact(kernel_of(data, None, 1.5, False), data)
        return common.normal_intervals(*predict(posterior, given, np.arange(len(data["truth"]))))

    return common.coverage(job, intervals)


if __name__ == "__main__":
    jobs = {"traffic": traffic, "scaling": scaling, "coverage": coverage}
    common.run(jobs | {"installation": common.installation})
