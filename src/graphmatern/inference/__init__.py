"""Inference: engines behind one seam, and what learns and predicts with any of them."""

from graphmatern.inference.engines import ENGINES, EngineCost, choose_engine, predict_costs, register_engine
from graphmatern.inference.features.matrix import FeatureMatrix
from graphmatern.inference.learning.default_priors import with_default_priors
from graphmatern.inference.learning.integrate import Component, Integrated
from graphmatern.inference.learning.learn import learn, update_weights
from graphmatern.inference.learning.mixing import mixing_prior
from graphmatern.inference.learning.optimize import Optimum
from graphmatern.inference.learning.parameters import PriorsAndBounds, many_weights
from graphmatern.inference.learning.priors import Beta, Gamma, HalfNormal, LogNormal, Normal, OfRoot, PCPrior, Prior
from graphmatern.inference.learning.problem import Fit, Known, Problem, Search
from graphmatern.inference.markov.autograd import sparse_logdet, sparse_solve
from graphmatern.inference.markov.precision import MarkovPrecision, markov_precision
from graphmatern.inference.mixture import Mixture
from graphmatern.inference.observations import Observations
from graphmatern.inference.posterior import Posterior
from graphmatern.inference.process import Conditioned, DataForms, Engine, Predictive, Process, Solution
from graphmatern.inference.sites.classes import sites_of_labels
from graphmatern.inference.spectral.engine import eigenpairs_used
from graphmatern.inference.temperature import learned_temperature, tempered
from graphmatern.inference.weighted import weighted_quantiles

__all__ = [
    "ENGINES",
    "Beta",
    "Component",
    "Conditioned",
    "DataForms",
    "Engine",
    "EngineCost",
    "FeatureMatrix",
    "Fit",
    "Gamma",
    "HalfNormal",
    "Integrated",
    "Known",
    "LogNormal",
    "MarkovPrecision",
    "Mixture",
    "Normal",
    "Observations",
    "OfRoot",
    "Optimum",
    "PCPrior",
    "Posterior",
    "Predictive",
    "Prior",
    "PriorsAndBounds",
    "Problem",
    "Process",
    "Search",
    "Solution",
    "choose_engine",
    "eigenpairs_used",
    "learn",
    "learned_temperature",
    "many_weights",
    "markov_precision",
    "mixing_prior",
    "predict_costs",
    "register_engine",
    "sites_of_labels",
    "sparse_logdet",
    "sparse_solve",
    "tempered",
    "update_weights",
    "weighted_quantiles",
    "with_default_priors",
]
