"""
A day of traffic, with gaps
===========================

Forty sensors report every half hour; one message in six is lost, and one sensor is dead all morning. The covariance of
two readings is the product of one between their places, along the roads, and one between their times.
"""

import gpytorch
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import graphmatern as gm

city = gm.make_city(300, seed=4)
times = pd.date_range("2026-03-02 06:00", periods=32, freq="30min")
hours = np.arange(32) / 2

# %%
# Morning traffic spreads from the north-west, evening traffic from the south-east, along the roads.
ends = [city.positions @ direction for direction in ([1.0, -1.0], [-1.0, 1.0])]
starts = city.nodes[[int(end.argmin()) for end in ends]]
delay = city.distances(starts) / 1500
peaks = [
    np.exp(-0.5 * ((hours[:, None] - start - late) / 1.5) ** 2)
    for start, late in zip((2, 10), delay, strict=True)
]
truth = pd.DataFrame(20 + 40 * sum(peaks), index=times, columns=city.nodes)

rng = np.random.default_rng(4)
sensors = np.sort(rng.choice(city.nodes, 40, replace=False))
readings = truth[sensors] + 2 * rng.standard_normal((32, 40))
readings = readings.mask(rng.random(readings.shape) < 1 / 6)
dead = sensors[20]
readings.loc[times[:12], dead] = np.nan

# %%
# Times are rows, nodes are columns, NaN is a gap. The lengthscale in time is in hours.
model = gm.GraphFieldRegressor(
    city,
    gm.Matern(nu=2, lengthscale=5.0, fixed=("nu",)),
    time_kernel=gpytorch.kernels.MaternKernel(nu=1.5),
    time_unit="h",
)
model.fit(readings)
print(model.summary())

# %%
# The whole city at eight o'clock, and how certain that is.
model.plot_map(times[4], label="vehicles per minute")

# %%
# The sensor that was dead until noon, and what comes next.
ax = model.plot_node(
    dead, pd.date_range(times[0], periods=110, freq="10min"), label="vehicles per minute"
)
ax.tick_params(axis="x", rotation=30)
ax.plot(times, truth[dead], color="black", linestyle=":", linewidth=1, label="truth")
ax.legend(frameon=False)
filled = model.predict_grid([dead], times[:12])
print(
    f"error where it was dead: {gm.metrics.rmse(truth.loc[times[:12], dead], np.ravel(filled)):.1f} vehicles per minute"
)
plt.show()
