"""
Topics of papers from their citations
=====================================

Cora: 2,485 papers, linked where one cites the other. The topics of 140 are known; what are the others about? Only the
citations are used, not the words.
"""

import matplotlib.pyplot as plt
import numpy as np

import graphmatern as gm

data = gm.datasets.load_cora()
print(data.description)
rng = np.random.default_rng(0)
papers = rng.permutation(data.graph.nodes)
known, others = papers[:140], papers[140:]

# %%
# One latent process per topic, all with the same Matérn kernel, whose lengthscale is learned.
kernel = gm.Matern(nu=3, lengthscale=5.0, fixed=("nu",))
model = gm.GraphGPClassifier(data.graph, kernel, n_eigenpairs=500).fit(data.values[known])
print(model.summary())
print(f"accuracy {model.score(others, data.values[others]):.3f}")

# %%
# The layout does not use the topics either, only distances along citations.
axes = model.plot()
axes[0].set_title("most probable topic (140 known: rings)")

# %%
# How often is it right when it says 80 %?
probabilities = model.predict_proba(others)
report = gm.metrics.classification_report(data.values[others], probabilities, model.classes_)
print({name: round(score, 3) for name, score in report.items()})
curve = gm.metrics.reliability_curve(data.values[others], probabilities, model.classes_)
figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1)
ax.plot(curve["confidence"], curve["accuracy"], "o-")
ax.set(
    xlabel="probability of the predicted topic",
    ylabel="share that is right",
    xlim=(0, 1),
    ylim=(0, 1),
)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
