"""Sphinx configuration."""

from graphmatern import __version__

project = "graphmatern"
author = "The graphmatern developers"
release = __version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.mathjax", "numpydoc"]
autosummary_generate = True
templates_path = ["_templates"]
numpydoc_show_class_members = False
autodoc_typehints = "none"
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Gaussian processes on graphs",
    "page_width": "1100px",
    "fixed_sidebar": True,
}
