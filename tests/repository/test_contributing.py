"""Code of the guides is of examples that run, and the test of the model notices a wrong one."""

from __future__ import annotations

import re
import types

import pytest

from examples import test_habit


def test_the_guides_quote_the_examples(root):
    quoted = re.findall(
        r"^```python\n(.*?)^```$", (root / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M | re.S
    )
    assert quoted
    files = [
        (root / "examples" / name).read_text(encoding="utf-8") for name in ("habit.py", "waiting_times.py")
    ]
    assert all(any(block in file for file in files) for block in quoted)


@pytest.mark.slow
def test_a_wrong_model_fails_the_test_of_the_example(root, monkeypatch):
    source = (root / "examples" / "habit.py").read_text(encoding="utf-8")
    wrong = source.replace("num_repeats * log_repeat", "num_repeats * log_change")
    assert wrong != source
    planted = types.ModuleType("examples.habit")
    exec(compile(wrong, "habit.py", "exec"), planted.__dict__)
    monkeypatch.setattr(test_habit, "ActionTrace", planted.ActionTrace)
    with pytest.raises(AssertionError):
        test_habit.test_probabilities_of_all_rows_sum_to_one_whatever_stands_in_the_padding()
