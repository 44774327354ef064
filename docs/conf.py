"""Sphinx makes the site of these pages; `scripts/docs` builds it into build/site.

The source folder is that of the repository, so that links between pages are the same
here and on a forge. `docs/index.md` names all pages in their order. The contents of the
site are its links.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from dplda._version import __version__ as release  # noqa: E402

project = "dplda"
author = "The dplda developers"
copyright = "The dplda developers"
version = release

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "docs/**.rst", "benchmarks/README.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "dplda",
    "examples",
    "scripts",
    "tests",
    "*.egg-info",
    "docs/gallery",
    "docs/_*",
    "benchmarks/peers",
    "benchmarks/papers",
    "benchmarks/asv",
]
# autosummary looks in the source folder
templates_path = [str(ROOT / "docs" / "_templates")]
default_role = "literal"  # `X` in a docstring

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # the form of a formula that every forge draws
myst_heading_anchors = 4  # the names that a forge gives to headings
html_math_renderer = "mathml"

autosummary_generate = True
autodoc_typehints = "none"  # docstrings state types
numpydoc_show_class_members = False  # the template lists them

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "docs" / "gallery"),
    "gallery_dirs": str(ROOT / "docs" / "auto_examples"),
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "docs/auto_examples/backreferences",
    "doc_module": ("dplda",),
    "download_all_examples": False,
    "capture_repr": (),
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 1,
    "image_scrapers": ("matplotlib",),
    "default_thumb_file": str(ROOT / "docs" / "images" / "topics.png"),
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"dplda {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"**": ["all-pages.html"]}
html_theme_options = {
    "logo": {"text": "dplda"},
    "github_url": "https://github.com/dplda/dplda",
    "navbar_center": ["parts.html"],
    "search_as_you_type": True,
    "navigation_with_keys": False,
    "show_version_warning_banner": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}

# Links that are the same on a forge and here, but lead to what Sphinx makes of the
# file.
_GALLERY = re.compile(r"\]\((docs/)?gallery/README\.rst\)")
_EXAMPLE = re.compile(r"\]\((docs/)?gallery/(plot_\w+)\.py\)")
_IN_SHAPE = re.compile(r"(?<=[(, ])([a-z]\w*_)(?=[,)])")
_PAGE = re.compile(r"``(docs/\w+)\.md``")
_LINK = re.compile(r"\]\(([^)#\s]+\.(?:md|rst))\)")


def link_to_pages(text):
    """Lead links to examples to the pages that Sphinx makes of them."""
    text = _GALLERY.sub(r"](\1auto_examples/index.rst)", text)
    return _EXAMPLE.sub(r"](\1auto_examples/\2.rst)", text)


def contents(index):
    """The contents of the site: for each heading of the index, the pages it links to.

    Parameters
    ----------
    index : str
        The text of `docs/index.md`.

    Returns
    -------
    parts : dict of str to list of str
        A page is in the part that names it first.
    """
    parts, seen = {}, set()
    for section in link_to_pages(index).split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        pages = [
            page for page in dict.fromkeys(_LINK.findall(body)) if page not in seen
        ]
        seen.update(pages)
        parts[heading.strip()] = pages
    return parts


def _read_source(app, docname, source):
    source[0] = link_to_pages(source[0])
    if docname == root_doc:
        for heading, pages in contents(source[0]).items():
            options = f":hidden:\n:caption: {heading}\n"
            source[0] += (
                f"\n\n```{{toctree}}\n{options}\n" + "\n".join(pages) + "\n```\n"
            )


def _skip_foreign(app, what, name, obj, skip, options):
    """Leave out what a class inherits from another package."""
    module = getattr(getattr(obj, "fget", obj), "__module__", None)
    return True if module and module.split(".")[0] != "dplda" else None


def _read_docstring(app, what, name, obj, options, lines):
    """Link pages, and quote attributes in shapes such as (n_features_in_,).

    reST would take them for links.
    """
    lines[:] = [
        _PAGE.sub(r":doc:`\1 </\1>`", _IN_SHAPE.sub(r"`\1`", line)) for line in lines
    ]


def _write_formula(block):
    """How a formula is written as MathML; an unknown command ends the build."""
    from docutils.nodes import SkipNode
    from docutils.utils.math.latex2mathml import tex2mathml

    def visit(writer, node):
        tag = "div" if block else "span"
        formula = tex2mathml(node.astext().strip(), as_block=block)
        writer.body.append(f'<{tag} class="formula">{formula}</{tag}>')
        raise SkipNode

    return visit


def setup(app):
    """Formulas become MathML, which browsers draw without scripts or a network."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(_write_formula(False), None),
        block_renderers=(_write_formula(True), None),
    )
    app.connect("source-read", _read_source)
    app.connect("autodoc-skip-member", _skip_foreign)
    # before numpydoc
    app.connect("autodoc-process-docstring", _read_docstring, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
