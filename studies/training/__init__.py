"""What loss does to training and to a tensor, on one machine, without a network: `dlcp study tolerance` and `mse`.

`tolerance` trains many small models at once (training.py; tasks and models are those of dlcp_sim.cosimulation) while a
simulated network loses their gradients (network.py) and a fill makes up for it (fills.py). It asks for the largest loss
that costs no extra round. `mse` aggregates one tensor under equal drops, by several topologies. Tests hold the batched
twins of shipped parts that both use to those parts.
"""
