"""Keys as seeds of NumPy: the numbers of earlier records, and one stream per key and number."""

import jax
import numpy as np
import pytest

from ethogram.models.numpy_generator import numpy_generator


@pytest.mark.parametrize(("implementation", "words"), [("threefry2x32", [0, 7]), ("rbg", [0, 7, 0, 7])])
def test_the_words_of_a_key_are_the_seed(implementation, words):
    """As an array, as a list, and where children are spawned: records were drawn in all of these spellings."""
    key = jax.random.key(7, impl=implementation)
    found = numpy_generator(key).random(3)
    for seed in (words, np.array(words, np.uint32)):
        np.testing.assert_array_equal(found, np.random.default_rng(seed).random(3))
    (child,), (other,) = (
        numpy_generator(key).spawn(1),
        np.random.default_rng(np.array(words, np.uint32)).spawn(1),
    )
    assert child.random() == other.random()
    np.testing.assert_array_equal(
        numpy_generator(key, 3, 1).random(3), np.random.default_rng([*words, 3, 1]).random(3)
    )
