"""The simulator: how long the hosts of a rack wait for an all-reduce, by transport, without loss and with it.

python examples/simulate.py
"""

import dlcp_sim as ds

TRANSPORTS = {"dlcp": ds.Dlcp(), "TCP": ds.Tcp(), "DCTCP": ds.Dctcp()}
rack = ds.Star(8, rate_bps=25e9, delay_s=1e-6)
print("all-reduce of 4 MB by 8 hosts, ms    no loss    1 % on one cable")
for name, transport in TRANSPORTS.items():
    times_ms = []
    for faults in ([], [ds.RandomLoss("host 3", ratio=0.01)]):
        result = ds.Scenario(
            fabric=rack,
            transport=transport,
            workload=ds.collective(algorithm="ring", bytes=4_000_000),
            faults=faults,
            seed=1,
        ).run()
        times_ms.append(result.simulated_s * 1e3)
    print(f"  {name:32}" + "".join(f"{time_ms:10.2f}" for time_ms in times_ms))
