"""
Relative risks by district
==========================

Cases by district, and how many were expected. Small districts have few, so that their raw rates say little; neighbours
help. BYM2 learns how much of the variation neighbours share, and gives every district a relative risk, an interval,
and the probability that its risk is above 1.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import graphmatern as gm

rng = np.random.default_rng(2)
places = rng.random((150, 2))
graph = gm.Graph.from_points(places, n_neighbors=5)
log_risk = 0.5 * gm.ICAR().on(graph).sample(random_state=3).numpy()[0]
table = pd.DataFrame(
    {"expected": rng.gamma(2.0, 3.0, 150), "farms": rng.standard_normal(150)}, index=graph.nodes
)
table["cases"] = rng.poisson(table["expected"] * np.exp(log_risk + 0.25 * table["farms"]))

# %%
# Exposures are the expected cases; the coefficient of the covariate is integrated out with the districts' own effects.
model = gm.GraphGPRegressor(graph, gm.BYM2(), likelihood="poisson", covariates=table[["farms"]])
model.fit(table["cases"], exposure=table["expected"])
print(model.coefficients_.round(3))
print(model.hyperparameters_.round(3))

# %%
# Raw rates beside relative risks, on a scale that is even around 1, and where the risk is almost surely above it.
risks = model.risk_table()
raw = np.maximum(table["cases"], 0.5) / table["expected"]
figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
most = float(np.abs(np.log(risks["mean"])).max())
for ax, values, title in (
    (axes[0], np.log(raw), "raw rate"),
    (axes[1], np.log(risks["mean"]), "relative risk"),
):
    dots = ax.scatter(
        *places.T, c=values, cmap="RdBu_r", vmin=-most, vmax=most, s=10 + 8 * table["expected"]
    )
    ax.set_title(title)
bar = figure.colorbar(dots, ax=axes[:2])
ticks = [tick for tick in (0.25, 0.5, 1.0, 2.0, 4.0) if abs(np.log(tick)) <= most]
bar.set_ticks(np.log(ticks), labels=[f"{tick:g}" for tick in ticks])
dots = axes[2].scatter(
    *places.T, c=risks["above"], cmap="PuOr_r", vmin=0.0, vmax=1.0, s=10 + 8 * table["expected"]
)
axes[2].set_title("probability that the risk is above 1")
figure.colorbar(dots, ax=axes[2])
plt.show()
