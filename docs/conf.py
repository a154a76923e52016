"""Sphinx configuration."""

import os
import re
import tempfile
from pathlib import Path

from graphmatern import __version__

root = Path(__file__).parents[1]
project = "graphmatern"
author = "The graphmatern developers"
copyright = author  # noqa: A001
release = version = __version__
extensions = [
    "matplotlib.sphinxext.plot_directive",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
autosummary_generate = True
templates_path = ["_templates"]
numpydoc_show_class_members = False
autodoc_typehints = "none"
exclude_patterns = ["_build", "_templates", "gallery/backreferences", "sg_execution_times.rst"]

html_theme = "pydata_sphinx_theme"
html_title = f"graphmatern {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "logo": {"text": "graphmatern", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "navbar_align": "left",
    "navbar_end": ["version", "theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "secondary_sidebar_items": {
        "**": ["page-toc", "sg_download_links", "edit"],
        "gallery/index": [],
        "index": [],
    },
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "changelog": [], "gallery/**": []}

# Where the sources are published, for "edit this page": https://host/owner/name/edit/branch. Else files are named.
html_context = {"edit_url": os.environ.get("GRAPHMATERN_EDIT_URL", "").rstrip("/")}

# What is copied from a block that shows a session are the commands.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Pictures of the guide are drawn by the code above them.
plot_include_source = True
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 100)]
plot_pre_code = ""
plot_working_directory = tempfile.mkdtemp()  # what a page saves is not kept

# Examples on real data are run where the data are at hand, else only shown: building the pages downloads nothing.
examples = root / "examples"
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


def write_changelog(_app: object) -> None:
    """Make a page of CHANGELOG.md, which needs little: headings, lists and code."""
    text = re.sub(r"`([^`\n]+)`", r"``\1``", (root / "CHANGELOG.md").read_text())
    for marks, line in (("# ", "="), ("## ", "-"), ("### ", "~")):
        text = re.sub(
            rf"^{marks}(.+)$", lambda found, line=line: f"{found[1]}\n{line * len(found[1])}", text, flags=re.M
        )
    (root / "docs" / "changelog.rst").write_text(text)


def setup(app: object) -> None:
    """Sphinx asks for this."""
    app.connect("builder-inited", write_changelog)  # type: ignore[attr-defined]
