"""NumPyro: Hamiltonian Monte Carlo for BYM2 as in the case study "Spatial models in Stan" (Morris)."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import common
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from numpyro.infer import MCMC, NUTS

jax.config.update("jax_enable_x64", True)


def model(first, second, cases, exposure, covariate, scale):
    """The intrinsic part by differences along borders, its sum softly zero; the other part independent."""
    n = len(cases)
    b0, b1 = (numpyro.sample(name, dist.Normal(0.0, 1.0)) for name in ("b0", "b1"))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    rho = numpyro.sample("rho", dist.Beta(0.5, 0.5))
    theta = numpyro.sample("theta", dist.Normal(0.0, 1.0).expand([n]).to_event(1))
    phi = numpyro.sample("phi", dist.ImproperUniform(dist.constraints.real, (), (n,)))
    numpyro.factor("borders", -0.5 * jnp.sum((phi[first] - phi[second]) ** 2))
    numpyro.factor("sum", dist.Normal(0.0, 0.001 * n).log_prob(jnp.sum(phi)))
    eta = b0 + b1 * covariate + sigma * (jnp.sqrt(1.0 - rho) * theta + jnp.sqrt(rho / scale) * phi)
    numpyro.deterministic("risk", jnp.exp(eta))
    numpyro.sample("cases", dist.Poisson(exposure * jnp.exp(eta)), obs=cases)


def counts(job):
    data = common.load(job)
    edges = common.weights_of(data).tocoo()
    upper = edges.row < edges.col
    given = [edges.row[upper], edges.col[upper], data["cases"], data["exposure"], data["covariate"]]

    def sample():
        kernel = NUTS(model, init_strategy=numpyro.infer.init_to_uniform(radius=0.5))
        sizes = {"num_warmup": job["warm_up"], "num_samples": job["draws"], "num_chains": job["chains"]}
        chains = MCMC(kernel, **sizes, chain_method="sequential", progress_bar=False)
        chains.run(jax.random.key(0), *map(jnp.asarray, given), float(data["scale"]), extra_fields=("diverging",))
        return chains

    seconds, chains = common.timed(sample)
    draws = {name: np.asarray(one) for name, one in chains.get_samples(group_by_chain=True).items()}
    parameters = [draws[name] for name in ("b0", "b1", "sigma", "rho")]
    watched = [*parameters, draws["risk"]]
    risks = draws["risk"].reshape(-1, draws["risk"].shape[-1])
    return {
        "seconds": seconds,
        "ess": min(float(np.min(effective_sample_size(one))) for one in watched),
        "r_hat": max(float(np.max(gelman_rubin(one))) for one in watched),
        "divergences": int(np.sum(chains.get_extra_fields()["diverging"])),
        "parameters": [float(one.mean()) for one in parameters],
        "parameters_sd": [float(one.std()) for one in parameters],
        "risks": np.round(risks.mean(axis=0), 6).tolist(),
        "risks_sd": np.round(risks.std(axis=0), 6).tolist(),
    }


if __name__ == "__main__":
    common.run({"counts": counts})
