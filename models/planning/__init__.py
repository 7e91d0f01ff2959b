"""Factored planning problems, from RDDL files or built in Python."""

from ethogram.models.planning.action_rules import ActionRules, limited_actions
from ethogram.models.planning.expression_graph import ExpressionGraph
from ethogram.models.planning.fluent_program import FluentProgram, compile_program
from ethogram.models.planning.planning_problem import PlanningProblem
from ethogram.models.planning.rddl_problem import problem_from_model, read_rddl

__all__ = [
    "ActionRules",
    "ExpressionGraph",
    "FluentProgram",
    "PlanningProblem",
    "compile_program",
    "limited_actions",
    "problem_from_model",
    "read_rddl",
]
