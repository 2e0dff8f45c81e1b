// Messages from peers and the receives for them: where a block goes, when a message may end, and what its end means to
// both sides.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/liveness.hpp"
#include "engine/matching.hpp"
#include "engine/receive_coalescing.hpp"
#include "engine/receiver_credit.hpp"
#include "engine/shared_state.hpp"

namespace dlcp {

class Incoming {
public:
    Incoming(SharedState& shared, Liveness& liveness, ReceiverCredit& credit)
        : shared_(shared), liveness_(liveness), credit_(credit), matching_(shared.incoming) {}

    // Commands, as Endpoint has them; `peer` is nullptr for any. claim() gives the receive the message that is
    // here, in full or in part; nothing: none is. post() lets it wait.
    std::optional<MessageId> claim(Time now, Peer* peer, const ReceiveCommand& command);
    CommandResult<MessageId> post(Time now, Peer* peer, const ReceiveCommand& command);
    CommandError cancel(Time now, MessageId id);
    CommandError release(MessageId id);
    CommandResult<MessageOutcome> outcome(MessageId id) const;
    std::size_t discard_unexpected(Time now, const std::function<bool(std::uint64_t tag)>& unwanted);
    void close_receives_from_any(Time now);
    Bytes unexpected_bytes() const { return unexpected_; }

    // Accepts one block. False: no room, so the packet is not acknowledged.
    bool handle_data(Time now, Time arrived, Peer& peer, const wire::Datagram& datagram);
    // The sender has sent every block of this message once, and said so in a packet that took `delay_ns`.
    void note_first_pass_over(Time now, IncomingMessage& message, std::uint32_t delay_ns);
    // Ends a message that may end with blocks missing, or sets the time of the next check.
    void end_if_possible(Time now, std::uint32_t slot);
    // Ends an incoming message or a receive: notifies the application if it asked, and the sender if it sent anything.
    void finish(Time now, std::uint32_t slot, CommandError error);
    // All messages below `floor` are over for the sender: their records may go.
    void advance_floor(Time now, Peer& peer, std::uint32_t floor);
    // Owes the sender an answer in the next control packet: how one of its messages ended, or that it must wait.
    void answer(Peer& peer, std::uint32_t wire_id);
    // The same of all that ended well, whole or with blocks abandoned: a sender that missed the answer would take its message for failed.
    void answer_again(Peer& peer);
    // The session ends: messages that began to arrive fail, and nothing is left to report about those that are over.
    void end_active(Time now, Peer& peer);
    void forget_outcomes(Peer& peer);

    // After a batch of packets: see ReceiveCoalescing.
    void end_batch(Time now) { coalescing_.end_batch(now, shared_.config.receive_buffer); }
    Duration nap(Time now) const { return coalescing_.nap(now); }
    void handle_timer(Time now);
    // What must always hold, slowly. Empty: it does.
    std::string check_invariants() const;

private:
    // What a message without a receive is charged: its payload, or at least the size of its record.
    static Bytes charge(std::uint32_t message_bytes) { return {std::max<std::uint64_t>(message_bytes, 512)}; }
    bool has_room(std::uint32_t message_bytes) const;
    void announce_unexpected(const Peer& peer, const wire::Header& header);
    void hold_beyond_span(Peer& peer, const wire::Header& header);
    void open_or_hold(Time now, Peer& peer, const wire::Header& header, IncomingEntry& entry);
    bool open_message(Time now, Peer& peer, const wire::Header& header);
    // Forced inline: code that runs once per packet and has one caller. GCC considers it too large.
    [[gnu::always_inline]] inline void place_block(Time now, std::uint32_t slot, const wire::Datagram& datagram,
                                                   std::uint32_t delay_ns);
    void settle_message(std::uint32_t slot);
    void give_up_unexpected(std::uint32_t slot);
    static void close_entry(IncomingEntry& entry, const IncomingMessage& message);
    void forget(std::uint32_t slot);
    void forget_outcome(IncomingEntry& entry);
    void proceed_held(Peer& peer);
    void proceed_all();

    SharedState& shared_;
    Liveness& liveness_;
    ReceiverCredit& credit_;
    Matching matching_;
    Bytes unexpected_{0};  // staged payload
    ReceiveCoalescing coalescing_;
};

}  // namespace dlcp
