"""How the site is built: `make docs`, then open docs/_build/html/index.html.

Nothing here needs the network. Links to the reference of NumPy, scikit-learn and the like are made if their
inventories can be fetched within a few seconds, and are plain text otherwise.
"""

from __future__ import annotations

import os
import sys
import urllib.request
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # the same bits on every machine
os.environ.setdefault("FAIRSTREAM_DITHER_KEY", "a key for the examples, which is not secret")

import fairstream  # noqa: E402

project = "fairstream"
author = "The fairstream developers"
copyright = author  # noqa: A001
version = release = fairstream.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_click",
    "sphinx_gallery.gen_gallery",
    "user_tasks",
    "plain_tables",
    "sample_report",
]
root_doc = "index"
exclude_patterns = ["_build", "_extensions", "_templates", "auto_examples/*.py", "auto_examples/**/*.ipynb"]
templates_path = ["_templates"]
nitpicky = True
suppress_warnings = [
    "config.cache",  # the order of the gallery is an object
]

# References -----------------------------------------------------------------------------------------------

autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"  # the text of each parameter says what it takes
autodoc_member_order = "bysource"
autoclass_content = "class"
numpydoc_show_class_members = False
toc_object_entries_show_parents = "hide"  # in the margin, `FairStreamingPCA.fit()` would be cut off
numpydoc_xref_param_type = False
default_role = "code"  # `name` in a docstring is a name, not a reference that must resolve
nitpick_ignore_regex = [
    (r"py:obj", r"\w+_"),  # attributes that a class lists
    # Names of other packages, without their inventories
    (r"py:.*", r"(numpy|scipy|sklearn|pandas|pyarrow|polars|torch|dask|distributed|collections|typing)\b.*"),
    (
        r"py:class",
        r"(object|Exception|ValueError|KeyboardInterrupt|UserWarning|list|tuple|dict|str|float|int)",
    ),
]
PEERS = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "sklearn": "https://scikit-learn.org/stable/",
}


def reachable_inventories() -> dict[str, tuple[str, str]]:
    """Fetch the inventories that can be had; a build without a network has none, and does not fail."""
    folder = HERE / "_build" / "inventories"
    found = {}
    for name, address in PEERS.items():
        file = folder / f"{name}.inv"
        if not file.exists():
            try:
                with urllib.request.urlopen(f"{address}objects.inv", timeout=3) as answer:
                    content = answer.read()
            except OSError:
                continue
            if not content.startswith(b"# Sphinx inventory"):
                continue
            folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        found[name] = (address, str(file))
    return found


intersphinx_mapping = reachable_inventories()

# Markdown -------------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# The gallery ----------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "gallery_order.ByList",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "remove_config_comments": True,
    "plot_gallery": "True",
    "reset_modules": ("matplotlib",),
    "image_scrapers": ("matplotlib", "result_figures.scrape"),
    "matplotlib_animations": False,
    "backreferences_dir": None,
    # The drawing that scikit-learn makes of an estimator complains in the browser's console.
    "ignore_repr_types": r"fairstream|sklearn",
    "copyfile_regex": r".*\.csv",
}
warnings.filterwarnings("ignore", message=".*non-interactive.*", category=UserWarning)

# The pages ------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "fairstream"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_nav_level": 1,
    "navigation_depth": 2,  # single names and examples are listed, in groups, on pages of their own
    "navbar_align": "left",
    "back_to_top_button": True,
}
html_context = {"default_mode": "auto"}  # as the system has it, light or dark
html_sidebars = {"index": []}
