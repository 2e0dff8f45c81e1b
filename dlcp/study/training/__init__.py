"""What loss and rounding do to training, on one machine, without a network: `dlcp study tolerance`, `mse`, `precision`.

`tolerance` trains many small models at once (training.py; tasks and models are those of dlcp_sim.cosimulation) while a
simulated network loses their gradients (network.py) and a fill makes up for it (fills.py). It asks for the largest loss
that costs no extra round. `mse` aggregates one tensor under equal drops, by several topologies. `precision` trains with
gradients in few bits. Tests hold the batched twins of shipped parts that they use to those parts.
"""
