"""
Prior variance depends on the graph
===================================

On a line, a stationary kernel gives every point the same variance. On a graph the variance follows the structure: it is
large where little holds a node in place, for instance at the end of a road. ``variance`` is the average over the nodes.
"""

import matplotlib.pyplot as plt
import networkx as nx

import graphmatern as gm

kernel = gm.Matern(nu=1.5, lengthscale=2.0)
graphs = {
    "complete: all nodes are alike": gm.Graph.from_networkx(nx.complete_graph(12)),
    "star: the centre is held by all": gm.Graph.from_networkx(nx.star_graph(11)),
    "tree: the leaves are free": gm.Graph.from_networkx(nx.balanced_tree(2, 4)),
    "two nodes of equal degree may differ": gm.Graph.from_networkx(nx.lollipop_graph(8, 6)),
}
figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
for ax, (title, graph) in zip(axes.flat, graphs.items(), strict=True):
    gm.plotting.plot_variance(kernel.on(graph), ax).set_title(title)

# %%
# On the normalised Laplacian the star's centre has the *largest* variance, because its degree is divided out. Which one is
# right depends on the question; the paper's traffic experiment prefers the plain Laplacian.
star = graphs["star: the centre is held by all"]
for normalized in (False, True):
    variance = kernel.on(star, normalized=normalized).diag()
    print(f"normalized={normalized}: centre {variance[0]:.2f}, leaves {variance[1]:.2f}")

# %%
# A city: dead-end roads stand out.
city = gm.make_city(1500, seed=3)
gm.plotting.plot_variance(gm.Matern(nu=1.5, lengthscale=5.0).on(city))
plt.show()
