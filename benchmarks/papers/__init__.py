"""One script a published table: `python -m benchmarks.papers.NAME [--quick] [--seed N] [--json FILE]`."""
