// Doubly linked lists of slab objects, linked through members of the objects: O(1) removal, no allocation.
#pragma once

#include <cstdint>

#include "engine/slab.hpp"

namespace dlcp {

struct Link {
    static constexpr std::uint32_t none = UINT32_MAX;
    std::uint32_t previous = none;
    std::uint32_t next = none;
    bool linked = false;
};

template <class T, Link T::*link>
class IntrusiveList {
public:
    bool empty() const { return head_ == Link::none; }
    std::uint32_t front() const { return head_; }
    std::uint32_t size() const { return size_; }

    void push_back(Slab<T>& slab, std::uint32_t slot) {
        Link& own = slab[slot].*link;
        own = {tail_, Link::none, true};
        if (tail_ == Link::none)
            head_ = slot;
        else
            (slab[tail_].*link).next = slot;
        tail_ = slot;
        ++size_;
    }
    void push_front(Slab<T>& slab, std::uint32_t slot) {
        Link& own = slab[slot].*link;
        own = {Link::none, head_, true};
        if (head_ == Link::none)
            tail_ = slot;
        else
            (slab[head_].*link).previous = slot;
        head_ = slot;
        ++size_;
    }
    // Does nothing if the object is in no list.
    void remove(Slab<T>& slab, std::uint32_t slot) {
        Link& own = slab[slot].*link;
        if (!own.linked) return;
        if (own.previous == Link::none)
            head_ = own.next;
        else
            (slab[own.previous].*link).next = own.next;
        if (own.next == Link::none)
            tail_ = own.previous;
        else
            (slab[own.next].*link).previous = own.previous;
        own = Link{};
        --size_;
    }
    static std::uint32_t next(const Slab<T>& slab, std::uint32_t slot) { return (slab[slot].*link).next; }

private:
    std::uint32_t head_ = Link::none;
    std::uint32_t tail_ = Link::none;
    std::uint32_t size_ = 0;
};

}  // namespace dlcp
