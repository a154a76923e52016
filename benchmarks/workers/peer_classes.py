"""What people use for a few labels on a graph: scikit-learn's label spreading, and graph convolutions in torch."""

from __future__ import annotations

import warnings

import common
import numpy as np
import scipy.sparse as sp
import torch  # imports are not counted
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelPropagation, LabelSpreading

FOLDS = 4
ALPHAS = (0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
NEIGHBOURS = (1, 3, 5, 10, 20)


def folds_of(data):
    """Pairs of nodes, to learn from and to judge on: the labels in four parts, every class in each where it can be."""
    rng = np.random.default_rng(0)
    train = rng.permutation(data["train"])
    train = train[np.argsort(data["labels"][train], kind="stable")]
    part = np.arange(len(train)) % FOLDS
    return [(train[part != fold], train[part == fold]) for fold in range(FOLDS)]


def chosen_by_labels(data, fit, options, by="log_loss"):
    """The option that is best on labels held out; ``fit`` maps option and nodes to probabilities."""
    labels = data["labels"]
    sign = -1.0 if by == "accuracy" else 1.0
    losses = []
    for option in options:
        found = [(fit(option, kept), held) for kept, held in folds_of(data)]
        losses.append(sign * np.mean([common.class_scores(labels[held], p[held])[by] for p, held in found]))
    return options[int(np.argmin(losses))]


def spread(data, make):
    """Probabilities at all nodes from labels at ``known``; the graph's sparse weights take the place of a kernel."""
    labels, count = data["labels"], common.classes_of(data)[1]
    weights = sp.csr_matrix(common.weights_of(data))
    nodes = np.arange(len(labels))[:, None]

    def fit(option, known):
        given = np.full(len(labels), -1)
        given[known] = labels[known]
        model = make(lambda *_: weights.copy(), option).fit(nodes, given)
        found = np.full((len(labels), count), 1e-12)  # where no label reaches, or a class has none
        found[:, model.classes_] += np.nan_to_num(model.label_distributions_)
        return found / found.sum(axis=1, keepdims=True)

    return fit


def spreading(job, data):
    fit = spread(data, lambda kernel, alpha: LabelSpreading(kernel=kernel, alpha=alpha, max_iter=200))
    choice, alpha = common.timed(lambda: chosen_by_labels(data, fit, ALPHAS, job["by"]))
    return fit(alpha, data["train"]), {"choice": choice, "alpha": alpha}


def propagation(_, data):
    """Nothing to choose: known labels are kept."""
    fit = spread(data, lambda kernel, _: LabelPropagation(kernel=kernel, max_iter=1000))
    return fit(None, data["train"]), {}


def neighbours(_, data):
    """Nearest labelled points, without a graph."""
    labels, count = data["labels"], common.classes_of(data)[1]

    def fit(option, known, where=None):
        model = KNeighborsClassifier(min(option, len(known)), weights="distance").fit(
            data["points"][known], labels[known]
        )
        found = np.full((len(labels), count), 1e-3)  # no probability is zero
        where = np.arange(len(labels)) if where is None else where
        found[np.ix_(where, model.classes_)] += model.predict_proba(data["points"][where])
        return found / found.sum(axis=1, keepdims=True)

    choice, option = common.timed(lambda: chosen_by_labels(data, lambda o, k: fit(o, k, data["train"]), NEIGHBOURS))
    return fit(option, data["train"]), {"choice": choice, "n_neighbors": option}


def convolutions(job, data):
    """Two layers of graph convolutions, 16 hidden units, nodes without features (Kipf and Welling 2017)."""
    torch.manual_seed(0)
    labels, count = torch.as_tensor(data["labels"]), common.classes_of(data)[1]
    weights = common.weights_of(data)
    weights = weights + float(np.mean(weights.data)) * sp.eye_array(weights.shape[0])
    scale = 1.0 / np.sqrt(np.asarray(weights.sum(axis=1)).ravel())
    matrix = sp.csr_array(sp.diags_array(scale) @ weights @ sp.diags_array(scale)).astype(np.float32)
    parts = (torch.as_tensor(matrix.indptr), torch.as_tensor(matrix.indices), torch.as_tensor(matrix.data))
    graph = torch.sparse_csr_tensor(*parts, size=matrix.shape)

    class Product(torch.autograd.Function):
        """The matrix is symmetric, so that the derivative is a product with it as well."""

        @staticmethod
        def forward(_, x):
            return graph @ x

        @staticmethod
        def backward(_, gradient):
            return graph @ gradient.contiguous()

    n, hidden = len(labels), 16
    first = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(n, hidden)))
    second = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(hidden, count)))
    adam = torch.optim.Adam([{"params": [first], "weight_decay": 5e-4}, {"params": [second]}], lr=0.01)
    train = torch.as_tensor(data["train"])

    def logits(training):
        inner = torch.nn.functional.dropout(torch.relu(Product.apply(first)), 0.5, training)
        return Product.apply(inner @ second)

    for _ in range(job["steps"]):
        adam.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits(True)[train], labels[train])
        loss.backward()
        adam.step()
    with torch.no_grad():
        return torch.softmax(logits(False).double(), dim=1).numpy(), {}


def classes(job):
    warnings.simplefilter("ignore")
    data = common.load(job)
    methods = {one.__name__: one for one in (spreading, propagation, neighbours, convolutions)}
    seconds, (probabilities, more) = common.timed(lambda: methods[job["method"]](job, data))
    return common.classified(data, seconds, probabilities, **more)


if __name__ == "__main__":
    common.run({"classes": classes})
