"""A page of public texts, and its picture for docs/report.md and the README.

``python benchmarks/report.py [--picture docs/images/report.png] [--page FILE]``

The texts are the WordNet glosses that dplda holds, by the field of WordNet: K = 20,
epsilon 4 for the topics and 1 for the counts, delta = 1e-6, the document is protected.
The picture needs Debian's packages chromium and python3-pil.
"""

import argparse
import asyncio
import sys
import tempfile
import warnings
from pathlib import Path

from dplda import PrivateTopicModel, load_release, private_topic_counts
from dplda.datasets import load_wordnet_glosses

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
WIDTH, HEIGHT = 1280, 1330
COLORS = 48


def page(path: Path) -> None:
    glosses = load_wordnet_glosses()
    model = PrivateTopicModel(20, epsilon=4.0).fit(glosses.data)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "topics.dplda"))
        released = load_release(Path(folder, "topics.dplda"))
    counts = private_topic_counts(
        released,
        glosses.data,
        by={"field": [glosses.target_names[field] for field in glosses.target]},
        levels={"field": glosses.target_names},
        epsilon=1.0,
    )
    about = f"{len(glosses.data):,} short definitions of WordNet, which are public."
    released.report(path, title="Topics of WordNet", about=about, counts=[counts])


def picture(path: Path, out: Path) -> None:
    from browser import tab
    from PIL import Image

    async def shoot() -> None:
        async with tab() as opened:
            await opened.open(path, width=WIDTH)
            await opened.picture(out)

    asyncio.run(shoot())
    image = Image.open(out).convert("RGB")
    image = image.crop((0, 0, image.width, HEIGHT))
    image.quantize(COLORS).save(out, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, help="PNG of the top of the page")
    parser.add_argument("--page", type=Path, default=Path("topics.html"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    page(options.page)
    if options.picture:
        picture(options.page, options.picture)


if __name__ == "__main__":
    main()
