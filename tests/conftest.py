"""Fixtures that several test modules use."""

from pathlib import Path

import pytest
from hypothesis import settings

# no deadline: a busy machine is not a failure
settings.register_profile("dplda", deadline=None)
settings.load_profile("dplda")


@pytest.fixture(scope="session")
def shared_data():
    """The folder of the real corpora; they are not part of the project."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real corpora (docword.kos.txt.gz, ...) are not in {folder}")
    return folder
