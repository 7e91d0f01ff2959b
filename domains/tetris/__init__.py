"""Tetris: the game, simulated players, and recorded games as decisions."""

from ethogram.domains.tetris.game import (
    FEATURES,
    Outcomes,
    Play,
    draw_board,
    draw_placement,
    outcomes,
    play,
    simulate,
)
from ethogram.domains.tetris.pieces import PIECES, Placements, placements
from ethogram.domains.tetris.records import Games, load_games, write_games

__all__ = [
    "FEATURES",
    "PIECES",
    "Games",
    "Outcomes",
    "Placements",
    "Play",
    "draw_board",
    "draw_placement",
    "load_games",
    "outcomes",
    "placements",
    "play",
    "simulate",
    "write_games",
]
