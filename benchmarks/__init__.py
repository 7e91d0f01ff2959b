"""Published tables reproduced (`papers`), hot paths timed against peers (`speed`); nothing imports this."""
