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
#include "engine/units.hpp"

namespace dlcp {

struct EndpointConfig {
    std::uint32_t rank = 0;
    std::uint32_t job = 0;
    // Which start of the job this is; any value. It enters every key, so that with a job_key an endpoint refuses the
    // packets of one of another incarnation, although job, ranks, addresses and job_key are the same. 0: none. Without a
    // job_key it has no effect.
    std::uint64_t incarnation = 0;

    // Packet protection. Without a key packets carry no tag: whoever can reach the socket can forge them, so
    // drivers accept only loopback unless told otherwise.
    std::optional<JobKeyBytes> job_key;
    bool encrypt = false;
    CryptoLibrary crypto_library = CryptoLibrary::fastest;

    // Datagrams. The handshake lowers this to what the path carries.
    std::uint16_t max_datagram_bytes = 1472;  // 576 .. 9152: UDP payload

    // Spraying.
    std::uint16_t paths = 8;         // 1..64
    std::uint16_t run_packets = 16;  // packets of one path in a row; 1 sprays packet by packet

    // Congestion control.
    CongestionAlgorithm congestion{};  // one of congestion_controllers; the first, window, is the default
    // Standing queue that the window tolerates. 1 ms: on hosts with a kernel stack and shared cores scheduling
    // alone delays packets by this much; a simulator of 100 Gbit/s fabrics sets 0.75 x base RTT (UET's NSCC).
    Duration target_delay = milliseconds(1);
    Bytes initial_window{64 * 1024};
    Bytes max_window{16 * 1024 * 1024};
    Rate line_rate{0};  // of this host's link; 0: unknown (no cap); some controllers require it
    // What this endpoint can buffer before reading, for all peers together: offered to senders as credit.
    Bytes receive_buffer{2 * 1024 * 1024};

    // Private channels (DLCP_ADDRESS_TRUSTED): what one holds per direction, which is all that bounds its sender, and
    // the largest datagram in one, whatever the network carries.
    Bytes channel_buffer{1024 * 1024};
    std::uint16_t channel_datagram_bytes = 9152;  // 576 .. 9152

    // Timers.
    Duration initial_rtt = milliseconds(10);  // until measured
    Duration min_rto = microseconds(200);     // floor near a data centre's round trip, not TCP's 200 ms
    Duration max_rto = seconds(1);
    Duration max_ack_delay = microseconds(500);
    // How late a driver may call back after next_deadline(): pacing allows this much of its rate at once.
    Duration timer_granularity = microseconds(100);
    Duration peer_timeout = seconds(10);  // silence after which a peer with work outstanding is dead

    // Bounds.
    std::uint32_t max_peers =
        4096;  // 1..65535 (a session names its peer in 16 bits); at the bound: connect fails; an incoming hello is dropped
    std::uint32_t max_messages_per_peer = 16384;  // at the bound: send and receive fail with too_many_messages
    Bytes max_unexpected{64 * 1024 * 1024};       // payload kept without a receive; at the bound: senders hold
    // Longer messages are held until they are asked for, whatever room there is: staging and copying them costs more
    // than the round trip that holding costs.
    Bytes max_unexpected_message{64 * 1024 * 1024};
    // Sent of a message before any of it is acknowledged: what comes before it is asked for, and is too long to be kept,
    // is dropped. A message loses a round trip by it at most, and nothing where others fill the time.
    Bytes eager{256 * 1024};
    bool announce_unexpected = false;  // tell of messages that nobody has asked for: EventKind::message_unexpected

    // DSCP per traffic class (RFC 2474). Default: class selectors, control CS7 … class 0 CS0.
    std::array<std::uint8_t, 8> dscp = {0, 8, 16, 24, 32, 40, 48, 56};

    // Empty if usable; otherwise a sentence that names the field, its value and the accepted range.
    std::string validate() const;
};

}  // namespace dlcp
