// Data packets: the highest class that has work and may send, one run at a time.
//
// A run is consecutive packets with one destination, path and TOS, and one length except for the last, so that a driver
// can pass it to the kernel in one piece. Within a class, peers take turns run by run.
#pragma once

#include <cstdint>
#include <span>

#include "engine/liveness.hpp"
#include "engine/outgoing.hpp"
#include "engine/pieces.hpp"
#include "engine/receiver_credit.hpp"
#include "engine/shared_state.hpp"

namespace dlcp {

class PacketBuilder;

class DataWriter {
public:
    DataWriter(SharedState& shared, Liveness& liveness, Outgoing& outgoing, Pieces& pieces, ReceiverCredit& credit)
        : shared_(shared), liveness_(liveness), outgoing_(outgoing), pieces_(pieces), credit_(credit) {}

    // Fills slots with runs. Returns how many packets.
    std::size_t poll(Time now, std::span<dlcp_packet> slots);

private:
    struct Run;  // data_writer.cpp

    std::size_t transmit_run(Time now, Peer& peer, std::uint8_t traffic_class, std::span<dlcp_packet> slots);
    // Forced inline: code that runs once per packet and has one caller. GCC considers it too large; the calls would
    // cost a tenth of the time per packet.
    [[gnu::always_inline]] inline bool find_work(SendQueue& queue, const SendList& list);
    [[gnu::always_inline]] inline const SendList* list_for_run(Peer& peer, SendQueue& queue);
    const SendList* bring_started_forward(SendQueue& queue, const SendList& list);
    std::uint64_t in_flight_bytes_max(const Peer& peer) const;
    [[gnu::always_inline]] inline bool may_start_run(Peer& peer, Run& run, bool repairs);
    [[gnu::always_inline]] inline void fill_run(Peer& peer, SendQueue& queue, const SendList& list, Run& run,
                                                PacketBuilder& packet);
    bool may_start_message(Peer& peer);
    bool start_message(Peer& peer, std::uint32_t slot, Time now);
    [[gnu::always_inline]] inline bool add_block(Peer& peer, Run& run, PacketBuilder& packet, std::uint32_t slot);
    [[gnu::always_inline]] inline bool asks_for_acknowledgement(const Peer& peer, const Run& run) const;
    [[gnu::always_inline]] inline void finish_run(Peer& peer, Run& run);

    SharedState& shared_;
    Liveness& liveness_;
    Outgoing& outgoing_;
    Pieces& pieces_;
    ReceiverCredit& credit_;
};

}  // namespace dlcp
