"""
Finding the best junction with few measurements
===============================================

Where in a city is the air worst? Each measurement costs a morning. Bayesian optimisation chooses the next junction from
a model of the previous ones; it needs BoTorch (``pip install 'graphmatern[botorch]'``).
"""

import matplotlib.pyplot as plt
import numpy as np

import graphmatern as gm

city = gm.make_roads(500, seed=5)
pollution = gm.Matern(nu=1.5, lengthscale=8.0).on(city).sample(random_state=6)[0].numpy()
measure = dict(zip(city.nodes, pollution, strict=True)).__getitem__

# %%
# Ten random junctions to start with, then thirty by expected improvement, or by Thompson sampling: the best junction of
# a function drawn from the posterior.
rules = ("expected_improvement", "thompson")
options = {"n_evaluations": 40, "n_eigenpairs": 200, "random_state": 2}
searches = {
    rule: gm.interop.maximize_over_nodes(city, measure, rule=rule, **options) for rule in rules
}
searches["random"] = searches["thompson"].assign(
    value=pollution[np.random.default_rng(3).permutation(city.n_nodes)[:40]]
)
for name, table in searches.items():
    print(f"{name:22} best of 40: {table['value'].max():.3f}   (truth {pollution.max():.3f})")

# %%
# The same by hand, for models and acquisition functions of your own: a BoTorch model of the first ten, its suggestion,
# and five functions that it considers possible.
start = searches["thompson"].head(10)
model = gm.interop.node_model(city, start["node"], start["value"])
print("next:", gm.interop.suggest_nodes(model)[0])
draws = gm.interop.pathwise_samples(model, 5, random_state=0)
print("best junctions of five draws:", list(city.nodes[draws.argmax(dim=1).numpy()]))

fig, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
measured = searches["expected_improvement"]["node"]
gm.plotting.plot_field(city, pollution, axes[0], label="pollution", marked=measured)
axes[0].set_title("measured junctions, by expected improvement")
for (name, table), colour in zip(searches.items(), ("#332288", "#AA4499", "0.6"), strict=True):
    axes[1].step(
        np.arange(1, 41),
        table["value"].cummax(),
        where="post",
        color=colour,
        label=name.replace("_", " "),
    )
axes[1].axhline(pollution.max(), color="k", linewidth=0.8, linestyle=":")
axes[1].set(xlabel="measurements", ylabel="best value so far", title="search")
axes[1].legend(loc="lower right")
plt.show()
