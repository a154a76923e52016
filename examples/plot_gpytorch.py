"""
A node kernel in a GPyTorch model
=================================

``gm.interop.NodeKernel`` is a GPyTorch kernel: it can be added to and multiplied by others. Here a value on the
junctions of a city has two parts, one that spreads along the roads and one that depends on a known property of the
junction, its height. A sum of two kernels tells them apart.
"""

import gpytorch
import matplotlib.pyplot as plt
import numpy as np
import torch

import graphmatern as gm

torch.manual_seed(0)
city = gm.make_roads(500, seed=4)
rng = np.random.default_rng(4)
height = rng.random(city.n_nodes)
along_roads = gm.Matern(nu=1.5, lengthscale=10.0).on(city).sample(random_state=1)[0].numpy()
truth = along_roads + np.sin(2 * np.pi * height)

# %%
# Inputs have two columns: the position of the node (``city.locate`` finds it for names), and its height.
everywhere = torch.as_tensor(np.column_stack([np.arange(city.n_nodes), height]))
seen = rng.permutation(city.n_nodes)[:150]
x, y = everywhere[seen], torch.as_tensor(truth[seen] + 0.2 * rng.standard_normal(150))


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.roads = gm.interop.NodeKernel(
            city, gm.Matern(nu=1.5, lengthscale=3.0, fixed=("nu",)), active_dims=[0]
        )
        self.height = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(active_dims=[1]))
        self.covar_module = self.roads + self.height

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
print(f"lengthscale along roads {model.roads.lengthscale.item():.1f} (truth 10)")
print(f"noise {likelihood.noise.item():.3f} (truth 0.04)")

# %%
# Each kernel alone gives its part of the prediction: its covariances with the observations, times the same weights.
model.eval()
with torch.no_grad():
    weights = likelihood(model.forward(x)).lazy_covariance_matrix.solve(y - model.mean_module(x))
    parts = [(kernel(everywhere, x) @ weights).numpy() for kernel in (model.roads, model.height)]

fig, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
limits = along_roads.min(), along_roads.max()
gm.plotting.plot_field(city, along_roads, axes[0], limits=limits).set_title(
    "spread along roads: truth"
)
gm.plotting.plot_field(city, parts[0], axes[1], limits=limits, marked=city.nodes[seen])
axes[1].set_title("predicted from 150 junctions")
order = np.argsort(height)
axes[2].plot(height[order], np.sin(2 * np.pi * height[order]), color="0.6", label="truth")
axes[2].plot(height[order], parts[1][order], color="#AA4499", label="predicted")
axes[2].set(title="effect of height", xlabel="height", ylabel="value")
axes[2].legend()
plt.show()
