"""What the programs that measure have in common: their argument, their answer, scores. Needs NumPy only.

A worker is run as ``python WORKER.py '{"job": ..., ...}'`` in the environment of one library, and prints its answer as
the last line. It reads its data from a file that the harness has made, so that all libraries get the same numbers.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
import traceback
from pathlib import Path

import numpy as np

MARK = "RESULT "


def run(jobs):
    """Run the job that the command line names; print its answer and the peak memory of this process."""
    job = json.loads(sys.argv[1])
    try:
        answer = jobs[job["job"]](job)
    except MemoryError:
        answer = {"error": "out of memory"}
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs in the report
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {short(str(error))}"[:300]}
    answer["peak_bytes"] = peak_bytes()
    print(MARK + json.dumps(answer), flush=True)
    os._exit(0)  # the interpreters of some libraries take seconds to shut down


def short(message):
    """The first line of a message; where that only announces what follows, the last one as well."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or [""]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


def peak_bytes():
    """Largest memory this process ever held."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def timed(function):
    start = time.perf_counter()
    value = function()
    return time.perf_counter() - start, value


def several(function, count):
    """Seconds of each of ``count`` calls, and the value of the last; the first call is a cold one."""
    runs = [timed(function) for _ in range(count)]
    return [seconds for seconds, _ in runs], runs[-1][1]


def warm(seconds):
    """Median without the first, cold, call."""
    return float(np.median(seconds[1:] or seconds))


def load(job):
    """Arrays of the input file."""
    with np.load(job["input"]) as file:
        return {name: file[name] for name in file.files}


def weights_of(data):
    import scipy.sparse as sp

    n = len(data["indptr"]) - 1
    return sp.csr_array((data["data"], data["indices"], data["indptr"]), shape=(n, n))


def laplacian_of(data):
    """Δ = D − W, dense."""
    weights = weights_of(data).toarray()
    return np.diag(weights.sum(axis=1)) - weights


def scores(truth, mean, std):
    """Root mean squared error, negative log predictive density and coverage of 95 % intervals."""
    standard = (truth - mean) / std
    return {
        "rmse": float(np.sqrt(np.mean((truth - mean) ** 2))),
        "nlpd": float(np.mean(0.5 * standard**2 + np.log(std) + 0.5 * math.log(2.0 * math.pi))),
        "coverage": float(np.mean(np.abs(standard) < 1.959963984540054)),
    }


def hidden_scores(data, mean, std):
    """Scores against the true field where it was not observed."""
    hidden = np.setdiff1d(np.arange(len(data["truth"])), data["train"])
    return scores(data["truth"][hidden], mean[hidden], std[hidden])


def traffic_scores(data, mean, std):
    """Scores of predictions of new observations in normalised units, in miles per hour."""
    scale, centre = float(data["y_scale"]), float(data["y_mean"])
    return scores(data["test_y"], centre + scale * mean, scale * std)


def class_scores(truth, probabilities, n_bins=10):
    """Accuracy, log loss, and the expected calibration error."""
    chosen, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    right = chosen == truth
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    return {
        "accuracy": float(right.mean()),
        "log_loss": float(-np.log(np.maximum(probabilities[np.arange(len(truth)), truth], 1e-12)).mean()),
        "calibration": float(np.abs(np.bincount(bins, right - confidence, n_bins)).sum() / len(truth)),
    }


def in_batches(n, size=2000):
    for start in range(0, n, size):
        yield np.arange(start, min(n, start + size))


def classes_of(data):
    """Nodes to judge on: those given, or all that have no label; and the number of classes."""
    labels = data["labels"]
    test = data["test"] if "test" in data else np.setdiff1d(np.arange(len(labels)), data["train"])
    return test, int(labels.max()) + 1


def classified(data, seconds, probabilities, **more):
    """What a classifier answers: seconds from the graph to ``probabilities`` at all nodes, and their scores."""
    test, count = classes_of(data)
    sizes = {"nodes": len(data["labels"]), "labels": len(data["train"]), "classes": count}
    return {"seconds": seconds, **sizes, **more, **class_scores(data["labels"][test], probabilities[test])}


def simulations(data):
    """The simulations of one input file, each as a file of its own would be."""
    for number in range(int(data["count"])):
        prefix = f"{number}/"
        yield {name.removeprefix(prefix): value for name, value in data.items() if name.startswith(prefix)}


def coverage(job, intervals):
    """Shares of hidden nodes inside 95 % intervals; ``intervals`` maps data to mean, std, lower and upper."""
    found = {"shares": [], "widths": [], "nlpds": [], "fits": [], "tried": 0}
    for data in simulations(load(job)):
        found["tried"] += 1
        try:
            seconds, answer = timed(lambda data=data: intervals(data))
            mean, std, lower, upper = (np.asarray(part, float) for part in answer)
            if not np.isfinite(mean + std).all():
                raise ArithmeticError("no number")
        except Exception:  # noqa: BLE001 - a fit that fails is counted as such
            traceback.print_exc()
            continue
        hidden = np.setdiff1d(np.arange(len(data["truth"])), data["train"])
        truth = data["truth"][hidden]
        found["shares"].append(float(np.mean((lower[hidden] <= truth) & (truth <= upper[hidden]))))
        found["widths"].append(float(np.mean(upper[hidden] - lower[hidden])))
        found["nlpds"].append(scores(truth, mean[hidden], std[hidden])["nlpd"])
        found["fits"].append(seconds)
    if not found["shares"]:
        raise ArithmeticError("every simulation failed")
    return found | {"seconds": sum(found["fits"])}


def normal_intervals(mean, std):
    """Mean, std and the central 95 % of a normal distribution."""
    half = 1.959963984540054 * std
    return mean, std, mean - half, mean + half


def installed_bytes(roots):
    """Bytes on disk of packages and of all that they require."""
    from importlib.metadata import PackageNotFoundError, distribution

    seen, waiting, total = set(), list(roots), 0
    while waiting:
        name = re.split(r"[^A-Za-z0-9._-]", waiting.pop().strip())[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        for file in package.files or []:
            path = package.locate_file(file)
            if Path(path).is_file():
                total += Path(path).stat().st_size
        waiting += [wanted for wanted in package.requires or [] if "extra ==" not in wanted]
    return total


def installation(job):
    return {"installed_bytes": installed_bytes(job["packages"])}
