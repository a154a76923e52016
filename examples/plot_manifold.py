"""
Data near a curved surface
==========================

If points in space lie near a surface, the graph of nearest neighbours follows the surface, and straight lines do not. A
few noisy values are enough for a map of the whole roll.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_swiss_roll
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import graphmatern as gm

points, along = make_swiss_roll(1500, noise=0.1, random_state=0)
graph = gm.Graph.from_points(points, n_neighbors=8)
truth = np.cos(along / 2) + 0.05 * points[:, 1]  # neighbouring layers have opposite signs

# %%
# Values at one point in thirty, with noise.
rng = np.random.default_rng(0)
known = np.sort(rng.choice(len(points), 50, replace=False))
y = truth[known] + 0.1 * rng.standard_normal(len(known))
model = gm.GraphGPRegressor(graph).fit(known, y)
axes = model.plot(label="value")
axes[0].set_title("from 50 points (rings)")

# %%
# A Gaussian process in the surrounding space mixes layers of the roll that are near each other, but far apart on it.
kernel = ConstantKernel() * Matern(5.0, nu=1.5) + WhiteKernel(0.1)
outside = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=3, random_state=0)
outside.fit(points[known], y)
for name, mean in {
    "along the surface": model.predict(),
    "through space": outside.predict(points),
}.items():
    print(f"{name}: RMSE {gm.metrics.rmse(truth, mean):.3f}")

# %%
# The kernel seen from one point: it follows the sheet and does not jump to the next layer.
gm.plotting.plot_kernel(model.kernel_.on(graph), known[points[known, 1].argmin()])
plt.show()
