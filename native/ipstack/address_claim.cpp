// When the next probe or announcement is due.
#include "ipstack/address_claim.hpp"

namespace dlcp::ipstack {

namespace {

// RFC 5227, 1.1, but for the interval. Two announcements, so that one may be lost.
constexpr unsigned probes = 3;
constexpr Duration probe_interval = milliseconds(20);
constexpr unsigned announcements = 2;
constexpr Duration announce_interval = seconds(2);

}  // namespace

void AddressClaim::claim(Time now) {
    state_ = AddressState::probing;
    left_ = probes;
    at_ = now;
}

void AddressClaim::announce(Time now) {
    if (state_ != AddressState::ours) return;
    left_ = announcements;
    at_ = now;
}

void AddressClaim::lose() {
    state_ = AddressState::taken;
    left_ = 0;
    at_ = time_never;
}

AddressClaim::Say AddressClaim::poll(Time now) {
    if (at_ > now) return Say::nothing;
    if (state_ == AddressState::probing && left_ == 0) {
        state_ = AddressState::ours;
        left_ = announcements;
    }
    --left_;
    if (state_ == AddressState::probing) {
        at_ = now + probe_interval;  // after the last one, an answer is awaited as long
        return Say::probe;
    }
    at_ = left_ == 0 ? time_never : now + announce_interval;
    return Say::announcement;
}

}  // namespace dlcp::ipstack
