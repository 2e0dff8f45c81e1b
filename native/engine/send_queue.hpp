// Messages of one traffic class that have something to send to one peer: short ones before long ones.
//
// A short message behind a long one would wait for all of it, so the message with the least left to send goes first
// (pFabric, SIGCOMM'13, and Homa, SIGCOMM'18, order by the remaining bytes as well). Sizes a factor of sixteen apart
// have a list each; in a list messages keep their order. What is left is measured when a message joins. Every eighth
// run is taken from the longer lists in turn, so that short messages cannot stop them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/intrusive_list.hpp"
#include "engine/outgoing_message.hpp"

namespace dlcp {

using SendList = IntrusiveList<OutgoingMessage, &OutgoingMessage::queue_link>;

class SendQueue {
public:
    bool empty() const { return filled_ == 0; }

    void push_back(Slab<OutgoingMessage>& slab, std::uint32_t slot) { join(slab, slot).push_back(slab, slot); }
    void push_front(Slab<OutgoingMessage>& slab, std::uint32_t slot) { join(slab, slot).push_front(slab, slot); }
    // Does nothing if the message is in no list.
    void remove(Slab<OutgoingMessage>& slab, std::uint32_t slot) {
        const std::uint8_t list = slab[slot].send_list;
        if (!slab[slot].queue_link.linked) return;
        lists_[list].remove(slab, slot);
        if (lists_[list].empty()) filled_ &= static_cast<std::uint8_t>(~(1u << list));
    }

    // The lists that have a message, as bits; and which of some of them the next run is taken from.
    std::uint8_t filled() const { return filled_; }
    std::uint8_t next_of(std::uint8_t lists) const {
        const auto longer = static_cast<std::uint8_t>(lists & (lists - 1u));  // without the shortest
        if (!takes_turn() || longer == 0) return static_cast<std::uint8_t>(std::countr_zero(lists));
        std::uint8_t list = turn_;
        do list = static_cast<std::uint8_t>((list + 1u) % sizes);
        while ((longer >> list & 1) == 0);
        return list;
    }
    // The first of the shortest; Link::none: there is none.
    std::uint32_t first() const {
        return empty() ? Link::none : lists_[static_cast<std::size_t>(std::countr_zero(filled_))].front();
    }
    const SendList& list(std::uint8_t index) const { return lists_[index]; }
    // A run of this list has left.
    void on_run(const SendList& list) {
        if (takes_turn()) turn_ = static_cast<std::uint8_t>(&list - lists_.data());
        ++runs_;
    }

private:
    static constexpr std::size_t sizes = 5;
    // Bytes left in the messages of the first list, at most; the next list's are sixteen times as long.
    static constexpr std::uint64_t shortest_bytes = 16 * 1024;
    static constexpr std::uint32_t runs_per_turn = 8;

    bool takes_turn() const { return runs_ % runs_per_turn == runs_per_turn - 1; }

    static std::uint8_t list_of(std::uint64_t bytes) {
        std::uint8_t list = 0;
        for (std::uint64_t limit = shortest_bytes; bytes > limit && list + 1u < sizes; limit *= 16) ++list;
        return list;
    }
    SendList& join(Slab<OutgoingMessage>& slab, std::uint32_t slot) {
        const std::uint8_t list = list_of(slab[slot].bytes_left());
        slab[slot].send_list = list;
        filled_ |= static_cast<std::uint8_t>(1u << list);
        return lists_[list];
    }

    std::array<SendList, sizes> lists_;
    std::uint8_t filled_ = 0;  // bit i set: lists_[i] has a message
    std::uint32_t runs_ = 0;
    std::uint8_t turn_ = 0;  // the list that the last turn was taken from
};

}  // namespace dlcp
