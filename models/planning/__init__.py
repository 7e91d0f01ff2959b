"""Planning problems in RDDL."""

from ethogram.models.planning.rddl_problem import RDDLProblem, problem_from_model, read_rddl

__all__ = ["RDDLProblem", "problem_from_model", "read_rddl"]
