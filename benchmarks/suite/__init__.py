"""The benchmark suite that `benchmarks/run.py` runs.

What it measures is data (`cases`); what an operation is, how it is checked and what it costs is said once each
(`ops_*`); who takes part is a table (`ours`, `peers_*`); the rest measures and tells (`measure`, `report`).
Only `kernels` and `offline` import the compiler: a bundle runs without them.
"""
