"""
A million nodes
===============

For a Matérn kernel with integer smoothness the precision matrix is sparse, and so is its Cholesky factor on road-like
graphs. A fit then takes seconds where a dense matrix would not fit into memory. Here the city has 20,000 junctions, so
that this page is built quickly: set ``GRAPHMATERN_NODES=1000000`` to run it at full size.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

import graphmatern as gm
from graphmatern.sparse import analyze

n = int(os.environ.get("GRAPHMATERN_NODES", 20_000))
city = gm.make_roads(n, seed=0)
print(city)

# %%
# The true field: white noise, smoothed by one sparse solve. It is a draw from the Matérn process with ν = 2 and
# κ = 12, measured with noise at every fifth junction.
nu, lengthscale = 2, 12.0
precision = (city.laplacian() + 2 * nu / lengthscale**2 * sp.eye_array(city.n_nodes)).tocsc()
precision.sort_indices()
rng = np.random.default_rng(0)
truth = analyze(precision).factorize(precision.data).solve(rng.standard_normal(city.n_nodes))
truth /= truth.std()
observed = np.sort(rng.choice(city.n_nodes, city.n_nodes // 5, replace=False))
values = truth[observed] + 0.3 * rng.standard_normal(len(observed))

# %%
# With ν fixed, the Markov engine is chosen: exact, with all standard deviations.
model = gm.GraphGPRegressor(city, gm.Matern(nu=nu, lengthscale=5.0, fixed=("nu",))).fit(
    observed, values
)
mean, std = model.predict(return_std=True)
print(model.summary())
print(f"RMSE {gm.metrics.rmse(truth, mean):.3f} where the noise is 0.3")
print(f"95 % intervals hold {100 * gm.metrics.coverage(truth, mean, std):.1f} % of the truth")

# %%
# Large maps are drawn as pictures inside vector formats, so that files stay small.
gm.plotting.plot_prediction(city, mean, std, label="value")
plt.show()
