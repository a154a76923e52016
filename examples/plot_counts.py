"""
Accidents are counts
====================

How dangerous is a junction? Accidents are rare, and a junction watched for ten years sees more of them than one watched
for two. The likelihood is Poisson, with the years as exposure; predictions are rates per year.
"""

import matplotlib.pyplot as plt
import numpy as np

import graphmatern as gm

city = gm.make_city(500, seed=5)
log_rate = gm.Matern(nu=2, lengthscale=12.0).on(city).sample(random_state=5).numpy()[0]
rate = np.exp(0.2 + 0.8 * log_rate)

rng = np.random.default_rng(5)
watched = np.sort(rng.choice(city.n_nodes, 150, replace=False))
years = rng.integers(1, 11, len(watched))
accidents = rng.poisson(rate[watched] * years)
print(
    f"{accidents.sum()} accidents at {len(watched)} junctions; {np.sum(accidents == 0)} junctions had none"
)

# %%
# The posterior has no closed form: the best Gaussian approximation is found by natural gradients.
model = gm.GraphGPRegressor(city, likelihood="poisson").fit(watched, accidents, exposure=years)
print(model.summary())
model.plot(label="accidents per year")

# %%
# Compared with the true rates: better than the raw counts, above all where a junction was watched for few years.
mean = model.predict(watched)
few = years <= 3
for name, guess in {"accidents / years": accidents / years, "graph GP": mean}.items():
    errors = [gm.metrics.rmse(rate[watched][group], guess[group]) for group in (few, ~few)]
    print(f"{name}: error {errors[0]:.2f} with up to 3 years, {errors[1]:.2f} with more")

# %%
# Junctions without observations.
others = np.setdiff1d(city.nodes, watched)
figure, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
mean, std = model.predict(others, return_std=True)
ax.errorbar(rate[others], mean, std, fmt="o", markersize=3, linewidth=0.6, alpha=0.7)
ax.plot([0.1, 20], [0.1, 20], color="0.5", linestyle="--", linewidth=1)
ax.set(
    xscale="log",
    yscale="log",
    xlabel="true rate",
    ylabel="predicted rate",
    title="junctions without data",
)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
