"""Benchmarks of dlcp against bars that are ratios, each side measured in the same run.

Not installed with the package. `python -m bench` lists and runs them; nothing else imports them.
"""
