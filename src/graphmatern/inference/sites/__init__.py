"""Likelihoods on processes: Gaussian noise, whose sites are known, and any other, whose sites are found."""
