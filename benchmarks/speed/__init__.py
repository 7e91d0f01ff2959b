"""One script a hot path, against its peers: `python -m benchmarks.speed.NAME [--quick] [--json FILE] ...`."""
