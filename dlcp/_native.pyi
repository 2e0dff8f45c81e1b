"""The compiled engine and its drivers. Use dlcp.transport instead.

Attributes without a setter are written as plain ones here; assigning to them raises.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.transport.call_options import CallOptions

WIRE_VERSION: int
HEADER_BYTES: int
TAG_BYTES: int
TRAFFIC_CLASSES: int
CONTROL_CLASS: int
IMPORTANCE_CRITICAL: int
PACKET_TYPES: dict[str, int]
FLAGS: dict[str, int]
PARSE_ERRORS: tuple[str, ...]

def register_errors(types: Mapping[str, type[Exception]]) -> None: ...
def parse_header(datagram: bytes, virtual_payload_bytes: int = 0) -> tuple[str, dict[str, int] | None]: ...
def write_header(fields: dict[str, int]) -> bytes: ...
def block_count(message_bytes: int, block_bytes: int) -> int: ...
def encode_deadline(deadline_ns: int) -> int: ...
def decode_deadline(code: int) -> int: ...
def encode_budget(loss_ratio: float) -> int: ...
def budget_bytes(message_bytes: int, budget: int) -> int: ...
def fastest_crypto_library() -> str: ...
def offered_ciphers() -> dict[str, int]: ...
def derive_packet_key(
    job_key: bytes,
    *,
    label: str,
    job: int,
    low_rank: int,
    high_rank: int,
    low_session: int,
    high_session: int,
    source_rank: int,
    epoch: int,
) -> bytes: ...
def authenticate(
    key: bytes, header: bytes, packet_number: int, payload: bytes, cipher: str = "aes_128_gcm"
) -> bytes: ...

class DataType(enum.Enum):
    f32 = ...
    f64 = ...
    f16 = ...
    bf16 = ...
    i8 = ...
    i16 = ...
    i32 = ...
    i64 = ...
    u8 = ...
    boolean = ...

class DataTypeTraits:
    type: DataType
    nbytes: int
    floating: bool
    torch_name: str
    recorder_name: str

DATA_TYPES: tuple[DataTypeTraits, ...]

class ReduceOp(enum.Enum):
    sum = ...
    product = ...
    min = ...
    max = ...
    band = ...
    bor = ...
    bxor = ...

def reduce_variants() -> list[str]: ...
def reduce(
    type: DataType,  # noqa: A002
    op: ReduceOp,
    out_address: int,
    a_address: int,
    b_address: int,
    count: int,
    *,
    variant: str | None = None,
) -> None: ...
def average(
    type: DataType,  # noqa: A002
    address: int,
    count: int,
    divisor: int,
    *,
    variant: str | None = None,
) -> None: ...
def multiply(
    type: DataType,  # noqa: A002
    out_address: int,
    in_address: int,
    count: int,
    factor: float,
    *,
    variant: str | None = None,
) -> None: ...

class Codec(enum.Enum):
    bf16 = ...
    fp16 = ...
    int8 = ...
    int4 = ...
    int2 = ...
    fp8_e4m3 = ...
    fp8_e5m2 = ...

class CodecTraits:
    codec: Codec
    name: str
    bits: int
    code_max: float
    not_a_number: int
    is_scaled: bool
    group_bytes: int

CODECS: tuple[CodecTraits, ...]
GROUP_VALUES: int

def encode_runs(
    codec: Codec,
    values_address: int,
    runs: npt.NDArray[np.int64],
    coded_address: int,
    before_address: int | None = None,
    after_address: int | None = None,
    factor: float = 1.0,
    *,
    variant: str | None = None,
) -> None: ...
def decode_runs(
    codec: Codec,
    coded_address: int,
    runs: npt.NDArray[np.int64],
    values_address: int,
    *,
    variant: str | None = None,
) -> None: ...
def add_groups(
    codec: Codec, coded_address: int, groups: int, sums_address: int, *, variant: str | None = None
) -> None: ...
def sum_groups(
    codec: Codec,
    operand_addresses: Sequence[int],
    groups: int,
    divisor: int,
    coded_address: int | None = None,
    values_address: int | None = None,
    before_address: int | None = None,
    after_address: int | None = None,
    factor: float = 1.0,
    *,
    variant: str | None = None,
) -> None: ...

IMPORTANCE_CODES: int

def importance(
    type: DataType,  # noqa: A002
    address: int,
    count: int,
    segments: npt.NDArray[np.int64],
    inverse_mean_squares: npt.NDArray[np.float64],
    critical: npt.NDArray[np.bool_],
    parts: npt.NDArray[np.int64],
    threshold: int,
    out: npt.NDArray[np.uint8],
    histogram: npt.NDArray[np.uint64],
    square_sums: npt.NDArray[np.float64],
    *,
    sampled: bool = False,
    variant: str | None = None,
) -> None: ...
def hadamard(
    address: int,
    count: int,
    chunk_log2: int,
    seed: int,
    step: int,
    inverse: bool,
    *,
    variant: str | None = None,
) -> None: ...

SELECT_COUNT_MAX: int

def select_largest(
    address: int,
    count: int,
    out: npt.NDArray[np.int64],
    *,
    sampled: bool = True,
    variant: str | None = None,
) -> None: ...
def count_reaching(address: int, count: int, threshold: float, *, variant: str | None = None) -> int: ...

class Sgd:
    def __init__(
        self,
        learning_rate: float,
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None: ...

class Adam:
    def __init__(
        self,
        learning_rate: float,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None: ...

class Optimizer:
    def __init__(self, rule: Sgd | Adam, count: int) -> None: ...
    def step(
        self,
        contribution_addresses: Sequence[int],
        weights_address: int,
        next_weights_address: int | None = None,
        *,
        divisor: int = 1,
        vml_square_root_address: int | None = None,
        variant: str | None = None,
    ) -> None: ...
    def set_rule(self, rule: Sgd | Adam) -> None: ...
    @property
    def count(self) -> int: ...
    steps: int
    @property
    def states(self) -> list[npt.NDArray[np.float32]]: ...

def gather_runs(
    dtype: DataType,
    source_address: int,
    elements: int,
    begin: npt.NDArray[np.int64],
    count: npt.NDArray[np.int64],
    out_address: int,
    out_elements: int,
) -> None: ...
def add_runs(
    dtype: DataType,
    target_address: int,
    elements: int,
    begin: npt.NDArray[np.int64],
    count: npt.NDArray[np.int64],
    source_address: int,
    source_elements: int,
    at: npt.NDArray[np.int64],
    factor: float,
) -> None: ...

class Delivery(enum.Enum):
    reliable = ...
    bounded = ...
    deadline = ...

LINE_RATE_CONTROLLERS: tuple[str, ...]

class Setting:
    name: str
    section: str
    layer: str
    kind: str
    default: bool | int | float | str | list[int] | None
    none: str
    low: float
    high: float
    above: bool
    accepted: str
    sentence: str

def settings_table() -> list[Setting]: ...

class RuntimeOptions:
    io_thread: bool
    def __init__(
        self,
        rank: int,
        announce_unexpected: bool = False,
        key: bytes | None = None,
        incarnation: int = 0,
    ) -> None: ...
    def set(self, name: str, value: bool | int | float | str | Sequence[int] | None) -> None: ...

class Transfer:
    over: bool
    error: str | None
    rank: int | None
    waited_s: float
    outcome: tuple[int, int, int, int, int, int, int]
    abandoned_words: npt.NDArray[np.uint64]

class Schedule:
    peers: list[int]
    world_size: int
    rank: int

class ScheduleBuilder:
    def __init__(self, world_size: int, rank: int, input_chunks: int, output_chunks: int) -> None: ...
    def scratch(self, like: tuple[int, int]) -> None: ...
    def send(self, peer: int, message: int, source: tuple[int, int], lossy: bool) -> None: ...
    def receive(
        self,
        peer: int,
        message: int,
        target: tuple[int, int],
        operand: tuple[int, int] | None,
        final: bool,
        lossy: bool,
    ) -> None: ...
    def combine(self, target: tuple[int, int], operands: Sequence[tuple[int, int]], final: bool) -> None: ...
    def build(self) -> Schedule: ...

class LossRules:
    def __init__(
        self,
        loss_ratio: float,
        deadline_s: float | None = None,
        patience_s: float | None = None,
        rescale: bool = False,
        importance: Sequence[npt.NDArray[np.uint8] | None] | None = None,
    ) -> None: ...

class CodedRules:
    def __init__(
        self,
        codec: Codec,
        before_address: int | None = None,
        after_address: int | None = None,
        factor: float = 1.0,
        values_address: int | None = None,
    ) -> None: ...

class Waiting:
    peer: int
    for_arrival: bool
    missing_bytes: int

class AbandonedMessage:
    sent: bool
    peer: int
    chunk: int
    message_bytes: int
    block_bytes: int
    abandoned_bytes: int
    blocks: npt.NDArray[np.uint64]

class CollectiveResult:
    error: str | None
    cause: str | None
    engine_error: str | None
    culprit: int | None
    reporter: int | None
    sequence: int
    peer: int | None
    bytes: int
    waited_s: float
    sent_bytes: int
    received_bytes: int
    retransmitted_bytes: int
    lossy_fastest_s: float
    waiting_for: list[Waiting]
    abandoned: list[AbandonedMessage]
    foreign_signature: int
    foreign_bytes: int
    expected_bytes: int

def part_bytes(nbytes: int, parts: int, type: DataType) -> list[int]: ...  # noqa: A002

class UpdateRules:
    def __init__(
        self,
        rule: Sgd | Adam,
        step: int,
        divisor: int,
        weight_addresses: Sequence[int],
        state_addresses: Sequence[Sequence[int]],
        vml_square_root_address: int | None = None,
    ) -> None: ...

def optimizer_states(rule: Sgd | Adam) -> int: ...

class CollectiveCommand:
    def __init__(
        self,
        schedule: Schedule,
        group: int,
        signature: int,
        type: DataType,  # noqa: A002
        op: ReduceOp,
        average_over: int,
        copies_short: bool = True,
    ) -> None: ...

class Collective:
    over: bool
    result: CollectiveResult
    completion: tuple[float, int, int] | None
    def wait(self, timeout_s: float | None) -> bool: ...
    def watch(self, id: int) -> bool: ...  # noqa: A002

class PlainSums:
    def __init__(
        self,
        tensor: Any,
        strided: Any,
        types: dict[Any, DataType],
        sum: Any,  # noqa: A002
        no_time: Any,
        grows: Any,
        changed: Any,
    ) -> None: ...
    def read(self, tensors: object, options: object) -> tuple[int, int, DataType, object] | None: ...

class GroupCalls:
    def __init__(self, runtime: Runtime, recorder: Any, group: Any, noted: list[tuple[int, str]]) -> None: ...
    sequence: int
    def take(self, count: int) -> int: ...
    def start(
        self,
        command: CollectiveCommand,
        words: str,
        recorded: tuple[Any, ...],
        sequence: int,
        inputs: tuple[int, int] | Sequence[tuple[int, int]] | None,
        outputs: tuple[int, int] | Sequence[tuple[int, int]] | None,
        options: Any,
        keep: Any,
        loss: LossRules | None = None,
        coded: CodedRules | None = None,
        followed: Any = None,
    ) -> Collective: ...
    def run(
        self,
        command: CollectiveCommand,
        words: str,
        recorded: tuple[Any, ...],
        data: tuple[int, int],
        options: Any,
        keep: Any,
    ) -> tuple[int, Collective] | None: ...

class Runtime:
    def __init__(self, options: RuntimeOptions) -> None: ...
    def close(self) -> None: ...
    closed: bool
    def connect(self, rank: int, address: str) -> bool: ...
    def disconnect(self, rank: int) -> None: ...
    def wait_established(self, rank: int, timeout_s: float | None) -> bool: ...
    def wait_delivered(self, timeout_s: float | None) -> bool: ...
    def undelivered(self) -> dict[int, int]: ...
    def established(self, rank: int) -> bool: ...
    def peers(self) -> list[int]: ...
    def block_bytes(self, rank: int, unit_bytes: int = 1) -> int: ...
    def peer_address(self, rank: int) -> str: ...
    def send(
        self,
        rank: int,
        payload: object,
        tag: int,
        traffic_class: int,
        delivery: Delivery,
        loss_ratio: float,
        deadline_s: float,
        importance: int | npt.NDArray[np.uint8],
        wait_follows: bool,
    ) -> Transfer: ...
    def receive(self, buffer: object, rank: int | None, tag: int, wait_follows: bool) -> Transfer: ...
    def wait(self, transfer: Transfer, timeout_s: float | None) -> bool: ...
    def cancel(self, transfer: Transfer) -> bool: ...
    def progress(self, timeout_s: float | None) -> bool: ...
    def watch(self, transfer: Transfer, id: int) -> bool: ...  # noqa: A002
    def next_finished(self, timeout_s: float | None) -> list[int]: ...
    def drain_log(self) -> list[tuple[float, str, str | None, int | None, int, float, str]]: ...
    def statistics(self) -> dict[str, Any]: ...
    def driver_statistics(self) -> dict[str, int]: ...
    def peer_statistics(self, rank: int) -> dict[str, Any]: ...
    def path_statistics(self, rank: int) -> list[dict[str, Any]]: ...
    def open_group(self, group: int, members: Sequence[int], own: int) -> bool: ...
    def close_group(self, group: int, tell: bool) -> None: ...
    def start_collective(
        self,
        command: CollectiveCommand,
        sequence: int,
        input: tuple[int, int] | Sequence[tuple[int, int]] | None,  # noqa: A002
        output: tuple[int, int] | Sequence[tuple[int, int]] | None,
        options: CallOptions,
        keep: object,
        coded: CodedRules | None = None,
        update: UpdateRules | None = None,
    ) -> Collective: ...
    def start_message(
        self,
        group: int,
        sending: bool,
        peer: int | None,
        tag: int,
        memory: tuple[int, int],
        options: CallOptions,
        keep: object,
    ) -> Collective: ...
    def advance_key_epoch(self) -> None: ...
    driver: str
    local_address: str
    warnings: str
    capabilities: dict[str, Any]
    max_datagram_bytes: int

AGGREGATION_MAX_LANES: int

class AggregationJob:
    def __init__(
        self,
        job: int,
        generation: int,
        generations: int,
        slots: int,
        lanes: int,
        workers: Sequence[tuple[int, int, int, int]],
        hub: tuple[int, int, int, int],
        hub_is_here: bool,
    ) -> None: ...
    def set_upper(
        self, hub: tuple[int, int, int, int], own: tuple[int, int, int, int], worker: int
    ) -> None: ...

class AggregationSlots:
    def __init__(self, jobs: Sequence[AggregationJob]) -> None: ...
    def process(self, frame: bytes, port: int) -> tuple[str, list[tuple[int, bytes]]]: ...
    def counts(self) -> list[dict[str, Any]]: ...

def aggregation_exponent_codes(address: int, count: int, per_block: int, codes: int) -> None: ...

class AggregationEndpoint:
    sent_blocks: int
    port: int

    def __init__(
        self,
        job: int,
        generation: int,
        worker: int,
        workers: int,
        rank: int,
        ranks: int,
        slots: int,
        lanes: int,
        retransmit_s: float,
        bind: tuple[int, int],
        hub: tuple[int, int],
    ) -> None: ...
    def all_reduce(
        self,
        values: int,
        count: int,
        codes: int,
        out: int,
        width: int,
        divisor: float,
        run: int,
        position: int,
        give_up_s: float,
        limit_s: float = 1e12,
    ) -> str: ...
    def probe(self, seed: int, run: int, position: int, give_up_s: float) -> str: ...
    def drain(self, exponents: bytes, run: int, position: int, give_up_s: float) -> str: ...
    def set_generation(self, generation: int) -> None: ...
    def stop(self) -> None: ...
    def counters(self) -> dict[str, int]: ...

SWITCH_NEVER: int
SWITCH_FATES: tuple[str, ...]

class SwitchPort:
    rate_bps: int

    def __init__(self) -> None: ...
    def set_thresholds(
        self,
        traffic_class: int,
        level: int,
        mark_from_bytes: int,
        mark_full_bytes: int,
        mark_ratio: int,
        trim_above_bytes: int,
        drop_above_bytes: int,
    ) -> None: ...
    def set_buffer(self, port_bytes: int, shared_bytes: int, shared_alpha_log2: int) -> None: ...
    def set_trimmed(self, traffic_class: int, run_packets: int) -> None: ...
    def set_path_choice(self, choice: str) -> None: ...

class SwitchConfiguration:
    def __init__(self) -> None: ...
    def set_class(self, dscp: int, traffic_class: int) -> None: ...
    def set_foreign_class(self, traffic_class: int) -> None: ...
    def set_trimmed_dscp(self, dscp: int) -> None: ...
    def add_port(self, port: SwitchPort) -> None: ...
    def add_group(self, ports: Sequence[int]) -> None: ...
    def add_aggregation_job(self, job: AggregationJob) -> None: ...
    def add_address(self, mac: int, index: int, is_group: bool) -> None: ...

class SoftSwitch:
    def __init__(
        self,
        ports: Sequence[str],
        configuration: SwitchConfiguration,
        *,
        frames: int,
        addresses: int,
        ageing_ns: int,
        salt: int,
        seed: int,
        samples: int,
        ring_frames: int,
        busy_poll: bool,
    ) -> None: ...
    def run(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def configure(self, configuration: SwitchConfiguration) -> None: ...
    def status(self) -> dict[str, Any]: ...
    def set_faults(
        self,
        port: int,
        out: bool,
        *,
        loss_ratio: float,
        burst_packets: float,
        down: bool,
        rate_bps: int,
        seed: int,
    ) -> None: ...
    def set_link(self, port: int, up: bool) -> None: ...
    def capture(self, port: int, path: str) -> None: ...
    def sample_every(self, interval_ns: int) -> None: ...
    def samples(
        self, since: int, most: int
    ) -> list[tuple[int, float, int, list[int], list[int], list[int]]]: ...
    def addresses(self) -> list[tuple[int, int, bool, bool]]: ...
