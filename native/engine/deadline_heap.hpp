// Which of many numbered items is due next: a binary heap of (time, number), one movable entry per number.
//
// Equal times leave in order of number, so that a run does not depend on the heap's history.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/prefetch.hpp"
#include "engine/units.hpp"

namespace dlcp {

class DeadlineHeap {
public:
    bool empty() const { return heap_.empty(); }
    Time next() const { return heap_.empty() ? time_never : heap_[0].when; }
    std::uint32_t top() const { return heap_[0].number; }

    Time at(std::uint32_t number) const {
        return number < position_.size() && position_[number] != absent ? heap_[position_[number]].when
                                                                        : time_never;
    }
    // Adds or moves an entry; time_never removes it.
    void set(std::uint32_t number, Time when) {
        if (number >= position_.size()) position_.resize(number + 1, absent);
        std::uint32_t at = position_[number];
        if (when == time_never) {
            if (at == absent) return;
            position_[number] = absent;
            const Entry last = heap_.back();
            heap_.pop_back();
            if (at < heap_.size()) {
                heap_[at] = last;
                position_[last.number] = at;
                settle(at);
            }
            return;
        }
        if (at == absent) {
            at = static_cast<std::uint32_t>(heap_.size());
            heap_.push_back({when, number});
            position_[number] = at;
        } else {
            heap_[at].when = when;
        }
        settle(at);
    }

    void prefetch() const {
        dlcp::prefetch(heap_.data());
        dlcp::prefetch(position_.data());
    }

private:
    struct Entry {
        Time when;
        std::uint32_t number;
        bool before(const Entry& other) const {
            return when < other.when || (when == other.when && number < other.number);
        }
    };
    static constexpr std::uint32_t absent = UINT32_MAX;

    void settle(std::uint32_t at) {
        while (at > 0 && heap_[at].before(heap_[(at - 1) / 2])) {
            exchange(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        for (;;) {
            std::uint32_t least = at;
            for (std::uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < heap_.size(); ++child)
                if (heap_[child].before(heap_[least])) least = child;
            if (least == at) return;
            exchange(at, least);
            at = least;
        }
    }
    void exchange(std::uint32_t a, std::uint32_t b) {
        std::swap(heap_[a], heap_[b]);
        position_[heap_[a].number] = a;
        position_[heap_[b].number] = b;
    }

    std::vector<Entry> heap_;
    std::vector<std::uint32_t> position_;
};

}  // namespace dlcp
