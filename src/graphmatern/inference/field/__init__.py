"""Fields on nodes × times: a kernel on the graph times a kernel on time, by whichever method is cheapest."""

from graphmatern.inference.field.covariance import FieldEffects, FieldGrid
from graphmatern.inference.field.fill_in import IterativeOptions
from graphmatern.inference.field.learn import learn_field, update_field
from graphmatern.inference.field.methods import choose_method, default_probes
from graphmatern.inference.field.posterior import FieldMixture, FieldPosterior
from graphmatern.inference.field.problem import FieldProblem, median_gap, order_of
from graphmatern.inference.field.time_kernel import TimeKernel
from graphmatern.inference.field.time_kernel_files import time_kernel_from_plain, time_kernel_to_plain

__all__ = [
    "FieldEffects",
    "FieldGrid",
    "FieldMixture",
    "FieldPosterior",
    "FieldProblem",
    "IterativeOptions",
    "TimeKernel",
    "choose_method",
    "default_probes",
    "learn_field",
    "median_gap",
    "order_of",
    "time_kernel_from_plain",
    "time_kernel_to_plain",
    "update_field",
]
