"""GeometricKernels' Matérn kernel on graphs in GPyTorch's exact and variational Gaussian processes."""

from __future__ import annotations

import math

import common
import numpy as np


def space_of(data, n_pairs):
    """The graph and its eigenpairs: dense by torch where all of them are wanted or the graph is small, else sparse."""
    import geometric_kernels.torch  # noqa: F401 - switches the backend on
    import torch
    from geometric_kernels.spaces import Graph

    weights = common.weights_of(data)
    n = weights.shape[0]
    if n_pairs is None or n_pairs >= n or n <= 2000:
        space = Graph(torch.as_tensor(weights.toarray()))
        space.get_eigensystem(n_pairs or n)
        return space
    import scipy.sparse as sp

    space = Graph(sp.csr_matrix(weights))
    vectors, values = space.get_eigensystem(n_pairs)
    space.cache[n_pairs] = (torch.as_tensor(np.ascontiguousarray(vectors)), torch.as_tensor(values))
    return space


def kernel_of(space, n_pairs, nu, trainable_nu):
    from geometric_kernels.frontends.gpytorch import GPyTorchGeometricKernel
    from geometric_kernels.kernels import MaternGeometricKernel

    class NodeKernel(GPyTorchGeometricKernel):
        """GPyTorch's variational strategies hand nodes over as floats, in equal batches, which the space refuses."""

        def forward(self, x1, x2, **keywords):
            batch, first = x1.shape[:-2], (0,) * (x1.dim() - 2)
            found = super().forward(x1[first].long(), x2[first].long(), **keywords)
            return found.expand(*batch, *found.shape)

    base = MaternGeometricKernel(space, num=n_pairs or space.num_vertices)
    return NodeKernel(base, nu=nu, lengthscale=5.0, trainable_nu=trainable_nu)


def exact_model(space, n_pairs, x, y, nu, trainable_nu):
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel_of(space, n_pairs, nu, trainable_nu))

        def forward(self, inputs):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    return Model().double()


def minimise(model, loss_of, optimizer):
    """Adam with the steps of the comparison, or L-BFGS until it is satisfied."""
    import torch

    parameters = [p for p in model.parameters() if p.requires_grad]
    if optimizer["name"] == "adam":
        adam = torch.optim.Adam(parameters, lr=optimizer["rate"])
        for _ in range(optimizer["steps"]):
            adam.zero_grad()
            loss = loss_of()
            loss.backward()
            adam.step()
        return
    lbfgs = torch.optim.LBFGS(parameters, max_iter=200, line_search_fn="strong_wolfe", tolerance_change=1e-6)

    def closure():
        lbfgs.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    lbfgs.step(closure)


def fit_exact(space, n_pairs, data, optimizer, nu, trainable_nu):
    import gpytorch
    import torch

    x, y = torch.as_tensor(data["train"][:, None]), torch.as_tensor(data["y"])
    model = exact_model(space, n_pairs, x, y, nu, trainable_nu)
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    minimise(model, lambda: -likelihood(model(x), y), optimizer)
    with torch.no_grad():
        loss = -likelihood(model(x), y).item() * len(y)
    model.eval()
    return model, loss - 0.5 * len(y) * math.log(2.0 * math.pi)


def predict(model, nodes):
    """Mean and standard deviation of the process, a few nodes at a time."""
    import torch

    means, variances = [], []
    with torch.no_grad():
        for batch in common.in_batches(len(nodes)):
            posterior = model(torch.as_tensor(nodes[batch][:, None]))
            means.append(posterior.mean.numpy())
            variances.append(posterior.variance.numpy())
    return np.concatenate(means), np.sqrt(np.concatenate(variances))


def exactly():
    """Exact settings: no conjugate gradients, no random log-determinants."""
    import gpytorch

    return gpytorch.settings.fast_computations(covar_root_decomposition=False, log_prob=False, solves=False)


def traffic(job):
    data = common.load(job)
    spectrum, space = common.timed(lambda: space_of(data, job["pairs"]))
    with exactly():
        fits, (model, loss) = common.several(
            lambda: fit_exact(space, job["pairs"], data, job["optimizer"], 1.5, True), job["inner"]
        )
        mean, std = predict(model, data["test"])
    std = np.sqrt(std**2 + model.likelihood.noise.item())
    return {"spectrum": spectrum, "fits": fits, "nll": loss, **common.traffic_scores(data, mean, std)}


def scaling(job):
    data = common.load(job)

    nu = (1.5, True) if job.get("learn_nu") else (1.0, False)

    def everything():
        space = space_of(data, job["pairs"])
        model, loss = fit_exact(space, job["pairs"], data, {"name": "lbfgs"}, *nu)
        return *predict(model, np.arange(len(data["truth"]))), loss, model

    with exactly():
        seconds, (mean, std, loss, model) = common.timed(everything)
    learned = float(np.ravel(model.covar_module.base_kernel.nu.detach().numpy())[0])
    return {"seconds": seconds, "nll": loss, "nu": learned, **common.hidden_scores(data, mean, std)}


def coverage(job):
    def intervals(data):
        model, _ = fit_exact(space_of(data, None), None, data, job["optimizer"], 1.5, True)
        return common.normal_intervals(*predict(model, np.arange(len(data["truth"]))))

    with exactly():
        return common.coverage(job, intervals)


def cora(job):
    """Sparse variational process at the training nodes, whitened, full covariances, softmax, Adam."""
    import gpytorch
    import torch

    data = common.load(job)
    n_classes = int(data["labels"].max()) + 1
    spectrum, space = common.timed(lambda: space_of(data, job["pairs"]))
    x, labels = torch.as_tensor(data["train"][:, None]).double(), torch.as_tensor(data["labels"][data["train"]])

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            q = gpytorch.variational.CholeskyVariationalDistribution(len(x), batch_shape=torch.Size([n_classes]))
            one = gpytorch.variational.VariationalStrategy(self, x, q, learn_inducing_locations=False)
            super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(one, num_tasks=n_classes))
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel_of(space, job["pairs"], 1.5, True))

        def forward(self, inputs):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    def fit():
        torch.manual_seed(0)
        model = Model().double()
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=n_classes, mixing_weights=False)
        elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
        model.train()
        minimise(model, lambda: -elbo(model(x), labels), job["optimizer"])
        model.eval()
        return model, likelihood

    fits, (model, likelihood) = common.several(fit, job["inner"])
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(200):
        probabilities = likelihood(model(torch.as_tensor(data["test"][:, None]).double())).probs.mean(0).numpy()
    return {
        "spectrum": spectrum,
        "fits": fits,
        **common.class_scores(data["labels"][data["test"]], probabilities),
    }


if __name__ == "__main__":
    jobs = {"traffic": traffic, "scaling": scaling, "coverage": coverage, "cora": cora}
    common.run(jobs | {"installation": common.installation})
