"""A figure that follows the belief about an agent's intent, redrawn in place while the agent acts."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ethogram.models.arguments import require_integer
from ethogram.plots.axes import default_title, figure_or_new, legend_beside, read_names
from ethogram.plots.colours import category_colours

__all__ = ["LiveBelief"]

ALARM = 3
"""Surprise from which on the actions are not those that the model expects."""


class LiveBelief:
    """A figure whose ``update(report)`` shows a step of :class:`ethogram.IntentBelief` and redraws it in place.

    It works in notebooks (inline or interactive), in scripts with a window, and without a display, where
    ``figure.savefig`` writes it. Redrawing takes some 50 ms: `every` spares a fast loop.

    Parameters
    ----------
    figure : matplotlib figure to draw into; a new one by default. Above it has the probabilities of the intents and of
        a change, below the surprise.
    window : number of steps that are shown.
    names : of the intents, without "none of these".
    agent : index of the agent to follow in a batch.
    every : number of steps after which to redraw.

    Examples
    --------
    ``live = LiveBelief()``, then ``live.update(report)`` after every ``belief, report = belief.step(state, action)``
    """

    def __init__(
        self,
        figure: Any = None,
        *,
        window: int = 100,
        names: Sequence[str] | None = None,
        agent: tuple[int, ...] = (),
        every: int = 1,
    ):
        require_integer("window", window, 1)
        require_integer("every", every, 1)
        self.figure = figure_or_new(figure, (9, 4))
        self._names, self._agent, self._every = names, agent, every
        self._seen: deque[np.ndarray] = deque(maxlen=window)
        self._count = 0
        self._handle: Any = None  # a notebook's output, or the manager of a window
        self._upper, self._lower = self.figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        self._lines: list[Any] = []

    def update(self, report: Any) -> None:
        """Add a step, and redraw the figure in place, in a window or a notebook.

        Parameters
        ----------
        report : the report of ``IntentBelief.step``.
        """
        chance = np.asarray(report.intent)
        if len(self._agent) != chance.ndim - 1:
            raise ValueError(
                f"report.intent has shape {chance.shape}: give LiveBelief the agent to follow, one index for each of "
                f"the {chance.ndim - 1} batch axes, not {self._agent}"
            )
        others = (np.asarray(part)[self._agent] for part in (report.change, report.surprise))
        step = np.array([*chance[self._agent], *others])
        if self._lines and len(step) != len(self._lines):
            raise ValueError(
                f"report.intent has {len(step) - 2} intents, those before it {len(self._lines) - 2}: make another "
                "figure"
            )
        if not self._lines:
            self._begin(len(step) - 2)
        self._seen.append(step)
        self._count += 1
        if self._count % self._every == 0:
            self._redraw()

    def _begin(self, count: int) -> None:
        """Empty lines: one per intent, one for a change, one for the surprise."""
        names = read_names(self._names, count - 1)
        looks: list[dict[str, Any]] = [{"color": colour} for colour in category_colours(count - 1)]
        looks.append({"color": "0.6", "linestyle": "--"})
        looks.append({"color": "0.1", "linestyle": ":", "linewidth": 1})
        for name, look in zip([*names, "none of these", "change"], looks, strict=True):
            self._lines += self._upper.plot([], [], label=name, **look)
        self._lines += self._lower.plot([], [], color="0.1")
        self._lower.axhline(ALARM, color="0.6", linewidth=0.8, linestyle=":")
        self._upper.set(ylim=(-0.03, 1.03), ylabel="probability")
        self._lower.set(ylabel="surprise", xlabel="step")
        legend_beside(self._upper, "intent")
        default_title(self._upper, "belief about the intent")

    def _redraw(self) -> None:
        seen = np.array(self._seen)
        steps = np.arange(self._count - len(seen), self._count)
        for line, values in zip(self._lines, seen.T, strict=True):
            line.set_data(steps, values)
        last = max(self._count - 1, 1)
        self._upper.set_xlim(max(self._count - (self._seen.maxlen or 0), 0) - 0.5, last + 0.5)
        self._lower.set_ylim(min(seen[:, -1].min(), -1) - 0.2, max(seen[:, -1].max(), ALARM) + 0.2)
        self._show()

    def _show(self) -> None:
        """The figure as it is now, where it can be seen: a notebook's output is replaced, a window redrawn."""
        import matplotlib
        from matplotlib.backend_bases import FigureManagerBase

        if "inline" in matplotlib.get_backend().lower() and "IPython" in sys.modules:
            from IPython.display import display
            from matplotlib import pyplot

            if self._handle is None:
                pyplot.close(self.figure)  # the cell would show it once more at its end
                self._handle = display(self.figure, display_id=True)
            else:
                self._handle.update(self.figure)
            return
        if self._handle is None:
            self._handle = manager = self.figure.canvas.manager
            if manager is not None and type(manager).show is not FigureManagerBase.show:  # it has a window
                manager.show()
        self.figure.canvas.draw_idle()
        self.figure.canvas.flush_events()
