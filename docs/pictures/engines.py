"""Who wins where: seconds of one fit through each engine, from evidence/engine_grid.csv."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

COLOURS = {"spectral": "#4477aa", "markov": "#228833", "moments": "#ee6677"}
LONGEST = 15.0  # seconds; longer fits were not made

table = pd.read_csv(Path(sys.argv[0]).resolve().parents[2] / "evidence" / "engine_grid.csv")
table["degree"] = table.groupby("graph")["mean_degree"].transform(lambda some: some.round())
table.loc[table["graph"] == "roads", "degree"] = 3.0
kinds = table.groupby(["graph", "degree"], sort=False)
observed = sorted(table["observed"].unique())
figure, axes = plt.subplots(
    len(observed), len(kinds), figsize=(9.5, 5.4), sharex=True, sharey=True, layout="constrained"
)
for column, ((kind, degree), some) in enumerate(kinds):
    for row, count in enumerate(observed):
        ax, here = axes[row, column], some[some["observed"] == count]
        for engine, colour in COLOURS.items():
            own = here[here["engine"] == engine].sort_values("nodes")
            made = own[own["measured"]]
            ax.plot(made["nodes"], made["seconds"], "o-", color=colour, label=engine, ms=5)
            out = own[~own["measured"]]
            ax.plot(out["nodes"], np.full(len(out), LONGEST), "^", color=colour, ms=6, mfc="none")
        ax.set(xscale="log", yscale="log", ylim=(0.03, 5.0 * LONGEST), xlim=(700, 14_000))
        ax.grid(alpha=0.3)
        if row == 0:
            ax.set_title(f"{kind}, mean degree {degree:.0f}")
        if row == len(observed) - 1:
            ax.set_xlabel("nodes")
        if column == 0:
            ax.set_ylabel(f"{count} observed\nseconds, one processor")
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
