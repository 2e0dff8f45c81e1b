#include "engine/receiver_credit.hpp"

#include <algorithm>

namespace dlcp {

namespace {

// A peer counts as a sender for at least this long after its last data. The endpoint does not walk the list of senders
// at every acknowledgement: with hundreds of senders that walk would cost more than all else.
constexpr Duration sender_memory = milliseconds(10);
constexpr Duration senders_check = milliseconds(1);

}  // namespace

ReceiverCredit::ReceiverCredit(SharedState& shared)
    : shared_(shared),
      turns_(congestion_controllers[static_cast<std::size_t>(shared.config.congestion)].gives_turns,
             shared.config.line_rate, Bytes{shared.config.max_datagram_bytes}) {}

ReceiverCredit::Allowed ReceiverCredit::allowed(Time now, Peer& peer) {
    const std::optional<Bytes> turn = turns_.turn(peer.index);
    const Bytes credit = share(now, peer);
    return {std::min(credit, turn.value_or(credit)), turn.has_value()};
}

void ReceiverCredit::expect(IncomingMessage& m) {
    const Peer& peer = *shared_.peers[m.peer];
    if (!turns_.gives() || is_trusted(peer.address)) return;
    m.counted = true;
    if (m.part)
        turns_.part_opened(peer.index);
    else
        turns_.opened(peer.index, {m.traffic_class, m.message_bytes}, m.missing_bytes(),
                      peer.rank - shared_.config.rank,
                      peer.rtt.measured() ? peer.rtt.min() : shared_.config.initial_rtt);
}

// How much this peer may have in flight to this endpoint: a share of the receive buffer. All recent senders share it,
// so that together they cannot overflow it.
Bytes ReceiverCredit::share(Time now, Peer& peer) {
    if (is_trusted(peer.address)) return shared_.config.channel_buffer;  // not shared
    if (now >= senders_checked_at_ + senders_check) {
        senders_checked_at_ = now;
        std::erase_if(senders_, [&](std::uint32_t index) {
            Peer& other = *shared_.peers[index];
            other.sends = now - other.last_data_at <= std::max(other.rtt.smoothed() * 8, sender_memory);
            return !other.sends;
        });
    }
    if (!peer.sends) {
        peer.sends = true;
        senders_.push_back(peer.index);
    }
    return std::max(shared_.config.receive_buffer / senders_.size(),
                    Bytes{2 * std::uint64_t{peer.datagram_bytes}});
}

void ReceiverCredit::handle_timer(Time now) {
    if (turns_.next() <= now) give_turns(now);
}

void ReceiverCredit::give_turns(Time now) {
    told_.clear();
    turns_.decide(now, told_);
    for (const std::uint32_t index : told_) {
        Peer& peer = *shared_.peers[index];
        if (!peer.up()) continue;
        peer.session->owed.ack = true;
        shared_.queue_control(peer);
    }
}

}  // namespace dlcp
