"""GPflow with the paper's kernel, written here from its formula."""

from __future__ import annotations

import math
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import common
import gpflow
import numpy as np
import tensorflow as tf


class GraphMatern(gpflow.kernels.Kernel):
    """K = σ² U Ψ Uᵀ with Ψ = (2ν/κ² + λ)^(−ν), scaled to mean variance σ²; inputs are numbers of nodes."""

    def __init__(self, eigenvalues, eigenvectors, nu=1.5, fixed_nu=False):
        super().__init__()
        self.eigenvalues = tf.constant(eigenvalues)
        self.eigenvectors = tf.constant(eigenvectors)
        positive = gpflow.utilities.positive()
        self.nu = gpflow.Parameter(nu, transform=positive, trainable=not fixed_nu)
        self.lengthscale = gpflow.Parameter(5.0, transform=positive)
        self.variance = gpflow.Parameter(1.0, transform=positive)

    def psi(self):
        logarithm = -self.nu * tf.math.log(2.0 * self.nu / self.lengthscale**2 + self.eigenvalues)
        n = tf.cast(tf.shape(self.eigenvectors)[0], logarithm.dtype)
        return self.variance * n * tf.nn.softmax(logarithm)

    def rows(self, nodes):
        return tf.gather(self.eigenvectors, tf.cast(nodes[..., 0], tf.int32))

    def K(self, X, X2=None):  # noqa: N802 - GPflow's name
        left = self.rows(X)
        right = left if X2 is None else self.rows(X2)
        return tf.matmul(left * self.psi(), right, transpose_b=True)

    def K_diag(self, X):  # noqa: N802
        return tf.linalg.matvec(self.rows(X) ** 2, self.psi())


def eigenpairs(data, n_pairs):
    values, vectors = np.linalg.eigh(common.laplacian_of(data))  # TensorFlow's own is several times slower
    return np.maximum(values[:n_pairs], 0.0), vectors[:, :n_pairs]


def column(nodes):
    return np.asarray(nodes, float)[:, None]


def fit_exact(pairs, data, nu, fixed_nu):
    model = gpflow.models.GPR(
        (column(data["train"]), data["y"][:, None]), GraphMatern(*pairs, nu, fixed_nu), noise_variance=0.5
    )
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables, options={"maxiter": 500})
    return model


def nll_of(model, n):
    return -float(model.log_marginal_likelihood()) - 0.5 * n * math.log(2.0 * math.pi)


def traffic(job):
    data = common.load(job)
    spectrum, pairs = common.timed(lambda: eigenpairs(data, job["pairs"]))
    fits, model = common.several(lambda: fit_exact(pairs, data, 1.5, False), job["inner"])
    mean, variance = (part.numpy().ravel() for part in model.predict_y(column(data["test"])))
    nll = nll_of(model, len(data["y"]))
    return {"spectrum": spectrum, "fits": fits, "nll": nll, **common.traffic_scores(data, mean, np.sqrt(variance))}


def scaling(job):
    data = common.load(job)

    nu = (1.5, False) if job.get("learn_nu") else (1.0, True)

    def everything():
        model = fit_exact(eigenpairs(data, None), data, *nu)
        batches = [model.predict_f(column(nodes)) for nodes in common.in_batches(len(data["truth"]))]
        mean, variance = (
            np.concatenate([part.numpy().ravel() for part in parts]) for parts in zip(*batches, strict=True)
        )
        return mean, np.sqrt(variance), model

    seconds, (mean, std, model) = common.timed(everything)
    learned = {"nll": nll_of(model, len(data["y"])), "nu": float(model.kernel.nu.numpy())}
    return {"seconds": seconds, **learned, **common.hidden_scores(data, mean, std)}


def coverage(job):
    def intervals(data):
        model = fit_exact(eigenpairs(data, None), data, 1.5, False)
        mean, variance = (part.numpy().ravel() for part in model.predict_f(column(np.arange(len(data["truth"])))))
        return common.normal_intervals(mean, np.sqrt(variance))

    return common.coverage(job, intervals)


def classifier(pairs, data, diagonal):
    n_classes = int(data["labels"].max()) + 1
    likelihood = gpflow.likelihoods.MultiClass(n_classes, gpflow.likelihoods.RobustMax(n_classes, epsilon=1e-3))
    model = gpflow.models.SVGP(
        GraphMatern(*pairs),
        likelihood,
        column(data["train"]),
        num_latent_gps=n_classes,
        q_diag=diagonal,
        whiten=True,
        num_data=len(data["train"]),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def adam_steps(loss, variables, rate, steps):
    adam = tf.keras.optimizers.Adam(rate)
    adam.build(variables)

    @tf.function
    def step():
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    for _ in range(steps):
        step()


def cora(job):
    """The paper's recipe (diagonal covariances, Adam at 0.001), or natural gradients with Adam for the kernel."""
    data = common.load(job)
    labels = data["labels"]
    spectrum, pairs = common.timed(lambda: eigenpairs(data, job["pairs"]))
    given = (column(data["train"]), labels[data["train"]][:, None].astype(float))

    def fit():
        recipe = job["recipe"]
        model = classifier(pairs, data, diagonal=recipe == "paper")
        loss = model.training_loss_closure(given, compile=False)
        if recipe == "paper":
            adam_steps(loss, model.trainable_variables, 0.001, job["steps"])
            return model
        gpflow.set_trainable(model.q_mu, False)
        gpflow.set_trainable(model.q_sqrt, False)
        natural = gpflow.optimizers.NaturalGradient(gamma=0.1)
        adam = tf.keras.optimizers.Adam(0.05)
        kernel = model.trainable_variables
        adam.build(kernel)

        @tf.function
        def step():
            natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(kernel)
                value = loss()
            adam.apply_gradients(zip(tape.gradient(value, kernel), kernel, strict=True))

        for _ in range(job["steps"]):
            step()
        return model

    fits, model = common.several(fit, job["inner"])
    probabilities = model.predict_y(column(data["test"]))[0].numpy()
    return {
        "spectrum": spectrum,
        "fits": fits,
        "elbo": float(model.elbo(given)),
        **common.class_scores(labels[data["test"]], probabilities / probabilities.sum(axis=1, keepdims=True)),
    }


if __name__ == "__main__":
    jobs = {"traffic": traffic, "scaling": scaling, "coverage": coverage, "cora": cora}
    common.run(jobs | {"installation": common.installation})
