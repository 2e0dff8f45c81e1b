"""Benchmarks of dlcp against bars that are ratios, each side measured in the same run.

Not installed with the package. `python -m bench` lists and runs them. Nothing else imports them, but that the
study of the simulator's speed runs their native programs.
"""
