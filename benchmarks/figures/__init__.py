"""Figures of stored records: each function draws rows of its records into a Matplotlib figure."""
