// First-in first-out queue that grows by doubling and then allocates no more.
//
// Its size is a power of two, so that a place is found without a division.
#pragma once

#include <cstddef>
#include <vector>

namespace dlcp {

template <class T>
class RingQueue {
public:
    bool empty() const { return head_ == tail_; }
    std::size_t size() const { return tail_ - head_; }
    void clear() { head_ = tail_ = 0; }
    T& front() { return items_[head_ & (items_.size() - 1)]; }
    const T& front() const { return items_[head_ & (items_.size() - 1)]; }
    void push(const T& item) {
        if (size() == items_.size()) {
            std::vector<T> larger(items_.empty() ? 16 : items_.size() * 2);
            std::size_t n = 0;
            for (; head_ != tail_; ++head_) larger[n++] = items_[head_ & (items_.size() - 1)];
            items_.swap(larger);
            head_ = 0;
            tail_ = n;
        }
        items_[tail_++ & (items_.size() - 1)] = item;
    }
    void pop() { ++head_; }

private:
    std::vector<T> items_;
    std::size_t head_ = 0;
    std::size_t tail_ = 0;
};

}  // namespace dlcp
