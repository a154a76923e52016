"""
Sensors that lie on roads
=========================

Sensors are seldom exactly at junctions. ``Graph.subdivide`` splits roads at the sensors and makes these nodes; lengths,
weights, positions and the roads' geometry are split accordingly.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import graphmatern as gm

city = gm.make_roads(400, seed=2)
rng = np.random.default_rng(2)
chosen = np.sort(rng.choice(city.n_edges, 120, replace=False))
sensors = pd.DataFrame(
    {"road": city.edges["id"].to_numpy()[chosen], "share": rng.uniform(0.1, 0.9, len(chosen))},
    index=[f"sensor {k}" for k in range(len(chosen))],
)
print(sensors.head(3))

# %%
# The place of a sensor is given as a share of the road's length, or as a distance from its source.
graph = city.subdivide(sensors, edge="road", fraction="share")
print(f"{city.n_nodes} junctions, {len(sensors)} sensors: {graph.n_nodes} nodes")
ax = gm.plotting.plot_graph(graph)
x, y = graph.positions[graph.locate(sensors.index)].T
ax.scatter(x, y, s=12, color="#AA4499", zorder=3)
ax.set_title("sensors on their roads")

# %%
# From then on sensors are nodes like any other.
truth = gm.Matern(nu=2, lengthscale=15.0).on(graph).sample(random_state=3).numpy()[0]
readings = pd.Series(truth, index=graph.nodes)[sensors.index] + 0.1 * rng.standard_normal(
    len(sensors)
)
model = gm.GraphGPRegressor(graph).fit(readings)
model.plot(label="value")
table = model.predict_table().loc[city.nodes]  # what the junctions would measure
print(table.head(3))
plt.show()
