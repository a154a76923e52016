"""Inducing nodes and leading eigenvectors."""
