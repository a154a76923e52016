"""What an installed copy must be able to do, run by ``make dist`` in an empty environment and an empty folder.

Only what the package itself requires may be imported here.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import numpy as np

import graphmatern as gm


def main() -> None:
    """Fit, predict, save, report; in Python and from two files."""
    package = Path(gm.__file__).parent
    assert "site-packages" in package.parts, f"not the installed package: {package}"
    assert importlib.metadata.version("graphmatern") == gm.__version__
    assert (package / "py.typed").exists()
    for name in gm.__all__:
        getattr(gm, name)

    roads = gm.make_roads(300, seed=0)
    truth = gm.Matern(nu=2, lengthscale=8.0).on(roads).sample(random_state=0).numpy()[0]
    sensors = roads.nodes[::3]
    readings = truth[sensors] + 0.1 * np.random.default_rng(0).standard_normal(len(sensors))
    for engine in ("spectral", "markov", "moments"):
        kernel = gm.Matern(nu=2, lengthscale=8.0, fixed=("nu",))
        model = gm.GraphGPRegressor(roads, kernel, engine=engine, integrate=False, verbose=False)
        model.fit(sensors, readings)
        error = float(np.sqrt(np.mean((model.predict() - truth) ** 2)))
        print(f"{engine}: error {error:.3f}")
        assert error < 0.5
    model.save("roads.gm")
    assert np.allclose(gm.load("roads.gm").predict(), model.predict())
    model.report("roads.html")
    assert Path("roads.html").stat().st_size > 50_000  # its script is packed with it
    model.plot()[0].figure.savefig("roads.png")
    busy = gm.GraphGPClassifier(roads, integrate=False, verbose=False).fit(sensors, truth[sensors] > 0)
    assert busy.score(roads.nodes, truth > 0) > 0.8

    roads.edges[["source", "target", "length"]].to_csv("roads.csv", index=False)
    values = "\n".join(f"{node},{reading:.4f}" for node, reading in zip(sensors, readings, strict=True))
    Path("values.csv").write_text(f"node,value\n{values}\n")
    program = str(Path(sys.executable).with_name("graphmatern"))
    command = [str(program), "fit", "roads.csv", "values.csv", "--out", "model.gm", "--predict", "everywhere.csv"]
    subprocess.run(command, check=True)
    assert len(Path("everywhere.csv").read_text().splitlines()) == roads.n_nodes + 1
    print(f"graphmatern {gm.__version__} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
