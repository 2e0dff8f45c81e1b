"""The balance of a hub: which limit binds, that its removal leaves the next, and how the doctor says it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from dlcp.cli import main
from dlcp.doctor import hub
from dlcp.doctor.balance import CORES, MEMORY, NETWORK, WORKERS, HubRates, balance, traffic_per_byte
from dlcp.doctor.finding import Verdict
from dlcp.doctor.hub import describe
from dlcp.errors import ArgumentError

G = 1e9
# Network, memory and cores allow 12.5, 10 to 14 (by workers) and 16 GB/s.
RATES = HubRates(network_bytes_per_s=12.5 * G, memory_bytes_per_s=42 * G, core_bytes_per_s=4 * G, cores=4)


def test_few_workers_bind_and_then_each_limit_of_the_hub() -> None:
    assert balance(RATES, workers=2, worker_bytes_per_s=1.25 * G).binding == WORKERS
    assert balance(RATES, workers=8, worker_bytes_per_s=12.5 * G).binding == MEMORY
    assert balance(replace(RATES, memory_bytes_per_s=60 * G), 8, 12.5 * G).binding == NETWORK
    assert balance(replace(RATES, cores=2), 8, 12.5 * G).binding == CORES


@pytest.mark.parametrize("workers", [1, 4, 28])
@pytest.mark.parametrize("worker_bytes_per_s", [0.125 * G, 12.5 * G])
def test_removing_the_limit_that_binds_leaves_the_next(workers: int, worker_bytes_per_s: float) -> None:
    before = balance(RATES, workers, worker_bytes_per_s)
    fields = {NETWORK: "network_bytes_per_s", MEMORY: "memory_bytes_per_s", CORES: "core_bytes_per_s"}
    rates = RATES
    if before.binding == WORKERS:
        worker_bytes_per_s = math.inf
    else:
        rates = replace(RATES, **{fields[before.binding]: math.inf})
    after = balance(rates, workers, worker_bytes_per_s)
    assert after.binding == before.following
    assert after.bytes_per_s == pytest.approx(before.bytes_per_s * before.factor)
    assert after.step_s(1e8, workers) == pytest.approx(before.step_s(1e8, workers) / before.factor)


def test_memory_carries_a_contribution_three_times_and_the_optimizer_once_for_all() -> None:
    assert traffic_per_byte(1, 1) == 7
    assert traffic_per_byte(4, 1) == 4
    assert traffic_per_byte(4, 2) == 4.5
    assert traffic_per_byte(10**6, 3) == pytest.approx(3, rel=1e-4)
    assert balance(RATES, 4, 12.5 * G).limits[MEMORY] == 42 * G / 4


def test_a_step_takes_as_long_as_the_gradients_of_all_workers() -> None:
    found = balance(RATES, workers=2, worker_bytes_per_s=1.25 * G)
    assert found.step_s(2.5 * G, 2) == pytest.approx(2.0)


def test_what_binds_is_said_with_the_factor_to_the_next() -> None:
    fine = describe(balance(RATES, 2, 1.25 * G), 2)
    assert fine.verdict == Verdict.OK
    assert fine.text == (
        "it takes in 2.50 GB/s from 2 workers, bound by the workers' links; the next limit is its memory, at 3.36 times"
        " that"
    )
    short = describe(balance(replace(RATES, cores=1), 4, 12.5 * G), 4)
    assert (short.verdict, short.remedy) == (
        Verdict.WARN,
        "more cores for the hub, or several hubs that share the keys",
    )


def test_bad_rates_are_named() -> None:
    for rates in (replace(RATES, core_bytes_per_s=0), replace(RATES, network_bytes_per_s=math.nan)):
        with pytest.raises(ArgumentError, match=r"(core|network)_bytes_per_s"):
            balance(rates, 4, G)
    with pytest.raises(ArgumentError, match="workers"):
        balance(RATES, 0, G)


def test_the_command_prints_three_rates_and_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["doctor", "--hub", "--workers", "2", "--worker-gbps", "0.001", "--hub-gbps", "100", "--json"])
        == 0
    )
    findings = json.loads(capsys.readouterr().out)["hosts"][0]["findings"]
    assert [one["text"].split(":")[0] for one in findings[:3]] == ["network", "memory", "cores"]
    assert "12.50 GB/s" in findings[0]["text"]
    # A worker's link is a thousandth of what any host adds, so that its own rates do not matter here.
    assert "bound by the workers' links" in findings[3]["text"]


def test_a_line_rate_that_nobody_knows_is_no_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_line_rate", lambda *_: (None, "eth0"))
    assert main(["doctor", "--hub", "--workers", "2", "--worker-gbps", "0.001", "--json"]) == 0
    network, *_, limit = json.loads(capsys.readouterr().out)["hosts"][0]["findings"]
    assert network["verdict"] == Verdict.WARN
    assert network["text"] == "network: the line rate of eth0 is not known, so it is taken for no limit"
    assert "--hub-gbps N" in network["remedy"]
    assert "bound by the workers' links; the next limit is its network" not in limit["text"]
    assert "bound by the workers' links" in limit["text"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hub", "--listen"], "--hub is for this host alone"),
        (["--workers", "3"], "--workers is for --hub"),
        (["--hub", "--hub-gbps", "0"], "more than 0"),
    ],
)
def test_bad_options_are_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["doctor", *arguments])
    assert end.value.code == 2
    assert said in capsys.readouterr().err
