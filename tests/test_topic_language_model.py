"""The example of a topic model inside a language model, by hand and as a script."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "topic_language_model.py"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_language_model_by_hand(example):
    interpolate = example["interpolate_language_model"]
    theta = [[1.0, 0.0], [0.25, 0.75]]
    components = [[2, 2, 0], [0, 5, 5]]
    unigram = [0.5, 0.25, 0.25]
    expected = [[0.5, 0.275, 0.225], [0.4625, 0.275, 0.2625]]
    np.testing.assert_allclose(interpolate(theta, components, unigram), expected)
    np.testing.assert_allclose(interpolate(theta, components, [unigram, unigram]), expected)
    np.testing.assert_array_equal(
        interpolate(theta, components, unigram, topic_weight=0), [unigram] * 2
    )


def test_topics_of_the_context_help(example, capsys):
    example["main"]()
    values = [float(line.split(":")[1]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert values[2] < 0.9 * values[0]
