"""Trajectories: ragged batches of behaviour, from lists, tables, episodes and xarray."""

from ethogram.models.data.action_tables import ActionFrequencies, ActionTable
from ethogram.models.data.buckets import bucket_indices
from ethogram.models.data.covariates import padded_rows
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.selection import group_labels, valid_steps
from ethogram.models.data.state_action_steps import AgentSteps, read_steps
from ethogram.models.data.steps_and_turns import step_and_turn
from ethogram.models.data.trajectories import Trajectories, check

__all__ = [
    "ActionFrequencies",
    "ActionTable",
    "AgentSteps",
    "Metadata",
    "Trajectories",
    "bucket_indices",
    "check",
    "group_labels",
    "padded_rows",
    "read_steps",
    "step_and_turn",
    "valid_steps",
]
