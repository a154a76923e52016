"""Sparse Cholesky factorisation with selected inverse, compiled by numba.

For symmetric positive definite matrices A of one sparsity pattern and many sets of values: the pattern is
analysed once (`analyze`), then each matrix is factorised in the same memory (`Analysis.factorize`,
`Factor.update`).  A factor gives log-determinants, solutions and samples, and the entries of A⁻¹ on the
pattern of the factor (`Factor.selected_inverse`): all marginal variances, and exact gradients of
log-determinants, ∂ log det A = tr(A⁻¹ ∂A).

>>> import numpy as np, scipy.sparse as sp
>>> from graphmatern.sparse import analyze
>>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000)).tocsr().tocsc()
>>> analysis = analyze(A)
>>> factor = analysis.factorize(A.data)
>>> x = factor.solve(np.ones(1000))
>>> bool(np.allclose(A @ x, 1.0))
True
>>> variances = factor.selected_inverse().diagonal()
"""

from __future__ import annotations

from graphmatern.sparse._analysis import Analysis, analyze, early_cost, least_cost, predict_cost, separator_cost
from graphmatern.sparse._blas import single_threaded_blas
from graphmatern.sparse._blocks import BlockAnalysis, BlockFactor, BlockInverse
from graphmatern.sparse._factor import Factor, SelectedInverse
from graphmatern.sparse._filter import ChebyshevFilter
from graphmatern.sparse._inverses import small_inverses
from graphmatern.sparse._lanczos import KrylovRows, apply_functions
from graphmatern.sparse._pattern import power_nnz
from graphmatern.sparse._powers import MatrixPolynomial
from graphmatern.sparse._products import ChebyshevProducts, kept_bytes
from graphmatern.sparse._resources import Cost, available_memory, available_threads, format_bytes
from graphmatern.sparse._row_blocks import Rows, signs_of
from graphmatern.sparse._rows import SharedRows, SplitRows, product_seconds
from graphmatern.sparse._small import small_cost
from graphmatern.sparse._threads import Crew
from graphmatern.sparse._triangles import cubed_diagonal

__all__ = [
    "Analysis",
    "BlockAnalysis",
    "BlockFactor",
    "BlockInverse",
    "ChebyshevFilter",
    "ChebyshevProducts",
    "Cost",
    "Crew",
    "Factor",
    "KrylovRows",
    "MatrixPolynomial",
    "Rows",
    "SelectedInverse",
    "SharedRows",
    "SplitRows",
    "analyze",
    "apply_functions",
    "available_memory",
    "available_threads",
    "cubed_diagonal",
    "early_cost",
    "format_bytes",
    "kept_bytes",
    "least_cost",
    "power_nnz",
    "predict_cost",
    "product_seconds",
    "separator_cost",
    "signs_of",
    "single_threaded_blas",
    "small_cost",
    "small_inverses",
]
