"""Matérn kernels of integer smoothness, through sparse precisions."""
