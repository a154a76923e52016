"""
Traffic on San Jose's highways
==============================

The paper's own example: 325 sensors measure how fast cars go at half past five on a Monday. What happens between them?
"""

import matplotlib.pyplot as plt

import graphmatern as gm

# %%
# The roads, with the sensors inserted as nodes where they are. Edges follow the roads.
data = gm.datasets.load_traffic(geometry=True)
print(data.description)
print(data.graph.summary())

# %%
# Smoothness, lengthscale, variance and noise are learned. Rings are sensors; the uncertainty grows with the distance
# from them, *along the road*: opposite carriageways are neighbours on the map, but not on the graph.
model = gm.GraphGPRegressor(data.graph).fit(data.values)
print(model.summary())
model.plot(label="speed (mph)")

# %%
# Where two motorways cross, the fast and the slow carriageway lie side by side.
axes = model.plot(label="speed (mph)")
for ax in axes:
    ax.set(xlim=(-121.93, -121.88), ylim=(37.31, 37.345))

# %%
# What was learned, on the ground: the correlation between two places against their distance by road.
bound = model.kernel_.on(data.graph)
gm.plotting.plot_range(bound).set_xlabel("distance by road (m)")

# %%
# Are the error bars honest? Each sensor is predicted from all others, in closed form. Traffic is either jammed or not,
# so speeds are not Gaussian: narrow intervals are wider than necessary, those of 80 % and more are right.
left_out = model.loo()
gm.plotting.plot_calibration(left_out["y"], left_out["mean"], left_out["std"])
print(f"RMSE {gm.metrics.rmse(left_out['y'], left_out['mean']):.1f} mph")
plt.show()
