// What a runtime is opened with, and the settings that only a job of Python's reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/executor.hpp"
#include "engine/config.hpp"
#include "engine/setting.hpp"
#include "engine/units.hpp"
#include "io/io_table.h"

namespace dlcp {

struct RuntimeOptions {
    // max_datagram_bytes and receive_buffer are set from the two fields below. announce_unexpected is for runtimes with
    // groups, and makes all tags of the endpoint theirs (collective/tag.hpp); without it calls that do not match are
    // found by time-outs only.
    EndpointConfig engine;
    std::uint32_t max_datagram_bytes = 0;    // 0: what the driver says its interface carries
    std::uint64_t receive_buffer_bytes = 0;  // 0: what the driver says its sockets hold
    std::string driver = "udp";              // a name (driver_registry.hpp); a table comes first
    const dlcp_io_table* table = nullptr;
    std::string bind_host;                  // empty: loopback
    std::uint16_t port = 0;                 // 0: any free one
    std::string interface_name;             // empty: any
    std::uint32_t socket_buffer_bytes = 0;  // 0: the driver's default
    bool segmentation_offload = true;       // without it: DLCP_IO_NO_GSO
    bool receive_offload = true;            // without it: DLCP_IO_NO_GRO
    std::string driver_options;
    bool huge_pages = true;
    double inject_loss_ratio = 0.0;  // 0 to 1 (lossy_driver.hpp)
    bool allow_unauthenticated = false;
    // false: nothing moves but inside wait, progress and close. For tests and for callers with a loop of their own.
    bool io_thread = true;
    Duration linger = milliseconds(2);
    // What messages to one peer leave from copies at once (CollectiveExecutor).
    Bytes max_copied = CollectiveExecutor::max_copied_default;
    // close() waits this long for peers to acknowledge what collectives have left in copies: failure notices, and what
    // wait_delivered() was not given the time for.
    Duration close_timeout = seconds(2);
    // 0: from the system's entropy. Anything else only for tests: session ids must not repeat.
    std::uint64_t seed = 0;

    std::uint32_t io_flags() const {
        return (segmentation_offload ? 0u : DLCP_IO_NO_GSO) | (receive_offload ? 0u : DLCP_IO_NO_GRO);
    }
};

// Settings that only Python reads. They stand here so that the table has all of them; nothing in C++ uses the values.
struct JobSettings {
    std::string port_range;
    bool shm = true;
    std::string eal_arguments;
    std::string key;
    std::string key_file;
    double connect_timeout_s = 30;
    std::string algorithm;
    std::string aggregation;
    std::string hub;
    std::string hub_job = "job";
    std::string hub_key_file;
    std::uint64_t hub_bytes_min = 256 * 1024;
    double timeout_s = 0;
    std::string log_level;
    std::uint32_t metrics_port = 0;
    std::string metrics_host = "127.0.0.1";
    std::uint32_t flight_recorder_entries = 2048;
    std::string flight_recorder_dir;
};

inline constexpr SettingRow<RuntimeOptions> runtime_settings[] = {
    setting_row<&RuntimeOptions::driver>(
        {SettingSection::place, "driver", accept::text("udp, local, dpdk, xdp, the name of a plugin, or its path"),
         "What carries packets. udp: the kernel's sockets; local: these, and shared memory between ranks of one "
         "host, as "
         "jobs have it anyway (shm); dpdk, xdp: whole frames, below the kernel; or a plugin."}),
    setting_row<&RuntimeOptions::driver_options>(
        {SettingSection::place, "driver_options", accept::text("options of the driver, separated by spaces"),
         "Options of the driver that `driver` names, such as port=0000:3b:00.0@10.0.0.1/24 queues=2 for dpdk."}),
    setting_row<&RuntimeOptions::bind_host>(
        {SettingSection::place, "bind_host", accept::text("an address or a name of this host"),
         "Address to bind; auto: loopback, or the interface's own address if `interface` is set. Below the kernel "
         "(dpdk, "
         "xdp) the port's own address, which may carry the length of its network's prefix: 10.0.0.1/24.",
         "auto"}),
    setting_row<&RuntimeOptions::port>({SettingSection::place, "port", accept::integer(0, 65535),
                                        "UDP port that peers send to; 0: any free one."}),
    setting_row<&RuntimeOptions::interface_name>(
        {SettingSection::place, "interface", accept::special(SettingKind::interfaces),
         "Be reached at this interface's address. A single endpoint also sends "
         "through no other; the ranks of a job go by the kernel's routes. A "
         "pattern as in NCCL_SOCKET_IFNAME: beginnings of names (eth,ib), "
         "exact names (=eth0,eth1) or any but some (^docker,lo). Below "
         "the kernel one device: for xdp the interface's "
         "name, for dpdk DPDK's name of it, such as 0000:3b:00.0.",
         "auto"}),
    setting_row<&RuntimeOptions::inject_loss_ratio>({SettingSection::place, "inject_loss_ratio",
                                                     accept::number(0, 1),
                                                     "Share of arriving packets that is dropped on purpose, for "
                                                     "demonstrations and tests. Logged and counted."}),
    setting_row<&RuntimeOptions::allow_unauthenticated>(
        {SettingSection::protection, "allow_unauthenticated", accept::boolean(),
         "Accept, without a job key, an address that other hosts can reach."}),
    setting_row<&RuntimeOptions::max_datagram_bytes>({SettingSection::datagrams, "max_datagram_bytes",
                                                      accept::integer(576, 9152),
                                                      "Largest UDP payload; auto: what the interface carries in "
                                                      "one piece. The handshake lowers it to the path.",
                                                      "auto"}),
    setting_row<&RuntimeOptions::socket_buffer_bytes>({SettingSection::datagrams, "socket_buffer_bytes",
                                                       accept::integer(4096, 2147483647.0),
                                                       "Requested of the kernel for receiving and for sending, or "
                                                       "of DPDK as queues that hold so much; auto: what "
                                                       "they have.",
                                                       "auto"}),
    setting_row<&RuntimeOptions::receive_buffer_bytes>(
        {SettingSection::datagrams, "receive_buffer_bytes", accept::integer(65536, tebibyte),
         "Offered to all senders together as credit; auto: what the sockets hold.", "auto"}),
    setting_row<&RuntimeOptions::segmentation_offload>({SettingSection::datagrams, "segmentation_offload",
                                                        accept::boolean(),
                                                        "Hand runs of packets to the kernel as one (UDP GSO)."}),
    setting_row<&RuntimeOptions::receive_offload>({SettingSection::datagrams, "receive_offload", accept::boolean(),
                                                   "Take runs of packets from the kernel as one (UDP GRO)."}),
    setting_row<&RuntimeOptions::huge_pages>(
        {SettingSection::datagrams, "huge_pages", accept::boolean(),
         "Have the kernel move buffers of 4 MiB and more that collectives use "
         "again and again into huge pages, unless it refuses them to all "
         "(never in /sys/kernel/mm/transparent_hugepage/enabled)."}),
    setting_row<&RuntimeOptions::max_copied>({SettingSection::bounds, "max_copied_bytes",
                                              accept::integer(0, tebibyte),
                                              "Short messages under way to one peer that leave from copies, so "
                                              "that their sends are over at once. Beyond "
                                              "it a send is over once the peer has it."}),
    setting_row<&RuntimeOptions::linger>(
        {SettingSection::timers, "linger_s", accept::number(0, 0.1),
         "How long the I/O thread stays away after a call while nothing is under way, "
         "so that the next call need not wait for it. Peers may be answered so "
         "much later."}),
};

inline constexpr SettingRow<JobSettings> job_settings[] = {
    setting_row<&JobSettings::port_range>({SettingSection::place, "port_range",
                                           accept::special(SettingKind::ports),
                                           "In place of `port`: low-high, of which each process takes the first "
                                           "free port, so that a firewall can let them "
                                           "in. Packets still leave from any free ports, one per path.",
                                           "auto"}),
    setting_row<&JobSettings::shm>({SettingSection::place, "shm", accept::boolean(),
                                    "Ranks of one host talk through shared memory; false: through the network, as "
                                    "if they were on two hosts."}),
    setting_row<&JobSettings::eal_arguments>(
        {SettingSection::place, "eal_arguments",
         accept::text("arguments of DPDK's EAL, such as --lcores 2 -a 0000:3b:00.0"),
         "With driver dpdk: arguments that DPDK is started with in this process, quoted as in a shell."}),
    setting_row<&JobSettings::key>(
        {SettingSection::protection, "key", accept::special(SettingKind::secret),
         "The job key. Only an argument: in the environment or a file of settings others "
         "would see it; use key_file there.",
         "auto"}),
    setting_row<&JobSettings::key_file>({SettingSection::protection, "key_file",
                                         accept::path("the path of a file"),
                                         "A file with the job key: 32 bytes, or 64 hexadecimal digits.", "auto"}),
    setting_row<&JobSettings::connect_timeout_s>(
        {SettingSection::timers, "connect_timeout_s", accept::above(0, 1e9),
         "How long connect() waits for the handshake if the call names no time."}),
    setting_row<&JobSettings::algorithm>(
        {SettingSection::collectives, "algorithm", accept::text("the name of a schedule"),
         "Schedule of collectives, as dlcp.transport.schedule names it; auto: the "
         "quickest by estimate, from size, ranks, hosts, links and processors.",
         "auto"}),
    setting_row<&JobSettings::aggregation>(
        {SettingSection::collectives, "aggregation",
         accept::text("switch://HOST:PORT, with ?NAME=VALUE&… behind it"),
         "A switch that adds all-reduces of float32 up, asked for by the address of its job's hub. The switch "
         "may read and falsify the values, and so may whoever can send behind a rank's port or from the hub's "
         "address: nothing is authenticated. See p4/aggregation.md.",
         "off"}),
    setting_row<&JobSettings::hub>(
        {SettingSection::collectives, "hub", accept::text("host:port of a hub's service, several with commas"),
         "The hub of this rank's rack (`dlcp hub`), which adds for all-reduces and reduce-scatters of the job's "
         "groups; several share the work. Ranks that name different ones are racks, whose hubs exchange their "
         "sums. Needs hub_key_file or key_file.",
         "off"}),
    setting_row<&JobSettings::hub_job>({SettingSection::collectives, "hub_job", accept::text("a name"),
                                        "The job's name at the hub, under which the hub's file of keys has the "
                                        "key that admits it."}),
    setting_row<&JobSettings::hub_key_file>({SettingSection::collectives, "hub_key_file",
                                             accept::path("the path of a file"),
                                             "A file with the key that admits the job to the hub: 32 bytes, or 64 "
                                             "hexadecimal digits; auto: the job key, "
                                             "if it is the user's own.",
                                             "auto"}),
    setting_row<&JobSettings::hub_bytes_min>(
        {SettingSection::collectives, "hub_bytes_min", accept::integer(1, tebibyte),
         "Sums of fewer bytes do not go over the hub; of coded values they count as floats."}),
    setting_row<&JobSettings::timeout_s>({SettingSection::collectives, "timeout_s", accept::above(0, 1e9),
                                          "Time after which a collective fails on every rank; auto: what the "
                                          "group is opened with (torch: its `timeout`).",
                                          "auto"}),
    setting_row<&JobSettings::log_level>(
        {SettingSection::observing, "log_level", accept::one_of("debug, info, warning, error"),
         "Least level of the lines that the logger `dlcp` writes to standard error unless the program has set up "
         "logging; auto: as the program has it.",
         "auto"}),
    setting_row<&JobSettings::metrics_port>(
        {SettingSection::observing, "metrics_port", accept::integer(0, 65535),
         "TCP port of the Prometheus endpoint, 0: any free one; off: there is none.", "off"}),
    setting_row<&JobSettings::metrics_host>(
        {SettingSection::observing, "metrics_host", accept::text("an address of this host"),
         "Address of the Prometheus endpoint. Whoever reaches it can read it."}),
    setting_row<&JobSettings::flight_recorder_entries>(
        {SettingSection::observing, "flight_recorder_entries", accept::integer(0, 1048576),
         "Operations that the flight recorder remembers per process; 0: it is off."}),
    setting_row<&JobSettings::flight_recorder_dir>({SettingSection::observing, "flight_recorder_dir",
                                                    accept::path("the path of a folder"),
                                                    "Folder that the flight recorder writes to when an operation "
                                                    "fails; auto: the folder for temporary files.",
                                                    "auto"}),
};

// One setting as everybody outside C++ sees it.
struct SettingEntry {
    Setting setting;
    SettingLayer layer;
    SettingValue initial;  // the default
};

// All settings, in the order of their sections.
std::vector<SettingEntry> settings_table();

// Throws std::invalid_argument: no setting of the runtime or of its engine has this name, or not with such a value.
void set_setting(RuntimeOptions& options, std::string_view name, const SettingValue& value);

}  // namespace dlcp
