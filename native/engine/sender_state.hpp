// What one session keeps about packets and messages to the peer.
//
// Written by DataWriter (what leaves) and Recovery (acknowledged or lost). Outgoing changes the queues and ids of
// messages, Sessions sets what a handshake found, Liveness times. A value: a new session starts with a new one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/congestion/congestion.hpp"
#include "engine/id_ring.hpp"
#include "engine/outgoing_message.hpp"
#include "engine/pacer.hpp"
#include "engine/path_set.hpp"
#include "engine/run_length.hpp"
#include "engine/send_queue.hpp"
#include "engine/sent_ring.hpp"
#include "engine/size_search.hpp"
#include "engine/units.hpp"
#include "engine/wire.hpp"

namespace dlcp {

using StartedList = IntrusiveList<OutgoingMessage, &OutgoingMessage::started_link>;

struct SenderState {
    // Packets by number, from sending until they are resolved. DataWriter and ControlWriter add, Recovery resolves.
    SentRing sent;
    // Data packets in `sent` that are not declared lost; 0 to PacketWindow::width.
    std::uint32_t awaiting = 0;
    // Datagram bytes of these packets.
    Bytes in_flight{0};
    // Datagram bytes declared lost since congestion control was last updated.
    Bytes lost_unreported{0};
    // Datagram bytes sent since the last packet that asked for an acknowledgement.
    std::uint64_t unrequested_bytes = 0;

    // Per lane (class * paths + path): one past the largest acknowledged packet number of the lane; 0: none.
    std::vector<std::uint64_t> lane_acked_end;
    // Of acknowledged packets: one past the largest number, 0: none; and when the latest sent of them was sent.
    struct Newest {
        std::uint64_t end = 0;
        Time sent_at{INT64_MIN / 2};
    };
    // Of all, and of those that travelled in queues of data, which packets of the control class overtake.
    Newest newest_acked;
    Newest newest_acked_data;
    // Messages that may lose have ended their first pass, and not all of it is acknowledged or lost.
    bool passes_settle = false;
    // Spurious losses of packets before this number have widened the tolerances already, or not more than once a round.
    std::uint64_t widened_end = 0;
    // A round trip ends when this packet number or a later one is acknowledged.
    std::uint64_t round_end = 0;

    // The network. Set when the session is established; updated by recovery.
    PathSet paths;
    std::unique_ptr<CongestionControl> congestion;
    Pacer pacer;
    // Median one-way queueing delay on the way to the peer, as its last acknowledgement stated it.
    Duration queue_delay{0};
    // Bytes that the peer can buffer from this endpoint, in flight at once, as its last acknowledgement stated it.
    Bytes credit{0};
    // And what that makes of bytes in flight on a path of this length (Peer::stretched).
    Bytes stretched_credit{0};
    // The peer gives turns (turn_scheduler.hpp), and this is ours until `turn_until` unless it says otherwise; 0: only
    // the first packets of new messages may leave. Nothing: it gives none. The control packet that said so.
    std::optional<Bytes> turn;
    Time turn_until = time_never;
    std::uint64_t turn_number = 0;
    RunLength run_length;
    // The run under way: its path, and how many packets are left of it. 0: the next packet starts a run.
    std::uint16_t run_path = 0;
    std::uint16_t run_left = 0;

    // Probe timeouts in a row without an answer that carried news about data. Changed by recovery.
    std::uint32_t timeouts = 0;
    // When a probe last left.
    Time probed_at{0};
    // When something new was last acknowledged, or sent after idleness: probe timeouts count from here.
    Time last_progress{0};
    // Whether large packets still pass, and when the next round of tests begins. `tests_due`: some of this round's have
    // not left. `large_control`: a control packet larger than the least datagram has left since the last search.
    SizeSearch size_search;
    bool tests_due = false;
    bool large_control = false;
    std::uint16_t test_path = 0;
    Time tests_at = time_never;

    // Timers; time_never: not set. The next probe; the next packet to become overdue; when the pacer allows more.
    Time probe_at = time_never;
    Time loss_at = time_never;
    Time pace_at = time_never;

    // Messages with something to send, by class.
    std::array<SendQueue, wire::traffic_classes> queues;
    // Messages of which something was sent and that are not over, by wire id.
    StartedList started;
    // Wire id -> slot of the message; UINT32_MAX once it is over. base(): the first id that is not over.
    IdRing<std::uint32_t> ids;
    // The application has been notified that an old open message keeps new ones from starting.
    bool ids_exhausted = false;
    // The base() of `ids` that was last sent to the peer. Changed by control.
    std::uint32_t floor_told = 1;

    bool has_queued() const {
        for (const SendQueue& queue : queues)
            if (!queue.empty()) return true;
        return false;
    }
    // Most bytes that may be in flight: the lower of congestion control's and the peer's buffer's limit.
    Bytes window(std::uint16_t datagram_bytes) const {
        if (turn) return std::min(congestion->window(), *turn);
        return std::min(congestion->window(), std::max({credit, stretched_credit, Bytes{datagram_bytes}}));
    }
    std::uint64_t& lane_end(const SentPacket& packet, std::uint16_t paths_per_class) {
        return lane_acked_end[std::size_t{packet.traffic_class} * paths_per_class + packet.path];
    }
    // What is acknowledged of later packets says something about this one only if they could not overtake it.
    const Newest& newest_beside(const SentPacket& packet) const {
        return packet.traffic_class == wire::control_class ? newest_acked : newest_acked_data;
    }
    bool waits() const { return turn && turn->value == 0; }
    Time next_timer() const { return std::min({probe_at, loss_at, pace_at, tests_at, turn_until}); }
};

}  // namespace dlcp
