// What one session owes the peer: the frames that the next control packets carry.
//
// Every part of the endpoint adds to it; ControlWriter writes the frames and clears what it wrote.
#pragma once

#include <cstdint>
#include <vector>

namespace dlcp {

struct Owed {
    // An acknowledgement; `ack_full`: of the whole window, since a probe asked.
    bool ack = false;
    bool ack_full = false;
    // A probe, the floor of this endpoint's messages, a goodbye.
    bool probe = false;
    // A probe that travels behind the data that it asks about, in a packet of its own.
    bool probe_of_data = false;
    // The frames due now leave in packets of the least size: earlier ones seem not to have arrived.
    bool small = false;
    // How many more packets hold the probe, or the acknowledgement of all, that the next one holds: most are lost.
    std::uint8_t further_probes = 0;
    std::uint8_t further_acks = 0;
    bool floor = false;
    bool close = false;
    // Wire ids of the peer's messages, by the frame that answers them, in the order in which that became due.
    std::vector<std::uint32_t> complete_ids;
    std::vector<std::uint32_t> outcome_ids;
    std::vector<std::uint32_t> refuse_ids;
    std::vector<std::uint32_t> hold_ids;
    std::vector<std::uint32_t> proceed_ids;
    // Next bitmap word of outcome_ids.front(), if its outcome did not fit one packet.
    std::uint32_t outcome_word = 0;
    // Wire ids of this endpoint's own messages that were cancelled.
    std::vector<std::uint32_t> cancel_ids;
    // Packet numbers that arrived trimmed.
    std::vector<std::uint64_t> trimmed_numbers;

    bool any() const {
        return ack || probe || probe_of_data || close || floor || !complete_ids.empty() || !outcome_ids.empty() ||
               !refuse_ids.empty() || !hold_ids.empty() || !proceed_ids.empty() || !cancel_ids.empty() ||
               !trimmed_numbers.empty();
    }
};

}  // namespace dlcp
