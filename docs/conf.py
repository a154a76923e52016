"""Sphinx configuration."""

import os
import re
import tempfile
from pathlib import Path

from graphmatern import __version__

project = "graphmatern"
author = "The graphmatern developers"
release = __version__
extensions = [
    "matplotlib.sphinxext.plot_directive",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
autosummary_generate = True
templates_path = ["_templates"]
numpydoc_show_class_members = False
autodoc_typehints = "none"
exclude_patterns = ["_build", "gallery/backreferences", "sg_execution_times.rst"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Gaussian processes on graphs",
    "page_width": "1100px",
    "fixed_sidebar": True,
}

# Pictures of the guide are drawn by the code above them.
plot_include_source = True
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 100)]
plot_pre_code = ""
plot_working_directory = tempfile.mkdtemp()  # what a page saves is not kept

# Examples on real data are run where the data are at hand, else only shown: building the pages downloads nothing.
examples = Path(__file__).parents[1] / "examples"
needs_data = [path.name for path in examples.glob("plot_*.py") if "gm.datasets." in path.read_text()]
left_out = [] if os.environ.get("GRAPHMATERN_DATA") else needs_data
sphinx_gallery_conf = {
    "examples_dirs": [str(examples)],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"plot_(?!" + "|".join(f"{re.escape(name[5:])}$" for name in [*left_out, "plot_nothing"]) + ")",
    "within_subsection_order": "ExampleTitleSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "copyfile_regex": r"(?!)",
    "min_reported_time": 1e9,
    "reset_modules": ("matplotlib",),
}
