"""
Functions of time at every node
===============================

A graph can be the output covariance of a function f: R → R^N, one output per node, observed at scattered pairs of a
time and a node, in any order. The covariance is the product of a kernel on time and one on the graph.
"""

import gpytorch
import matplotlib.pyplot as plt
import numpy as np
import torch

import graphmatern as gm

torch.manual_seed(0)
city = gm.make_roads(150, seed=7)
rng = np.random.default_rng(7)
basis = gm.Matern(nu=1.5, lengthscale=6.0).on(city).sample(3, random_state=2).numpy()


def level(time, places):
    """A daily wave whose size and phase differ from place to place."""
    a, b, c = basis[:, places]
    return a * np.sin(2 * np.pi * time) + b * np.cos(2 * np.pi * time) + 0.5 * c


places, times = rng.integers(city.n_nodes, size=400), rng.random(400)
x = gm.interop.coregionalized_inputs(city, times, city.nodes[places])
y = torch.as_tensor(level(times, places) + 0.1 * rng.standard_normal(400))


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gm.interop.coregionalized_kernel(
            city,
            gpytorch.kernels.PeriodicKernel(),
            gm.Matern(nu=1.5, lengthscale=3.0, fixed=("nu",)),
        )

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(x, y, likelihood).double()
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    loss = -objective(model(x), y)
    loss.backward()
    optimizer.step()

# %%
# Most junctions were seen two or three times; their neighbours fill in the rest of the day.
counts = np.bincount(places, minlength=city.n_nodes)
chosen = [int(np.flatnonzero(counts == count)[0]) for count in (0, 2, 5)]
day = np.linspace(0.0, 1.0, 60)
model.eval()
fig, axes = plt.subplots(1, 3, figsize=(12, 3.5), sharey=True, layout="constrained")
for ax, place in zip(axes, chosen, strict=True):
    test = gm.interop.coregionalized_inputs(city, day, city.nodes[[place] * len(day)])
    with torch.no_grad():
        prediction = model(test)
    mean, deviation = prediction.mean.numpy(), prediction.variance.sqrt().numpy()
    ax.plot(day, level(day, np.full(len(day), place)), color="0.6", label="truth")
    ax.plot(day, mean, color="#332288", label="predicted")
    ax.fill_between(
        day, mean - 2 * deviation, mean + 2 * deviation, color="#332288", alpha=0.2, linewidth=0
    )
    own = places == place
    ax.plot(times[own], y.numpy()[own], "o", color="#AA4499", label="observed")
    ax.set(
        title=f"junction {city.nodes[place]}: {counts[place]} observations", xlabel="time of day"
    )
axes[0].set_ylabel("level")
axes[1].legend()
plt.show()
