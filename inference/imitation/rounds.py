"""The loop over whole rounds, after each of which a checkpoint is written.

Both forms of imitation go by it: `imitate` and, whose rounds are stages, `imitate_motion`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["run_rounds"]

State = TypeVar("State", bound=Any)


def run_rounds(
    name: str,
    state: State,
    one_round: Callable[[State, int], State],
    num_rounds: int,
    save: Callable[[State], None],
    describe: Callable[[State], str],
    progress_bar: bool,
) -> State:
    """State after `num_rounds` rounds, from one after ``state.done`` of them.

    Parameters
    ----------
    one_round : the next state, from a state and the number of the round, from 1.
    save, describe : called with the state after each round; writes a checkpoint, and words for the progress bar.
    """
    from tqdm.auto import tqdm

    with tqdm(total=num_rounds, initial=state.done, disable=not progress_bar, desc=name) as bar:
        for number in range(state.done + 1, num_rounds + 1):
            try:
                state = one_round(state, number)
            except Exception as error:
                error.add_note(f"in round {number} of {num_rounds}")
                raise
            save(state)
            bar.set_postfix_str(describe(state), refresh=False)
            bar.update()
    return state
