"""Published tables reproduced (`papers`), hot paths timed against peers (`speed`), pictures of the documentation."""
