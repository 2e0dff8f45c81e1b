// The transitions between a neighbour's states, and its retries.
#include "ipstack/neighbours.hpp"

#include <array>

namespace dlcp::ipstack {

namespace {

// How long an answer to the first, second, third request is awaited. A neighbour on the same link answers within a
// millisecond; 50 ms is for one that is busy starting.
constexpr std::array<Duration, 3> request_waits{milliseconds(50), milliseconds(200), seconds(1)};
constexpr std::uint8_t unicast_requests = request_waits.size();
constexpr std::uint8_t probe_requests = 2 * unicast_requests;
constexpr Duration reachable_time = seconds(30);    // REACHABLE_TIME (RFC 4861, 10)
constexpr Duration first_probe_delay = seconds(5);  // DELAY_FIRST_PROBE_TIME
constexpr Duration retry_interval = seconds(1);     // between requests for a neighbour that has failed
// Many neighbours at once have more requests than there is room for: a request counts when it is on its way.
constexpr Duration no_room_delay = milliseconds(1);
constexpr Duration suspicion_interval = seconds(1);  // between probes since packets come from another MAC

}  // namespace

std::optional<Neighbours::Index> Neighbours::add(const IpAddress& ip) {
    Index neighbour;
    if (free_.empty() && entries_.size() >= neighbours_max_ && !evict_stranger()) return std::nullopt;
    if (!free_.empty()) {
        neighbour = free_.back();
        free_.pop_back();
        entries_[neighbour] = {};
    } else {
        neighbour = static_cast<Index>(entries_.size());
        entries_.emplace_back();
    }
    entries_[neighbour].ip = ip;
    index_.insert(ip, neighbour);
    return neighbour;
}

// False: there was none.
bool Neighbours::evict_stranger() {
    while (!strangers_.empty()) {
        const Index neighbour = strangers_.front();
        strangers_.pop_front();
        if (entries_[neighbour].kept) continue;
        index_.erase(entries_[neighbour].ip);  // it has no deadline: it is never used nor asked
        free_.push_back(neighbour);
        return true;
    }
    return false;
}

Neighbours::Index Neighbours::keep(const IpAddress& ip) {
    Index neighbour = find(ip);
    if (neighbour == none) {
        const std::optional<Index> added = add(ip);
        if (!added) return none;
        neighbour = *added;
    }
    entries_[neighbour].kept = true;
    return neighbour;
}

void Neighbours::add_permanent(const IpAddress& ip, const MacAddress& mac) {
    const Index neighbour = keep(ip);
    if (neighbour == none) return;
    entries_[neighbour].state = State::permanent;
    set_mac(neighbour, mac);
}

void Neighbours::request(Time now, Index neighbour) {
    Entry& entry = entries_[neighbour];
    const bool waits_for_answer = entry.state != State::failed;
    const bool to_it_alone = entry.state == State::probe && entry.requests < unicast_requests;
    if (!listener_.solicit(entry.ip, to_it_alone ? &entry.mac : nullptr)) {
        if (waits_for_answer) deadlines_.set(neighbour, now + no_room_delay);
        return;
    }
    entry.asked_at = now;
    entry.asked_ever = true;
    if (waits_for_answer) {
        deadlines_.set(neighbour, now + request_waits[entry.requests % request_waits.size()]);
        ++entry.requests;
    }
}

void Neighbours::ask(Time now, Index neighbour) {
    Entry& entry = entries_[neighbour];
    if (entry.state != State::failed) return;
    if (!entry.asked_ever) {
        entry.state = State::incomplete;
        entry.requests = 0;
        request(now, neighbour);
    } else if (now - entry.asked_at >= retry_interval) {
        request(now, neighbour);
    }
}

void Neighbours::used(Time now, Index neighbour) {
    Entry& entry = entries_[neighbour];
    if (entry.state == State::reachable && now - entry.confirmed_at >= reachable_time) become_stale(neighbour);
    if (entry.state == State::stale) {
        entry.state = State::delay;
        deadlines_.set(neighbour, now + first_probe_delay);
    } else if (entry.state == State::failed) {
        ask(now, neighbour);
    }
}

void Neighbours::heard(Time now, Index neighbour, const MacAddress& mac) {
    Entry& entry = entries_[neighbour];
    switch (entry.state) {
        case State::permanent:
        case State::incomplete: return;
        case State::failed: return ask(now, neighbour);  // it is there after all
        case State::reachable:
        case State::stale:
        case State::delay:
        case State::probe: break;
    }
    if (mac == entry.mac) return confirm(now, neighbour);
    if (!entry.kept) return;
    // It may have another card now, or send through another router than it is reached by: ask, and not for each packet.
    if (entry.state != State::probe && now - entry.confirmed_at >= suspicion_interval) start_probe(now, neighbour);
}

void Neighbours::asked_by(Time now, const IpAddress& ip, const MacAddress& mac) {
    Index neighbour = find(ip);
    if (neighbour == none) {
        if (strangers_.size() >= strangers_max) evict_stranger();
        const std::optional<Index> added = add(ip);
        if (!added) return;
        neighbour = *added;
        strangers_.push_back(neighbour);
    }
    Entry& entry = entries_[neighbour];
    if (entry.state == State::permanent || (entry.has_mac && entry.mac == mac)) return;
    entry.confirmed_at = now;
    become_stale(neighbour);
    set_mac(neighbour, mac);
}

void Neighbours::answered_by(Time now, Index neighbour, const MacAddress* mac, bool solicited, bool overrides) {
    Entry& entry = entries_[neighbour];
    if (entry.state == State::permanent) return;
    if (!entry.has_mac) {
        if (mac == nullptr) return;
        entry.confirmed_at = now;
        become_stale(neighbour);
        set_mac(neighbour, *mac);
        if (solicited) confirm(now, neighbour);
        return;
    }
    const bool differs = mac != nullptr && *mac != entry.mac;
    if (differs && !overrides) {
        // Somebody else answers for it too: what is known is in doubt, and stays.
        if (entry.state == State::reachable) become_stale(neighbour);
        return;
    }
    if (differs) {
        if (!solicited) become_stale(neighbour);
        set_mac(neighbour, *mac);
    }
    if (solicited) confirm(now, neighbour);
}

void Neighbours::confirm(Time now, Index neighbour) {
    Entry& entry = entries_[neighbour];
    entry.state = State::reachable;
    entry.confirmed_at = now;
    deadlines_.set(neighbour, time_never);
}

void Neighbours::set_mac(Index neighbour, const MacAddress& mac) {
    Entry& entry = entries_[neighbour];
    entry.mac = mac;
    entry.has_mac = true;
    const bool tell = entry.was_lost;
    entry.was_lost = false;
    listener_.mac_known(neighbour, mac);
    if (tell) listener_.found(entry.ip, mac);
}

void Neighbours::become_stale(Index neighbour) {
    entries_[neighbour].state = State::stale;
    deadlines_.set(neighbour, time_never);
}

void Neighbours::start_probe(Time now, Index neighbour) {
    entries_[neighbour].state = State::probe;
    entries_[neighbour].requests = 0;
    request(now, neighbour);
}

void Neighbours::fail(Index neighbour) {
    Entry& entry = entries_[neighbour];
    entry.state = State::failed;
    entry.has_mac = false;
    entry.was_lost = true;
    deadlines_.set(neighbour, time_never);
    listener_.mac_forgotten(neighbour);
    listener_.lost(entry.ip, entry.mac);
}

void Neighbours::handle_timer(Time now) {
    // Each turn sets a deadline later than now, or none: this ends.
    while (!deadlines_.empty() && deadlines_.next() <= now) {
        const Index neighbour = deadlines_.top();
        Entry& entry = entries_[neighbour];
        if (entry.state == State::delay) {
            start_probe(now, neighbour);
        } else if (entry.requests < (entry.state == State::probe ? probe_requests : request_waits.size())) {
            request(now, neighbour);
        } else {
            fail(neighbour);
        }
    }
}

}  // namespace dlcp::ipstack
