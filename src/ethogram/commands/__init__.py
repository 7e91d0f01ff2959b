"""The `ethogram` command."""

from ethogram.commands.command_line import main
from ethogram.commands.mmap import METHODS
from ethogram.compilation_cache import use_compilation_cache

__all__ = ["METHODS", "main", "use_compilation_cache"]
