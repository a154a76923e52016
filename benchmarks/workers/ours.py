"""graphmatern itself."""

from __future__ import annotations

import math
import time
import warnings

import common
import numpy as np


def graph_of(data):
    import graphmatern as gm

    return gm.Graph.from_adjacency(common.weights_of(data))


def without_constant(model, n):
    """Negative log marginal likelihood without n/2·log 2π."""
    return -model.log_marginal_likelihood_ - 0.5 * n * math.log(2.0 * math.pi)


def traffic(job):
    import graphmatern as gm

    data = common.load(job)
    spectrum = []
    for _ in range(max(job["inner"] // 2, 2)):
        graph = graph_of(data)
        spectrum.append(common.timed(lambda graph=graph: graph.spectrum(job["pairs"]))[0])

    def fit():
        kernel = gm.Matern(1.5, 5.0)
        options = {
            "engine": "spectral",
            "n_eigenpairs": job["pairs"],
            "mean": "zero",
            "integrate": False,
            "verbose": False,
        }
        return gm.GraphGPRegressor(graph, kernel, **options).fit(data["train"], data["y"])

    warnings.simplefilter("ignore")  # the setting leaves eigenpairs out, which is said each time
    fits, model = common.several(fit, job["inner"])
    mean, std = model.predict(data["test"], return_std=True, observation=True)
    return {
        "spectrum": common.warm(spectrum),
        "fits": fits,
        "nll": without_constant(model, len(data["y"])),
        "evaluations": model.n_evaluations_,
        **common.traffic_scores(data, mean, std),
    }


def warm_up():
    """Load or make the compiled code, all of what a fit needs."""
    import graphmatern as gm

    graph = gm.make_roads(4000, seed=1)
    nodes = np.arange(0, 3000, 10)
    model = gm.GraphGPRegressor(
        graph, gm.Matern(1, 3.0, fixed=("nu",)), engine="markov", integrate=False, verbose=False
    )
    model.fit(nodes, np.sin(nodes)).predict(return_std=True)
    graph.spectrum(20)
    return model


def shares():
    """Count the seconds spent in numeric factorisations and selected inverses from now on."""
    from graphmatern.sparse import Factor

    spent = {"factorisations": 0.0, "selected inverses": 0.0}

    def counted(name, function):
        def wrapper(*arguments, **keywords):
            start = time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                spent[name] += time.perf_counter() - start

        return wrapper

    Factor.update_lower = counted("factorisations", Factor.update_lower)
    Factor.selected_inverse = counted("selected inverses", Factor.selected_inverse)
    return spent


def fit_roads(data):
    import graphmatern as gm

    kernel = gm.Matern(1, 5.0, fixed=("nu",))
    model = gm.GraphGPRegressor(graph_of(data), kernel, engine="markov", mean="zero", integrate=False, verbose=False)
    return model.fit(data["train"], data["y"])


def scaling(job):
    data = common.load(job)
    warm_up()
    spent = shares()

    def everything():
        model = fit_roads(data)
        return *model.predict(return_std=True), model

    seconds, (mean, std, model) = common.timed(everything)
    return {
        "seconds": seconds,
        "nll": without_constant(model, len(data["y"])),
        "evaluations": model.n_evaluations_,
        "share": sum(spent.values()) / seconds,
        **{name: value / seconds for name, value in spent.items()},
        **common.hidden_scores(data, mean, std),
    }


def spectrum(job):
    data = common.load(job)
    warm_up()
    graph = graph_of(data)
    seconds, found = common.timed(lambda: graph.spectrum(job["pairs"]))
    return {"seconds": seconds, **residuals(graph.laplacian(), found.eigenvalues, found.eigenvectors)}


def residuals(laplacian, values, vectors):
    errors = np.linalg.norm(laplacian @ vectors - vectors * values, axis=0)
    return {"residual": float(errors.max()), "largest": float(values.max())}


def eigsh(job):
    """SciPy's ARPACK in shift-invert mode, which is what GeometricKernels calls for sparse graphs."""
    from scipy.sparse.linalg import eigsh as arpack

    data = common.load(job)
    laplacian = graph_of(data).laplacian()
    seconds, (values, vectors) = common.timed(lambda: arpack(laplacian, k=job["pairs"], sigma=-1e-5, which="LM"))
    return {"seconds": seconds, **residuals(laplacian, values, vectors)}


def throughput(job):
    """Predictions at all nodes, new predictions with other data, and posterior paths as a stream."""
    data = common.load(job)
    warm_up()
    model = fit_roads(data)
    predicting = common.several(lambda: model.predict(return_std=True), 3)[0]
    start, drawn, total = time.perf_counter(), 0, np.zeros(len(data["truth"]))
    for block in model.iter_samples(job["paths"], random_state=0):
        total += block.sum(axis=0)
        drawn += len(block)
    sampling = time.perf_counter() - start
    mean, std = model.predict(return_std=True)
    z = (total / drawn - mean) / (std / math.sqrt(drawn))
    return {
        "predict": common.warm(predicting),
        "paths": drawn,
        "sampling": sampling,
        "mean_z_squared": float(np.mean(z**2)),  # 1 where the paths have the posterior's mean and spread
    }


def cora(job):
    import graphmatern as gm

    data = common.load(job)
    graph = graph_of(data)
    names, pairs = np.array(graph.nodes), job["pairs"]
    on_precisions = job["inference"] == "markov"  # no spectrum, and a smoothness that is a whole number
    seconds_spectrum = 0.0 if on_precisions else common.timed(lambda: graph.spectrum(pairs))[0]
    warnings.simplefilter("ignore")

    def fit():
        kernel = gm.Matern(3, 5.0, fixed=("nu",)) if on_precisions else gm.Matern(1.5, 5.0)
        # The model that the others fit: the paper's likelihood, one Laplacian, parameters plugged in.
        options = {"likelihood": "robustmax", "normalized": False, "integrate": False, "verbose": False}
        options |= {"inference": job["inference"], "n_eigenpairs": pairs}
        model = gm.GraphGPClassifier(graph, kernel, **options)
        return model.fit(names[data["train"]], data["labels"][data["train"]])

    fits, model = common.several(fit, job["inner"])
    probabilities = np.zeros((len(data["test"]), int(data["labels"].max()) + 1))
    probabilities[:, model.classes_] = np.asarray(model.predict_proba(names[data["test"]]))
    return {
        "spectrum": seconds_spectrum,
        "fits": fits,
        "elbo": float(model.elbo_),
        **common.class_scores(data["labels"][data["test"]], probabilities),
    }


def classes(job):
    """The classifier as it is without options: probabilities at all nodes."""
    import graphmatern as gm

    data = common.load(job)
    warm_up()
    warnings.simplefilter("ignore")

    def classify(graph, nodes, labels):
        model = gm.GraphGPClassifier(graph, verbose=False).fit(graph.nodes[nodes], labels)
        return np.asarray(model.predict_proba()), model

    classify(gm.make_roads(200, seed=1), np.arange(40), np.arange(40) // 10)

    def everything():
        return classify(graph_of(data), data["train"], data["labels"][data["train"]])

    seconds, (found, model) = common.timed(everything)
    probabilities = np.zeros((len(found), common.classes_of(data)[1]))
    probabilities[:, model.classes_] = found
    return common.classified(data, seconds, probabilities, engine=model.engine_)


def counts(job):
    """BYM2 with the case study's priors: parameters and risks of all areas, twice."""
    import graphmatern as gm

    data = common.load(job)
    priors = {"coefficients": gm.Normal(1.0), "sigma": gm.HalfNormal(1.0), "mixing": gm.Beta(0.5, 0.5)}

    def everything():
        graph = graph_of(data)
        model = gm.GraphGPRegressor(
            graph, gm.BYM2(), likelihood="poisson", covariates=data["covariate"][:, None], priors=priors, verbose=False
        )
        model.fit(graph.nodes, data["cases"].astype(int), exposure=data["exposure"])
        risks = model.risk_table()
        parameters = model.hyperparameters_.loc[["sigma", "mixing"]]
        return [*model.coefficients_["mean"], *parameters["mean"]], risks["mean"] * risks.attrs["reference"], model

    (first, later), (parameters, risks, model) = common.several(everything, 2)
    return {
        "seconds": first,
        "later": later,
        "engine": model.engine_,
        "parameters": [float(one) for one in parameters],
        "risks": np.round(risks.to_numpy(), 6).tolist(),
    }


def coverage(job):
    import graphmatern as gm

    warnings.simplefilter("ignore")
    warm_up()

    def intervals(data):
        graph = graph_of(data)
        model = gm.GraphGPRegressor(graph, integrate=job["integrate"], verbose=False)
        table = model.fit(graph.nodes[data["train"]], data["y"]).predict_table()
        return table["mean"], table["std"], table["lower"], table["upper"]

    return common.coverage(job, intervals)


def fractional(job):
    """All parameters learned, ν among them; the engine is the one that is chosen without being named."""
    import graphmatern as gm

    data = common.load(job)
    warm_up()
    small = gm.make_roads(300, seed=1)
    options = {"mean": "zero", "integrate": False, "verbose": False}
    gm.GraphGPRegressor(small, gm.Matern(1.5, 5.0), engine="markov", **options).fit(small.nodes[:150], np.arange(150.0))

    def everything():
        graph = graph_of(data)
        model = gm.GraphGPRegressor(graph, gm.Matern(1.5, 5.0), **options).fit(data["train"], data["y"])
        return *model.predict(return_std=True), model

    seconds, (mean, std, model) = common.timed(everything)
    return {
        "seconds": seconds,
        "engine": model.engine_,
        "nu": model.kernel_.values()["nu"],
        "nll": without_constant(model, len(data["y"])),
        **common.hidden_scores(data, mean, std),
    }


if __name__ == "__main__":
    common.run(
        {
            "classes": classes,
            "counts": counts,
            "coverage": coverage,
            "fractional": fractional,
            "traffic": traffic,
            "scaling": scaling,
            "spectrum": spectrum,
            "eigsh": eigsh,
            "throughput": throughput,
            "cora": cora,
            "installation": common.installation,
        }
    )
