"""Matérn kernels through sparse precisions: of integer smoothness exactly, of any other by sums of Markov fields."""
