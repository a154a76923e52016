"""
Where to put the next sensors
=============================

A city has 15 sensors and money for 12 more. At which junctions? Each criterion gives its own answer; later days show
how much predictions improve.
"""

import matplotlib.pyplot as plt
import numpy as np

import graphmatern as gm

city = gm.make_city(500, seed=5)
kernel = gm.Matern(nu=2, lengthscale=8.0)
noise = 0.1
rng = np.random.default_rng(1)
there = np.sort(rng.choice(city.nodes, 15, replace=False))

# %%
# Without any data, a kernel and the noise of a sensor are all that is needed: how uncertain predictions will be does not
# depend on the values measured.
bound = kernel.on(city)
chosen = {
    criterion: gm.place_sensors(bound, 12, criterion=criterion, existing=there, noise=noise)
    for criterion in ("entropy", "mutual_information", "variance")
}
table = chosen["variance"]
print(table.round(3).to_string(index=False))

# %%
# The map, with existing sensors as rings, and the uncertainty that remains. Colours are standard deviations given the
# existing sensors.
known = gm.GraphGPRegressor(
    city, kernel, noise=noise, optimizer=None, mean="zero", normalize_y=False
)
std = known.fit(there, np.zeros(15)).predict(return_std=True)[1]
gm.plotting.plot_placement(
    city, table, values=std, label="standard deviation before", existing=there
)

# %%
# Entropy goes where most is unknown, the edge of the map; mutual information and variance stay closer to the centre.
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
for ax, (criterion, own) in zip(axes, chosen.items(), strict=True):
    gm.plotting.plot_placement(city, own, ax, existing=there)
    ax.set_title(criterion)

# %%
# Two hundred days, drawn from the same process: how far are predictions from the truth?
days = bound.sample(200, random_state=1).numpy().T


def error(extra):
    """RMSE at all junctions, from the sensors there are and some more."""
    nodes = np.concatenate([there, extra])
    seen = days[city.locate(nodes)] + np.sqrt(noise) * rng.standard_normal((len(nodes), 200))
    return np.sqrt(np.mean((known.fit(nodes, seen).predict() - days) ** 2))


free = np.setdiff1d(city.nodes, there)
print(f"{'no more sensors':24}{error(free[:0]):.3f}")
print(
    f"{'12 at random':24}{np.mean([error(rng.choice(free, 12, replace=False)) for _ in range(10)]):.3f}"
)
for criterion, own in chosen.items():
    print(f"{criterion:24}{error(own['node']):.3f}")

# %%
# If a sensor has to go, which would be missed least?
print(gm.remove_sensors(bound, 3, sensors=there, noise=noise).round(4).to_string(index=False))
plt.show()
