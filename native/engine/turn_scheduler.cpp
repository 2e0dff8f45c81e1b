#include "engine/turn_scheduler.hpp"

#include <utility>

namespace dlcp {

namespace {

// In flight from all senders, in fractions of a bandwidth-delay product. The least: what fills the line, and three
// quarters more, so that it stays full while turns change hands. The most, where turns leave it idle.
constexpr std::uint64_t one_product = 1 << 16;
constexpr std::uint64_t least_in_flight = one_product * 7 / 4;
constexpr std::uint64_t most_in_flight = one_product * 8;

// A line that carries less than this share of its rate is not full: there are headers below the datagram, and gaps.
constexpr std::uint64_t full_percent = 85;

// The line must have been full with a queue for so many ticks: in one, packets of a queue elsewhere may come together.
constexpr std::uint64_t full_ticks = 2;

// After so many ticks in which all had turns and the line was not full, they are free for so many round trips.
constexpr std::uint64_t most_idle_ticks = 16;
constexpr std::int64_t free_rounds = 64;

// Every so many ticks a turn goes to the sender that has had none for the longest time, so that nobody starves.
constexpr std::uint64_t ticks_per_oldest = 32;

// A tick is half a round trip, but has room for so many datagrams.
constexpr std::uint64_t least_datagrams = 8;

// Rounded up: no turn is free, and none leaves a rest of less than a byte.
constexpr std::uint64_t ratio(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

std::uint64_t TurnScheduler::Entry::total() const {
    std::uint64_t sum = 0;
    for (std::uint64_t rest = filled; rest != 0; rest &= rest - 1)
        sum += left[static_cast<unsigned>(std::countr_zero(rest))];
    return sum;
}

void TurnScheduler::opened(std::uint32_t peer, Kind kind, std::uint64_t left, std::uint32_t order, Duration rtt) {
    if (left == 0) return;
    if (peer >= peers_.size()) peers_.resize(peer + 1);
    Entry& entry = peers_[peer];
    const unsigned place = place_of(kind);
    entry.left[place] += left;
    entry.filled |= std::uint64_t{1} << place;
    entry.rtt = std::max(rtt, nanoseconds(1));
    entry.order = order;
    round_ = sharing_ ? std::max(round_, rtt) : rtt;
    queue_ = round_ / 2;
    update(peer);
}

void TurnScheduler::part_opened(std::uint32_t peer) {
    if (peer >= peers_.size()) peers_.resize(peer + 1);
    if (peers_[peer].parts++ == 0) update(peer);
}

void TurnScheduler::emptied(std::uint32_t peer, unsigned place) {
    peers_[peer].filled &= ~(std::uint64_t{1} << place);
    update(peer);
}

// Whether this peer is one of those that wait for turns, after a change.
void TurnScheduler::update(std::uint32_t peer) {
    Entry& entry = peers_[peer];
    news_ = sharing_;
    const bool active = entry.filled != 0 && entry.parts == 0;
    if (active == entry.active) return;
    entry.active = active;
    if (active) {
        entry.place = static_cast<std::uint32_t>(active_.size());
        entry.since = ++arrivals_;
        active_.push_back(peer);
        return;
    }
    peers_[active_.back()].place = entry.place;
    active_[entry.place] = active_.back();
    active_.pop_back();
    if (entry.turn != unlimited) freed_.push_back(peer);
}

void TurnScheduler::forget(std::uint32_t peer) {
    if (peer >= peers_.size()) return;
    Entry& entry = peers_[peer];
    entry.filled = 0;
    update(peer);
    entry = {};
}

// Bytes that the line carries in this time.
std::uint64_t TurnScheduler::product(Duration rtt) const {
    __extension__ using u128 = unsigned __int128;
    return static_cast<std::uint64_t>(u128{line_rate().value_bps} * static_cast<std::uint64_t>(rtt.value) /
                                      8'000'000'000ULL);
}

void TurnScheduler::decide(Time now, std::vector<std::uint32_t>& told) {
    news_ = false;
    const bool over = now >= tick_end_;
    if (over) measure(now);
    for (const std::uint32_t peer : freed_) {
        Entry& entry = peers_[peer];
        if (entry.active) continue;
        const std::uint64_t before = std::exchange(entry.turn, unlimited);
        if (before == 0 || (before != unlimited && entry.parts > 0)) told.push_back(peer);
    }
    freed_.clear();
    if (!sharing_ && !(over && meets_incast(now))) return;
    sharing_ = true;
    if (idle_ticks_ > most_idle_ticks) not_before_ = now + round_ * free_rounds;
    if (active_.size() < 2 || idle_ticks_ > most_idle_ticks)
        end(told);
    else
        allot(told);
}

// Several senders fill the line, and most of what they have to send is still to come.
bool TurnScheduler::meets_incast(Time now) {
    if (full_run_ < full_ticks || active_.size() < 2 || now < not_before_) return false;
    std::uint64_t left = 0;
    for (const std::uint32_t peer : active_) left += peers_[peer].total();
    if (left < product(round_)) return false;  // all of it is on the way
    most_in_flight_ = least_in_flight;
    idle_ticks_ = 0;
    return true;
}

// A tick is over. Was the line full? And did most of what came stand in a queue? If this host fills its own way out as
// well, it is likely one of many that all do, as in an all-to-all: then the senders' own lines are full too.
void TurnScheduler::measure(Time now) {
    const Duration tick = std::max(round_ / 2, time_to_send(Bytes{least_datagrams * datagram_}, line_rate()));
    const Duration length = now - tick_start_;
    const std::uint64_t much = product(length) / 100 * full_percent;
    const bool full = line_rate().value_bps != 0 && length < tick * 4 && arrived_ >= much;
    full_run_ = full && queued_ * 2 > arrived_ && sent_ < much ? full_run_ + 1 : 0;
    if (full) {
        most_in_flight_ = std::max(least_in_flight, most_in_flight_ * 15 / 16);
        idle_ticks_ = 0;
    } else {
        most_in_flight_ = std::min(most_in_flight, most_in_flight_ * 5 / 4);
        idle_ticks_ += most_in_flight_ == most_in_flight;
    }
    ++ticks_;
    arrived_ = queued_ = sent_ = 0;
    tick_start_ = now;
    tick_end_ = now + tick;
}

std::uint32_t TurnScheduler::next_of(bool oldest) const {
    const std::uint64_t quantum = std::max<std::uint64_t>(product(round_) / 4, 1);
    const auto before = [&](const Entry& a, const Entry& b) {
        if (oldest) return a.since < b.since;
        if (a.first() != b.first()) return a.first() < b.first();
        const std::uint64_t left_a = a.left[a.first()] / quantum;
        const std::uint64_t left_b = b.left[b.first()] / quantum;
        return left_a != left_b ? left_a < left_b : a.order < b.order;
    };
    std::uint32_t best = UINT32_MAX;
    for (const std::uint32_t peer : active_)
        if (peers_[peer].chosen != decisions_ && (best == UINT32_MAX || before(peers_[peer], peers_[best])))
            best = peer;
    return best;
}

void TurnScheduler::allot(std::vector<std::uint32_t>& told) {
    ++decisions_;
    std::uint64_t rest = most_in_flight_;
    bool oldest = ticks_ % ticks_per_oldest == ticks_per_oldest - 1;
    for (std::size_t n = 0; n < active_.size() && rest > 0; ++n) {
        const std::uint32_t peer = next_of(oldest);
        Entry& entry = peers_[peer];
        entry.chosen = decisions_;
        if (oldest) entry.since = ++arrivals_;
        oldest = false;
        const std::uint64_t own = std::max(product(entry.rtt), datagram_);
        const std::uint64_t left = entry.total();
        const std::uint64_t wanted = left + left / 16 + datagram_;  // headers, and what is repaired
        const std::uint64_t share = ratio(own * std::min(rest, least_in_flight), one_product);
        const std::uint64_t turn = std::max(std::min(wanted, share), datagram_);
        rest -= std::min(rest, ratio(turn * one_product, own));
        give(peer, turn, told);
    }
    for (const std::uint32_t peer : active_)
        if (peers_[peer].chosen != decisions_) give(peer, 0, told);
}

void TurnScheduler::give(std::uint32_t peer, std::uint64_t turn, std::vector<std::uint32_t>& told) {
    const std::uint64_t before = std::exchange(peers_[peer].turn, turn);
    // A turn that shrinks or grows a little is told with the next acknowledgement.
    if (before == unlimited || (before == 0) != (turn == 0) || turn > before + before / 4) told.push_back(peer);
}

void TurnScheduler::end(std::vector<std::uint32_t>& told) {
    sharing_ = false;
    for (std::uint32_t peer = 0; peer < peers_.size(); ++peer)
        if (std::exchange(peers_[peer].turn, unlimited) == 0) told.push_back(peer);
}

}  // namespace dlcp
