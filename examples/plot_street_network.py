"""
Streets of OSMnx, and back
==========================

OSMnx gives street networks as networkx graphs with lengths and curved geometry, each street once per direction.
``gm.interop.from_osmnx`` keeps all of it; predictions return as node attributes. The network here has OSMnx's format
but is made by hand, so that the example runs without a connection.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from shapely import LineString

import graphmatern as gm

rng = np.random.default_rng(8)
grid = nx.grid_2d_graph(9, 6)
streets = nx.MultiDiGraph(crs="epsg:32632")
for number, (column, row) in enumerate(grid.nodes):
    streets.add_node(
        number, x=120.0 * column + rng.normal(0, 12), y=100.0 * row + rng.normal(0, 12)
    )
number_of = {node: number for number, node in enumerate(grid.nodes)}
for way, (one, other) in enumerate(grid.edges):
    u, v = number_of[one], number_of[other]
    ends = np.array([[streets.nodes[node][axis] for axis in "xy"] for node in (u, v)])
    bend = ends.mean(axis=0) + rng.normal(0, 15, 2)
    line = LineString([ends[0], bend, ends[1]])
    streets.add_edge(u, v, osmid=way, length=line.length, reversed=False, geometry=line)
    if rng.random() < 0.8:  # the others are one-way streets
        streets.add_edge(
            v, u, osmid=way, length=line.length, reversed=True, geometry=line.reverse()
        )

# %%
graph = gm.interop.from_osmnx(streets)
print(f"{streets.number_of_edges()} directed edges, {graph.n_edges} streets")
print(graph.edges.drop(columns="geometry").head(3))

# %%
# A model of noise levels, from a few corners; its predictions become attributes of the corners.
truth = gm.Matern(nu=2, lengthscale=6.0).on(graph).sample(random_state=9)[0].numpy() * 5 + 60
corners = rng.permutation(graph.n_nodes)[:20]
model = gm.GraphGPRegressor(graph, gm.Matern(nu=2)).fit(graph.nodes[corners], truth[corners])
table = model.predict_table()
nx.set_node_attributes(streets, table.to_dict("index"))
print("corner 13:", {name: round(float(streets.nodes[13][name]), 1) for name in ("mean", "std")})

# %%
# Geometry is drawn as given, and passed on to networkx and PyTorch Geometric objects.
plain = graph.to_networkx(attributes=table)
print(f"networkx: {plain.number_of_edges()} edges, corner 13 at {plain.nodes[13]['pos'][0]:.0f} m")
ax = gm.plotting.plot_field(graph, table["mean"], label="decibels", marked=graph.nodes[corners])
ax.set_title("noise at corners, measured at the marked ones")
plt.show()
