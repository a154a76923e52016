"""Scores of predictions with uncertainty, against held-out values.

Functions of numbers drop cells whose true value is NaN (not observed) and average over the rest.
"""

from graphmatern.metrics._classes import (
    accuracy,
    classification_report,
    expected_calibration_error,
    log_loss,
    reliability_curve,
)
from graphmatern.metrics._numbers import (
    calibration_curve,
    coverage,
    crps,
    crps_from_draws,
    crps_from_quantiles,
    half_width,
    nlpd,
    r2,
    regression_report,
    rmse,
)

__all__ = [
    "accuracy",
    "calibration_curve",
    "classification_report",
    "coverage",
    "crps",
    "crps_from_draws",
    "crps_from_quantiles",
    "expected_calibration_error",
    "half_width",
    "log_loss",
    "nlpd",
    "r2",
    "regression_report",
    "reliability_curve",
    "rmse",
]
