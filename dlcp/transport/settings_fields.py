"""Every setting with its type, default and meaning.

Generated from the engine's table by `python -m dlcp.transport.settings_reference`; not to be edited.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class SettingsFields:
    """The fields of dlcp.transport.Settings, which checks them."""

    # ---- place ----
    driver: str = "udp"
    """What carries packets. udp: the kernel's sockets; local: these, and shared memory between ranks of one host, as
    jobs have it anyway (shm); dpdk, xdp: whole frames, below the kernel; or a plugin. Accepted: udp, local, dpdk,
    xdp, the name of a plugin, or its path.
    """
    driver_options: str = ""
    """Options of the driver that `driver` names, such as port=0000:3b:00.0@10.0.0.1/24 queues=2 for dpdk. Accepted:
    options of the driver, separated by spaces.
    """
    bind_host: str | None = None
    """Address to bind; auto: loopback, or the interface's own address if `interface` is set. Below the kernel (dpdk,
    xdp) the port's own address, which may carry the length of its network's prefix: 10.0.0.1/24. Accepted: an
    address or a name of this host, or auto.
    """
    port: int = 0
    """UDP port that peers send to; 0: any free one. Accepted: an integer from 0 to 65 535."""
    interface: str | None = None
    """Be reached at this interface's address. A single endpoint also sends through no other; the ranks of a job go
    by the kernel's routes. A pattern as in NCCL_SOCKET_IFNAME: beginnings of names (eth,ib), exact names
    (=eth0,eth1) or any but some (^docker,lo). Below the kernel one device: for xdp the interface's name, for dpdk
    DPDK's name of it, such as 0000:3b:00.0. Accepted: names of interfaces or their beginnings, such as eth0,
    eth,ib, =eth0 or ^docker,lo, or auto.
    """
    inject_loss_ratio: float = 0.0
    """Share of arriving packets that is dropped on purpose, for demonstrations and tests. Logged and counted.
    Accepted: a number from 0 to 1 (in the environment also 0% to 100%).
    """
    port_range: str | None = None
    """In place of `port`: low-high, of which each process takes the first free port, so that a firewall can let them
    in. Packets still leave from any free ports, one per path. Accepted: ports from 1 to 65535, such as 7000-7063,
    or one of them, or auto.
    """
    shm: bool = True
    """Ranks of one host talk through shared memory; false: through the network, as if they were on two hosts."""
    eal_arguments: str = ""
    """With driver dpdk: arguments that DPDK is started with in this process, quoted as in a shell. Accepted:
    arguments of DPDK's EAL, such as --lcores 2 -a 0000:3b:00.0.
    """
    job: int = 0
    """Number of the job; packets of another job are counted and dropped. Accepted: an integer from 0 to 4 294 967
    295.
    """

    # ---- packet protection ----
    allow_unauthenticated: bool = False
    """Accept, without a job key, an address that other hosts can reach."""
    key: bytes | None = field(default=None, repr=False)
    """The job key. Only an argument: in the environment or a file of settings others would see it; use key_file
    there. Accepted: 32 bytes, or auto.
    """
    key_file: str | None = None
    """A file with the job key: 32 bytes, or 64 hexadecimal digits. Accepted: the path of a file, or auto."""
    encrypt: bool = False
    """Encrypt payload with the job key."""
    crypto_library: str = "fastest"
    """What computes AES-128-GCM. One that is named has no other cipher. Accepted: one of fastest, openssl, ipsec_mb."""
    cipher: str = "any"
    """Cipher of tags and encryption; any: the one whose slower end is fastest, by processor and libraries of both
    ends. A named one is used or no session starts. Accepted: one of any, aes_128_gcm, aegis_128x2.
    """

    # ---- datagrams and buffers ----
    max_datagram_bytes: int | None = None
    """Largest UDP payload; auto: what the interface carries in one piece. The handshake lowers it to the path.
    Accepted: an integer from 576 to 9 152, or auto.
    """
    socket_buffer_bytes: int | None = None
    """Requested of the kernel for receiving and for sending, or of DPDK as queues that hold so much; auto: what they
    have. Accepted: an integer from 4 096 to 2 147 483 647, or auto.
    """
    receive_buffer_bytes: int | None = None
    """Offered to all senders together as credit; auto: what the sockets hold. Accepted: an integer from 65 536 to 1
    099 511 627 776, or auto.
    """
    segmentation_offload: bool = True
    """Hand runs of packets to the kernel as one (UDP GSO)."""
    receive_offload: bool = True
    """Take runs of packets from the kernel as one (UDP GRO)."""
    huge_pages: bool = True
    """Have the kernel move buffers of 4 MiB and more that collectives use again and again into huge pages, unless it
    refuses them to all (never in /sys/kernel/mm/transparent_hugepage/enabled).
    """

    # ---- spraying ----
    dscp: tuple[int, ...] = (0, 8, 16, 24, 32, 40, 48, 56)
    """DSCP of each traffic class, control last. Accepted: 8 integers from 0 to 63, one per traffic class."""
    paths: int | None = None
    """Source ports to spray packets over, at most; auto: 64, and 1 on loopback. Runs of many packets use eight.
    Accepted: an integer from 1 to 64, or auto.
    """
    run_packets: int | None = None
    """Packets of one path in a row, at most: as many while the network shows no queue. auto: what the driver passes
    on in one piece, which is 64 KB in the kernel and a packet below it. Accepted: an integer from 1 to 1 024, or
    auto.
    """
    min_run_packets: int = 1
    """Packets of one path in a row at least: also while the network shows a queue. Accepted: an integer from 1 to 1
    024.
    """
    switches_spray: str = "auto"
    """Whether switches choose a path for each packet, so that long runs cost the network nothing; auto: seen by
    packets of a run that overtake each other. Accepted: one of auto, no, yes.
    """

    # ---- congestion control ----
    line_rate_bps: int = 0
    """Rate of this host's link; 0: unknown. Congestion control line_rate needs it; auto learns it from what arrives.
    Accepted: an integer from 0 to 10 000 000 000 000.
    """
    congestion: str = "auto"
    """auto: window, and turns given by a receiver whose line several senders fill; window: a window on ECN marks and
    median delay; line_rate: line rate, halved when more is lost than is tolerated. Accepted: one of auto, window,
    line_rate.
    """
    target_delay_s: float = 0.001
    """Standing queue that the congestion window tolerates. Accepted: a number above 0 up to 10."""
    initial_window_bytes: int = 65536
    """Bytes in flight to a peer before anything is acknowledged. Accepted: an integer from 576 to 1 099 511 627 776."""
    max_window_bytes: int = 16777216
    """Bytes in flight to a peer at most. Accepted: an integer from 576 to 1 099 511 627 776."""
    eager_bytes: int = 262144
    """Bytes of a message sent before any of it is acknowledged. A receiver that has not asked for a message too long
    to keep drops what comes of it; the message then loses a round trip. Accepted: an integer from 576 to 1 099
    511 627 776.
    """

    # ---- timers ----
    linger_s: float = 0.002
    """How long the I/O thread stays away after a call while nothing is under way, so that the next call need not
    wait for it. Peers may be answered so much later. Accepted: a number from 0 to 0.1.
    """
    connect_timeout_s: float = 30.0
    """How long connect() waits for the handshake if the call names no time. Accepted: a number above 0 up to 1e+09."""
    peer_timeout_s: float = 30.0
    """Silence after which a peer with work outstanding is dead. Accepted: a number above 0 up to 86400."""
    initial_rtt_s: float = 0.01
    """Round-trip time assumed until one is measured. Accepted: a number above 0 up to 10."""
    min_rto_s: float = 0.0002
    """Shortest retransmission timeout, but for three of the shortest round trips where these are less; so long a
    packet may be overtaken. Accepted: a number above 0 up to 3600.
    """
    max_rto_s: float = 1.0
    """Longest retransmission timeout, to which timeouts double. Accepted: a number above 0 up to 3600."""
    max_ack_delay_s: float = 0.0005
    """How long a receiver may hold back an acknowledgement. Accepted: a number from 0 to 1."""
    timer_granularity_s: float = 0.0001
    """How late this host's timers may be: pacing allows this much of its rate at once. Accepted: a number from 0 to
    1.
    """

    # ---- bounds ----
    max_copied_bytes: int = 16777216
    """Short messages under way to one peer that leave from copies, so that their sends are over at once. Beyond it a
    send is over once the peer has it. Accepted: an integer from 0 to 1 099 511 627 776.
    """
    max_peers: int = 4096
    """Peers of an endpoint. Beyond it connecting fails and incoming handshakes are dropped. Accepted: an integer
    from 1 to 65 535.
    """
    max_messages_per_peer: int = 16384
    """Messages under way with one peer. Beyond it sending and receiving fail with LimitError. Accepted: an integer
    from 1 to 1 048 576.
    """
    max_unexpected_bytes: int = 67108864
    """Payload kept of messages that nobody has asked for. Beyond it packets are dropped and their senders hold.
    Accepted: an integer from 0 to 1 099 511 627 776.
    """
    max_unexpected_message_bytes: int = 67108864
    """Longest message that is kept before somebody asks for it; a longer one's sender holds, which costs less than
    keeping and copying it. Accepted: an integer from 0 to 1 099 511 627 776.
    """

    # ---- collectives ----
    algorithm: str | None = None
    """Schedule of collectives, as dlcp.transport.schedule names it; auto: the quickest by estimate, from size,
    ranks, hosts, links and processors. Accepted: the name of a schedule, or auto.
    """
    aggregation: str | None = None
    """A switch that adds all-reduces of float32 up, asked for by the address of its job's hub. The switch may read
    and falsify the values, and so may whoever can send behind a rank's port or from the hub's address: nothing is
    authenticated. See p4/aggregation.md. Accepted: switch://HOST:PORT, with ?NAME=VALUE&… behind it, or off.
    """
    hub: str | None = None
    """The hub of this rank's rack (`dlcp hub`), which adds for all-reduces and reduce-scatters of the job's groups;
    several share the work. Ranks that name different ones are racks, whose hubs exchange their sums. Needs
    hub_key_file or key_file. Accepted: host:port of a hub's service, several with commas, or off.
    """
    hub_job: str = "job"
    """The job's name at the hub, under which the hub's file of keys has the key that admits it. Accepted: a name."""
    hub_key_file: str | None = None
    """A file with the key that admits the job to the hub: 32 bytes, or 64 hexadecimal digits; auto: the job key, if
    it is the user's own. Accepted: the path of a file, or auto.
    """
    hub_bytes_min: int = 262144
    """Sums of fewer bytes do not go over the hub; of coded values they count as floats. Accepted: an integer from 1
    to 1 099 511 627 776.
    """
    timeout_s: float | None = None
    """Time after which a collective fails on every rank; auto: what the group is opened with (torch: its `timeout`).
    Accepted: a number above 0 up to 1e+09, or auto.
    """

    # ---- what one can see ----
    log_level: str | None = None
    """Least level of the lines that the logger `dlcp` writes to standard error unless the program has set up
    logging; auto: as the program has it. Accepted: one of debug, info, warning, error, or auto.
    """
    metrics_port: int | None = None
    """TCP port of the Prometheus endpoint, 0: any free one; off: there is none. Accepted: an integer from 0 to 65
    535, or off.
    """
    metrics_host: str = "127.0.0.1"
    """Address of the Prometheus endpoint. Whoever reaches it can read it. Accepted: an address of this host."""
    flight_recorder_entries: int = 2048
    """Operations that the flight recorder remembers per process; 0: it is off. Accepted: an integer from 0 to 1 048
    576.
    """
    flight_recorder_dir: str | None = None
    """Folder that the flight recorder writes to when an operation fails; auto: the folder for temporary files.
    Accepted: the path of a folder, or auto.
    """
