// Reassembly and acknowledgements; see tcp_receiver.hpp.
#include "sim/core/transports/tcp_receiver.hpp"

#include <algorithm>
#include <bit>

namespace dlcp::sim {

bool TcpReceiver::handle_segment(std::uint32_t number, bool marked, std::int64_t sent_ps) {
    // RFC 7323 §4.3: of what the next acknowledgement covers, the earliest is echoed; of what is beyond a hole, nothing.
    if (number <= acknowledged_) echo_ps_ = std::max(echo_ps_, sent_ps);
    // Plain ECN: marked if any was (what ECE until CWR comes to, for a sender that reacts once per round trip).
    marked_ = settings_->per_state_echo || pending_ == 0 ? marked : marked_ || marked;
    ++pending_;
    if (last_sent_ps_ != INT64_MAX && sent_ps - last_sent_ps_ > settings_->quick_after_ps) at_once_ = true;
    last_sent_ps_ = sent_ps;

    if (number < next_ || (number < highest_ && other_end(number) != none)) {
        duplicate_ = true;
        duplicate_number_ = number;
        at_once_ = true;
        return false;
    }
    if (number == next_) {
        if (highest_ <= number) {
            highest_ = next_ = number + 1;
        } else {
            // A hole is filled, wholly or from below (RFC 5681 §4.2: at once).
            at_once_ = true;
            ++next_;
            if (other_end(next_) != none) {
                const std::uint32_t last = other_end(next_);
                for (; next_ <= last; ++next_) other_end(next_) = none;
            }
        }
        // The application has its message: its answer, or the room that reading makes, takes the acknowledgement along.
        if (complete()) at_once_ = true;
    } else {
        at_once_ = true;
        insert(number);
    }
    return true;
}

void TcpReceiver::insert(std::uint32_t number) {
    make_room(number);
    TcpRange range{number, number + 1};
    if (number > next_ && other_end(number - 1) != none) range.begin = other_end(number - 1);
    if (number + 1 < highest_ && other_end(number + 1) != none) range.end = other_end(number + 1) + 1;
    other_end(number) = number;
    other_end(range.begin) = range.end - 1;
    other_end(range.end - 1) = range.begin;
    if (number >= highest_) highest_ = number + 1;
    remember(range);
}

void TcpReceiver::make_room(std::uint32_t number) {
    const std::uint32_t needed = number + 2 - next_;
    if (needed <= other_end_.size()) return;
    std::vector<std::uint32_t> wider(std::bit_ceil(needed < 64 ? 64u : needed), none);
    if (!other_end_.empty()) {
        for (std::uint32_t i = next_; i < highest_; ++i) wider[i & (wider.size() - 1)] = other_end(i);
    }
    other_end_.swap(wider);
}

void TcpReceiver::remember(TcpRange range) {
    std::array<TcpRange, 4> kept;
    std::uint32_t count = 0;
    kept[count++] = range;
    for (std::uint32_t i = 0; i < recents_ && count < kept.size(); ++i) {
        const TcpRange& old = recent_[i];
        if (old.begin >= range.begin && old.end <= range.end) continue;
        if (old.end > next_) kept[count++] = old;
    }
    recent_ = kept;
    recents_ = count;
}

TcpAck TcpReceiver::take_ack() {
    TcpAck ack;
    ack.next = next_;
    ack.echo_ps = echo_ps_;
    ack.marked = marked_;
    ack.duplicate = duplicate_;
    if (duplicate_) ack.range[ack.ranges++] = {duplicate_number_, duplicate_number_ + 1};
    for (std::uint32_t i = 0; i < recents_ && ack.ranges < ack.range.size(); ++i) {
        if (recent_[i].begin >= next_) ack.range[ack.ranges++] = recent_[i];
    }
    acknowledged_ = next_;
    pending_ = 0;
    at_once_ = duplicate_ = false;
    return ack;
}

}  // namespace dlcp::sim
