// Settings of one endpoint, and the bounds on everything it keeps.
//
// Every bound says what happens when it is reached: a named event or a CommandError, never silence.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/congestion/controllers.hpp"
#include "engine/protection.hpp"
#include "engine/run_length.hpp"
#include "engine/setting.hpp"
#include "engine/units.hpp"

namespace dlcp {

struct EndpointConfig {
    std::uint32_t rank = 0;  // this endpoint's rank, unique in the job
    std::uint32_t job = 0;
    // Which start of the job this is; any value. It enters every key: with a job_key, an endpoint refuses packets of
    // another incarnation even if job, ranks, addresses and job_key are the same. 0: none. Without a job_key it has no
    // effect.
    std::uint64_t incarnation = 0;

    // Without a key packets carry no tag, so anyone who can reach the socket can forge them. Drivers therefore accept
    // only loopback addresses by default.
    std::optional<JobKeyBytes> job_key;
    bool encrypt = false;
    CryptoLibrary crypto_library = CryptoLibrary::fastest;
    CipherChoice cipher = CipherChoice::any;

    std::uint16_t max_datagram_bytes = 1472;  // 576 to 9152: UDP payload; the handshake lowers it to the path

    std::uint16_t paths = 64;
    // Bounds of runs; what one super-packet holds is a bound as well (run_length.hpp).
    std::uint16_t run_packets = 64;
    std::uint16_t min_run_packets = 1;
    SwitchesSpray switches_spray{};

    CongestionAlgorithm congestion{};  // one of congestion_controllers; the first, auto, is the default
    // 1 ms: with a kernel stack and shared cores, scheduling alone delays packets by this much. A simulator of 100
    // Gbit/s fabrics sets 0.75 x base RTT (UET's NSCC).
    Duration target_delay = milliseconds(1);
    Bytes initial_window{64 * 1024};
    Bytes max_window{16 * 1024 * 1024};
    Rate line_rate{0};
    // What this endpoint can buffer before it reads, for all peers together; it is offered to senders as credit.
    Bytes receive_buffer{2 * 1024 * 1024};

    // Private channels (DLCP_ADDRESS_TRUSTED): the bytes that one holds per direction, the only limit of its sender;
    // and the largest datagram in one, whatever the network carries.
    Bytes channel_buffer{1024 * 1024};
    // 576 to DLCP_CHANNEL_PACKET_BYTES_MAX. A header and 60 KiB: with 9 KiB the engine's work per packet is a fourth of
    // an all-reduce of 64 MB.
    std::uint16_t channel_datagram_bytes = 61504;

    Duration initial_rtt = milliseconds(10);
    Duration min_rto = microseconds(200);  // near a data centre's round trip, not TCP's 200 ms
    Duration max_rto = seconds(1);
    Duration max_ack_delay = microseconds(500);
    Duration timer_granularity = microseconds(100);
    Duration peer_timeout = seconds(30);

    std::uint32_t max_peers = 4096;  // a session names its peer in 16 bits
    std::uint32_t max_messages_per_peer = 16384;
    Bytes max_unexpected{64 * 1024 * 1024};
    Bytes max_unexpected_message{64 * 1024 * 1024};
    Bytes eager{256 * 1024};
    bool virtual_payload = false;      // the driver carries lengths only, so pieces of packets may do so too
    bool announce_unexpected = false;  // report messages without a receive: EventKind::message_unexpected

    ClassCodes dscp = {0, 8, 16, 24, 32, 40, 48, 56};  // RFC 2474: class selectors, control CS7 … class 0 CS0

    // Empty if usable; otherwise a sentence that names the setting, its value and the accepted range.
    std::string validate() const;
};

inline constexpr double tebibyte = 1099511627776.0;

// How the engine sends and receives. The simulator's hosts have these settings too.
inline constexpr SettingRow<EndpointConfig> protocol_settings[] = {
    setting_row<&EndpointConfig::paths>({SettingSection::spraying, "paths", accept::integer(1, 64),
                                         "Source ports to spray packets over, at most; auto: 64, and 1 on "
                                         "loopback. Runs of many packets use eight.",
                                         "auto"}),
    setting_row<&EndpointConfig::run_packets>(
        {SettingSection::spraying, "run_packets", accept::integer(1, 1024),
         "Packets of one path in a row, at most: as many while the network shows no queue. auto: what the driver "
         "passes "
         "on in one piece, which is 64 KB in the kernel and a packet below it.",
         "auto"}),
    setting_row<&EndpointConfig::min_run_packets>(
        {SettingSection::spraying, "min_run_packets", accept::integer(1, 1024),
         "Packets of one path in a row at least: also while the network shows a queue."}),
    setting_row<&EndpointConfig::switches_spray>({SettingSection::spraying, "switches_spray",
                                                  accept::one_of("auto, no, yes"),
                                                  "Whether switches choose a path for each packet, so that long "
                                                  "runs cost the network nothing; auto: seen by "
                                                  "packets of a run that overtake each other."}),
    setting_row<&EndpointConfig::congestion>(
        {SettingSection::congestion, "congestion", accept::one_of(congestion_names), congestion_summaries}),
    setting_row<&EndpointConfig::target_delay>({SettingSection::congestion, "target_delay_s", accept::above(0, 10),
                                                "Standing queue that the congestion window tolerates."}),
    setting_row<&EndpointConfig::initial_window>({SettingSection::congestion, "initial_window_bytes",
                                                  accept::integer(576, tebibyte),
                                                  "Bytes in flight to a peer before anything is acknowledged."}),
    setting_row<&EndpointConfig::max_window>({SettingSection::congestion, "max_window_bytes",
                                              accept::integer(576, tebibyte),
                                              "Bytes in flight to a peer at most."}),
    setting_row<&EndpointConfig::eager>(
        {SettingSection::congestion, "eager_bytes", accept::integer(576, tebibyte),
         "Bytes of a message sent before any of it is acknowledged. A receiver that has not asked for a message "
         "too "
         "long to keep drops what comes of it; the message then loses a round trip."}),
    setting_row<&EndpointConfig::peer_timeout>({SettingSection::timers, "peer_timeout_s", accept::above(0, 86400),
                                                "Silence after which a peer with work outstanding is dead."}),
    setting_row<&EndpointConfig::initial_rtt>({SettingSection::timers, "initial_rtt_s", accept::above(0, 10),
                                               "Round-trip time assumed until one is measured."}),
    setting_row<&EndpointConfig::min_rto>({SettingSection::timers, "min_rto_s", accept::above(0, 3600),
                                           "Shortest retransmission timeout, but for three of the shortest round "
                                           "trips where these are less; so long a "
                                           "packet may be overtaken."}),
    setting_row<&EndpointConfig::max_rto>({SettingSection::timers, "max_rto_s", accept::above(0, 3600),
                                           "Longest retransmission timeout, to which timeouts double."}),
    setting_row<&EndpointConfig::max_ack_delay>({SettingSection::timers, "max_ack_delay_s", accept::number(0, 1),
                                                 "How long a receiver may hold back an acknowledgement."}),
    setting_row<&EndpointConfig::timer_granularity>(
        {SettingSection::timers, "timer_granularity_s", accept::number(0, 1),
         "How late this host's timers may be: pacing allows this much of its rate at once."}),
};

// The endpoint's identity and bounds.
inline constexpr SettingRow<EndpointConfig> endpoint_settings[] = {
    setting_row<&EndpointConfig::job>({SettingSection::place, "job", accept::integer(0, 4294967295.0),
                                       "Number of the job; packets of another job are counted and dropped."}),
    setting_row<&EndpointConfig::encrypt>(
        {SettingSection::protection, "encrypt", accept::boolean(), "Encrypt payload with the job key."}),
    setting_row<&EndpointConfig::crypto_library>(
        {SettingSection::protection, "crypto_library", accept::one_of("fastest, openssl, ipsec_mb"),
         "What computes AES-128-GCM. One that is named has no other cipher."}),
    setting_row<&EndpointConfig::cipher>(
        {SettingSection::protection, "cipher", accept::one_of("any, aes_128_gcm, aegis_128x2"),
         "Cipher of tags and encryption; any: the one whose slower end is fastest, "
         "by processor and libraries of both ends. A named one is used or no session "
         "starts."}),
    setting_row<&EndpointConfig::line_rate>({SettingSection::congestion, "line_rate_bps", accept::integer(0, 1e13),
                                             "Rate of this host's link; 0: unknown. Congestion control line_rate "
                                             "needs it; auto learns it from what arrives."}),
    setting_row<&EndpointConfig::dscp>({SettingSection::spraying, "dscp",
                                        accept::special(SettingKind::class_codes),
                                        "DSCP of each traffic class, control last."}),
    setting_row<&EndpointConfig::max_peers>(
        {SettingSection::bounds, "max_peers", accept::integer(1, 65535),
         "Peers of an endpoint. Beyond it connecting fails and incoming handshakes are dropped."}),
    setting_row<&EndpointConfig::max_messages_per_peer>(
        {SettingSection::bounds, "max_messages_per_peer", accept::integer(1, 1048576),
         "Messages under way with one peer. Beyond it sending and receiving fail with LimitError."}),
    setting_row<&EndpointConfig::max_unexpected>({SettingSection::bounds, "max_unexpected_bytes",
                                                  accept::integer(0, tebibyte),
                                                  "Payload kept of messages that nobody has asked for. Beyond it "
                                                  "packets are dropped and their senders hold."}),
    setting_row<&EndpointConfig::max_unexpected_message>({SettingSection::bounds, "max_unexpected_message_bytes",
                                                          accept::integer(0, tebibyte),
                                                          "Longest message that is kept before somebody asks for "
                                                          "it; a longer one's sender holds, which costs less than "
                                                          "keeping and copying it."}),
};

}  // namespace dlcp
