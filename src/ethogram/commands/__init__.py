"""The `ethogram` command."""

from ethogram.commands.command_line import METHODS, main, use_compilation_cache

__all__ = ["METHODS", "main", "use_compilation_cache"]
