"""What is wrong with a fit: findings, each with its evidence, its size, and what to do."""

from ethogram.inference.diagnostics.finding import Diagnosis, Finding, Level

__all__ = ["Diagnosis", "Finding", "Level"]
