"""
Features and the graph
======================

Papers cite each other, and have words. Neither says all: here half of the papers use words of their topic, and
citations join topics as well. A process with a part on the graph and a part on smoothed words uses both.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array

import graphmatern as gm

rng = np.random.default_rng(3)
n, topics = 400, 3
topic = rng.integers(0, topics, n)
cites = [(i, j) for i in range(n) for j in rng.choice(n, 20, replace=False) if i != j]
cites = [(i, j) for i, j in cites if rng.random() < (0.35 if topic[i] == topic[j] else 0.08)]
graph = gm.Graph.from_edges(cites, nodes=np.arange(n))
rate = np.where(np.arange(60) // 20 == topic[:, None], 0.4, 0.05)
words = csr_array(rng.poisson(np.where(rng.random((n, 1)) < 0.5, rate, 0.1)).astype(float))

labelled = np.concatenate(
    [rng.choice(np.flatnonzero(topic == k), 8, replace=False) for k in range(topics)]
)
others = np.setdiff1d(np.arange(n), labelled)

# %%
# The same labels, three kernels.
kernels = {
    "graph alone": (gm.Matern(nu=1.5, lengthscale=3.0), None),
    "words alone": (gm.CosineFeatures(filter="none"), words),
    "graph and smoothed words": (gm.Matern(nu=1.5, lengthscale=3.0) + gm.CosineFeatures(), words),
}
scores = {}
for name, (kernel, features) in kernels.items():
    model = gm.GraphGPClassifier(
        graph, kernel, features=features, normalized=False, integrate=False
    )
    model.fit(labelled, topic[labelled])
    scores[name] = model.score(others, topic[others])
    print(f"{name}: {scores[name]:.2f} right, log evidence {model.elbo_:.1f}")
print(model.summary())

# %%
# With so few labels neither the evidence, which has seen the labelled papers only, nor a single split decides much.
figure, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
ax.barh(list(scores), list(scores.values()), color="C0", height=0.5)
ax.axvline(1 / topics, color="0.5", linestyle="--", linewidth=1)
ax.set(xlabel="share of topics predicted right", xlim=(0, 1))
ax.spines[["top", "right"]].set_visible(False)
plt.show()
