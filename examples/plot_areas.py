"""
Relative risks by district
==========================

Cases by district, and how many were expected. Small districts have few cases, so their raw rates say little; neighbours
help. BYM2 learns how much of the variation neighbours share, and gives every district a relative risk, an interval, and
the probability that its risk is above 1.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import shapely

import graphmatern as gm

rng = np.random.default_rng(2)
centres = shapely.MultiPoint(rng.random((150, 2)))
square = shapely.box(0.0, 0.0, 1.0, 1.0)
districts = [
    district.intersection(square)
    for district in shapely.voronoi_polygons(centres, extend_to=square).geoms
]
graph = gm.Graph.from_polygons(districts, contiguity="rook")
log_risk = 0.5 * gm.ICAR().on(graph).sample(random_state=3).numpy()[0]
table = pd.DataFrame(
    {"expected": rng.gamma(2.0, 3.0, 150), "farms": rng.standard_normal(150)}, index=graph.nodes
)
table["cases"] = rng.poisson(table["expected"] * np.exp(log_risk + 0.25 * table["farms"]))

# %%
# Exposures are the expected cases; the covariate's coefficient is integrated out together with the districts' effects.
model = gm.GraphGPRegressor(graph, gm.BYM2(), likelihood="poisson", covariates=table[["farms"]])
model.fit(table["cases"], exposure=table["expected"])
print(model.coefficients_.round(3))
print(model.hyperparameters_.round(3))

# %%
# Raw rates beside relative risks, on a scale that is even around 1.
raw = table["cases"] / table["expected"]
figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
gm.plotting.plot_risk(graph, raw, axes[0], largest=3.0, title="raw rate", label="")
gm.plotting.plot_risk(
    graph, model.risk_table()["mean"], axes[1], largest=3.0, title="relative risk", label=""
)

# %%
# And where the risk is almost certainly above 1.
model.plot_risks(largest=3.0)
plt.show()
