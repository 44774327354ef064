"""A page of public texts, and its picture for docs/report.md and the README.

``python benchmarks/report.py [--picture docs/images/report.png] [--page FILE]``
``python benchmarks/report.py --intervals``

The texts are the WordNet glosses that dplda holds, by the field of WordNet: K = 20,
epsilon 4 for the topics and 1 for the counts, delta = 1e-6, the document is protected.
``--intervals`` shows why the page has no interval of the share of a topic: of five such
fits, how many 95% intervals of the noise alone hold the share of all words that
`transform` finds in the texts.

The picture needs Debian's packages chromium and python3-pil.
"""

import argparse
import asyncio
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

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


def intervals(n_fits: int = 5) -> None:
    texts = load_wordnet_glosses().data
    held = []
    for _ in range(n_fits):
        model = PrivateTopicModel(20, epsilon=4.0).fit(texts)
        table = model.components_
        counts = model.vectorizer_.transform(texts).sum(axis=1)
        found = np.asarray(counts).ravel() @ model.transform(texts)
        std = np.sqrt(np.square(model.model_.components_std_).sum()) / table.sum()
        error = table.sum(axis=1) / table.sum() - found / found.sum()
        held.append(np.mean(np.abs(error) <= 1.96 * std))
    print(f"held in {n_fits} fits: {', '.join(f'{share:.0%}' for share in held)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, help="PNG of the top of the page")
    parser.add_argument("--page", type=Path, default=Path("topics.html"))
    parser.add_argument("--intervals", action="store_true", help="of shares")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.intervals:
        return intervals()
    page(options.page)
    if options.picture:
        picture(options.page, options.picture)


if __name__ == "__main__":
    main()
