"""What all Python tests share: where things are, and how Hypothesis draws."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# Some virtual machines show AMX in CPUID and stop who uses it: a plain bfloat16 Linear of torch's dies of SIGILL there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# A shell that starts a job in the background has it ignore Ctrl-C, and what a test starts would do so too
# (POSIX.1-2017, Shell Command Language, 2.11).
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Same examples on every machine, so that a red run is red everywhere; DLCP_HYPOTHESIS=random explores.
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("DLCP_HYPOTHESIS", "repeatable"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def native_build() -> Path:
    """Where the C++ test programs are: DLCP_NATIVE_BUILD, or build/native."""
    return ROOT / os.environ.get("DLCP_NATIVE_BUILD", "build/native")


# Tests of these places make namespaces, load the machine or judge how long something takes: those of one line run one
# after another, on one worker, while the others run the rest. They begin first, since they take longest.
ONE_AFTER_ANOTHER = (
    ("tests/lab/", "tests/doctor/", "tests/bench/"),
    ("tests/transport/dpdk/", "tests/transport/xdp/"),
)
# Files whose cases share nothing: each case goes to any worker. All other files stay whole, for their fixtures.
SPLIT = (
    "tests/test_native.py",
    "tests/torch/test_collectives.py",
    "tests/test_property.py",
    "tests/test_docs.py",
)
# Tests that start programs, ranks or networks, or try very many cases. `make check` goes without them.
SLOW = (
    *itertools.chain(*ONE_AFTER_ANOTHER),
    "tests/benchmark/",
    "tests/p4/",
    "tests/sim/ns3/",
    "tests/sim/test_command.py",
    "tests/sim/test_faults.py",
    "tests/sim/test_random_runs.py",
    "tests/sim/test_report.py",
    "tests/sim/test_sweep.py",
    "tests/sim/test_validation.py",
    "tests/study/",
    "tests/switch/deploy/",
    "tests/switch/render/test_apply.py",
    "tests/switch/render/test_base.py",
    "tests/switch/software/",
    "tests/switch/test_switch_command.py",
    "tests/test_cli.py",
    "tests/test_docs.py",
    "tests/test_dpdk_guide.py",
    "tests/test_examples.py",
    "tests/test_packaging.py",
    "tests/test_plain_install.py",
    "tests/test_property.py",
    "tests/test_readme.py",
    "tests/test_site.py::test_the_site_is_built",
    "tests/torch/gradient/fills/test_fills.py",
    "tests/torch/gradient/fsdp/test_reduce_scatter.py",
    "tests/torch/gradient/rules/test_forward_order.py",
    "tests/torch/gradient/test_context.py",
    "tests/torch/gradient/test_element_runs.py",
    "tests/torch/gradient/test_exchange.py",
    "tests/torch/gradient/test_hook.py",
    "tests/torch/gradient/test_mass.py",
    "tests/torch/gradient/test_mass_worlds.py",
    "tests/torch/gradient/test_state.py",
    "tests/torch/gradient/test_step_ends.py",
    "tests/torch/test_errors.py",
    "tests/torch/test_faults.py",
    "tests/torch/test_layerwise.py",
    "tests/torch/test_lifetime.py",
    "tests/torch/test_profiling.py",
    "tests/torch/test_registration.py",
    "tests/torch/test_training.py",
    "tests/train/",
    "tests/transport/communicator/test_communicator_failures.py",
    "tests/transport/communicator/test_reduce.py",
    "tests/transport/endpoint/test_ends.py",
    "tests/transport/schedule/test_bounded.py",
    "tests/transport/schedule/test_interpreter.py",
    "tests/transport/schedule/test_schedules.py",
    "tests/transport/test_flight_recorder.py",
    "tests/transport/test_metrics.py",
    "tests/transport/test_ping.py",
    "tests/transport/test_wire_vectors.py",
)
# What `make test-torch` tries under each version of torch: a group's life, every collective, errors, DDP and FSDP2,
# exact and with bounded gradients, and what dlcp replaces in torch.
SMOKE = (
    "tests/torch/gradient/fsdp/test_reduce_scatter.py::test_without_loss",
    "tests/torch/gradient/test_hook.py::test_training_is_alike",
    "tests/torch/gradient/recipes/test_low_bit.py::test_a_run_is_repeated",
    "tests/torch/gradient/recipes/test_low_bit.py::test_fsdp_reduces",
    "tests/torch/test_backend.py",
    "tests/torch/test_callbacks.py",
    "tests/torch/test_collectives.py::test_collective[world2",
    "tests/torch/test_cpp_virtuals.py::test_future_is_complete",
    "tests/torch/test_cpp_virtuals.py::test_join",
    "tests/torch/test_cpp_virtuals.py::test_wait_tensor",
    "tests/torch/test_dynamo.py",
    "tests/torch/test_errors.py::test_dead_peer",
    "tests/torch/test_errors.py::test_futures_carry",
    "tests/torch/test_errors.py::test_mismatch",
    "tests/torch/test_errors.py::test_timeout_names",
    "tests/torch/test_errors.py::test_wrong_calls",
    "tests/torch/test_lifetime.py::test_init_after_destroy",
    "tests/torch/test_lifetime.py::test_subgroups",
    "tests/torch/test_lifetime.py::test_world_of_one",
    "tests/torch/test_registration.py::test_importing_torch_registers",
    "tests/torch/test_registration.py::test_without_autoload",
    "tests/torch/test_training.py::test_ddp[",
    "tests/torch/test_training.py::test_ddp_comm_hook",
    "tests/torch/test_training.py::test_fsdp2[full",
)


def worker_group(nodeid: str) -> str:
    """Tests of one group run on one worker."""
    path = nodeid.split("::")[0]
    for places in ONE_AFTER_ANOTHER:
        if path.startswith(places):
            return places[0]
    return nodeid if path in SPLIT else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups go to workers as a whole, in the order of collection."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return worker_group(nodeid)

    config.option.loadscopereorder = False
    return ByGroup(config, log)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first; and what needs root is skipped, with the reason shown, when not root."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker("slow")
        if item.nodeid.startswith(SMOKE):
            item.add_marker("smoke")
    first = {places[0] for places in ONE_AFTER_ANOTHER}
    items.sort(key=lambda item: worker_group(item.nodeid) not in first)
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("needs_root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))
