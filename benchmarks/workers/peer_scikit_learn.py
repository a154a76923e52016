"""scikit-learn: Gaussian processes on a kernel computed from eigenpairs, and label spreading."""

from __future__ import annotations

import math
import warnings

import common
import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel


def eigenpairs(data, n_pairs):
    from scipy.linalg import eigh

    values, vectors = eigh(common.laplacian_of(data), driver="evd")
    return np.maximum(values[:n_pairs], 0.0), vectors[:, :n_pairs]


class GraphMatern(Kernel):
    """The paper's Matérn kernel between nodes, of mean variance 1, for scikit-learn; X holds numbers of nodes."""

    def __init__(self, eigenvalues=None, eigenvectors=None, lengthscale=5.0, nu=1.5, fixed_nu=False):
        self.eigenvalues = eigenvalues
        self.eigenvectors = eigenvectors
        self.lengthscale = lengthscale
        self.nu = nu
        self.fixed_nu = fixed_nu

    @property
    def hyperparameter_lengthscale(self):
        return Hyperparameter("lengthscale", "numeric", (1e-2, 1e3))

    @property
    def hyperparameter_nu(self):
        return Hyperparameter("nu", "numeric", "fixed" if self.fixed_nu else (0.1, 20.0))

    def spectral(self):
        """Ψ, scaled to mean variance 1, and its derivatives by the logarithms of lengthscale and nu."""
        shift = 2.0 * self.nu / self.lengthscale**2
        base = shift + self.eigenvalues
        logarithm = -self.nu * np.log(base)
        by_lengthscale = 2.0 * self.nu * shift / base
        by_nu = logarithm - self.nu * shift / base
        psi = np.exp(logarithm - logarithm.max())
        share = psi / psi.sum()
        psi = share * len(self.eigenvectors)
        return psi, [psi * (by_lengthscale - share @ by_lengthscale), psi * (by_nu - share @ by_nu)]

    def __call__(self, X, Y=None, eval_gradient=False):
        left = self.eigenvectors[np.asarray(X, int).ravel()]
        right = left if Y is None else self.eigenvectors[np.asarray(Y, int).ravel()]
        psi, derivatives = self.spectral()
        matrix = (left * psi) @ right.T
        if not eval_gradient:
            return matrix
        wanted = derivatives[:1] if self.fixed_nu else derivatives
        return matrix, np.stack([(left * derivative) @ right.T for derivative in wanted], axis=2)

    def diag(self, X):
        return self.eigenvectors[np.asarray(X, int).ravel()] ** 2 @ self.spectral()[0]

    def is_stationary(self):
        return False

    def __eq__(self, other):
        return self is other

    __hash__ = None


def fit_exact(pairs, data, fixed_nu):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

    nu = 1.0 if fixed_nu else 1.5
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * GraphMatern(*pairs, nu=nu, fixed_nu=fixed_nu)
    model = GaussianProcessRegressor(kernel + WhiteKernel(0.5, (1e-5, 1e2)), alpha=1e-10)
    return model.fit(data["train"][:, None], data["y"])


def nll_of(model, n):
    return -model.log_marginal_likelihood_value_ - 0.5 * n * math.log(2.0 * math.pi)


def traffic(job):
    warnings.simplefilter("ignore")
    data = common.load(job)
    spectrum, pairs = common.timed(lambda: eigenpairs(data, job["pairs"]))
    fits, model = common.several(lambda: fit_exact(pairs, data, False), job["inner"])
    mean, std = model.predict(data["test"][:, None], return_std=True)
    nll = nll_of(model, len(data["y"]))
    return {"spectrum": spectrum, "fits": fits, "nll": nll, **common.traffic_scores(data, mean, std)}


def scaling(job):
    warnings.simplefilter("ignore")
    data = common.load(job)

    def everything():
        model = fit_exact(eigenpairs(data, None), data, not job.get("learn_nu"))
        noise = model.kernel_.k2.noise_level
        batches = [model.predict(nodes[:, None], return_std=True) for nodes in common.in_batches(len(data["truth"]))]
        mean, std = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        return mean, np.sqrt(std**2 - noise), model

    seconds, (mean, std, model) = common.timed(everything)
    learned = {"nll": nll_of(model, len(data["y"])), "nu": float(model.kernel_.k1.k2.nu)}
    return {"seconds": seconds, **learned, **common.hidden_scores(data, mean, std)}


def coverage(job):
    warnings.simplefilter("ignore")

    def intervals(data):
        model = fit_exact(eigenpairs(data, None), data, False)
        mean, std = model.predict(np.arange(len(data["truth"]))[:, None], return_std=True)
        variance = np.maximum(std**2 - model.kernel_.k2.noise_level, 1e-12)  # of the process, not of observations
        return common.normal_intervals(mean, np.sqrt(variance))

    return common.coverage(job, intervals)


def cora(job):
    """One Laplace approximation per class against the rest."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import ConstantKernel

    warnings.simplefilter("ignore")
    data = common.load(job)
    labels = data["labels"]
    spectrum, pairs = common.timed(lambda: eigenpairs(data, job["pairs"]))

    def fit():
        kernel = ConstantKernel(100.0, (1e-2, 1e6)) * GraphMatern(*pairs, lengthscale=20.0, nu=2.0)
        return GaussianProcessClassifier(kernel).fit(data["train"][:, None], labels[data["train"]])

    fits, model = common.several(fit, job["inner"])
    probabilities = np.zeros((len(data["test"]), int(labels.max()) + 1))
    probabilities[:, model.classes_] = model.predict_proba(data["test"][:, None])
    return {"spectrum": spectrum, "fits": fits, **common.class_scores(labels[data["test"]], probabilities)}


def spreading(job):
    """Label spreading on the adjacency matrix: no Gaussian process, no learned parameters."""
    from sklearn.semi_supervised import LabelSpreading

    warnings.simplefilter("ignore")
    data = common.load(job)
    labels, weights = data["labels"], common.weights_of(data).toarray()
    known = np.full(len(labels), -1)
    known[data["train"]] = labels[data["train"]]
    nodes = np.arange(len(labels))[:, None]

    def fit():
        model = LabelSpreading(kernel=lambda x, _: weights[x.astype(int).ravel()], alpha=0.9, max_iter=200)
        return model.fit(nodes, known)

    fits, model = common.several(fit, job["inner"])
    probabilities = np.zeros((len(labels), int(labels.max()) + 1))
    probabilities[:, model.classes_] = model.label_distributions_
    scores = common.class_scores(labels[data["test"]], probabilities[data["test"]])
    return {"spectrum": 0.0, "fits": fits, **scores}


if __name__ == "__main__":
    common.run(
        {
            "traffic": traffic,
            "scaling": scaling,
            "coverage": coverage,
            "cora": cora,
            "spreading": spreading,
            "installation": common.installation,
        }
    )
