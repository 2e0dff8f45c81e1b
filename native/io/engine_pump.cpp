// One round: receive, timers, transmit; and how long to sleep after it.
#include "io/engine_pump.hpp"

#include <algorithm>
#include <chrono>

namespace dlcp {

void EnginePump::open(const dlcp_io_table& table, dlcp_io* io, std::uint32_t max_burst_packets) {
    table_ = &table;
    io_ = io;
    // 256: enough to share the cost of a call, few enough that a burst of headers stays in a core's cache.
    const std::size_t burst = std::clamp<std::size_t>(max_burst_packets, 1, 256);
    rx_.resize(burst);
    tx_.resize(burst);
    tx_addresses_.resize(burst);
}

Time EnginePump::now() {
    last_now_ = std::max(last_now_, Time{table_->now_ns(io_)});
    return last_now_;
}

bool EnginePump::round(Lock& lock) {
    interrupted_ = false;  // whatever a command has left to do is done below
    const bool more_to_receive = receive(lock);
    if (const Time when = now(); next_deadline() <= when) {
        engine_->handle_timer(when);
        collectives_->handle_timer(when);
    }
    // Four bursts, then a look at what came in: acknowledgements should not wait for a whole window.
    auto transmitted = Transmitted::more;
    for (int burst = 0; burst < 4 && transmitted == Transmitted::more; ++burst) transmitted = transmit(lock);
    starved_ = transmitted == Transmitted::starved;
    return !more_to_receive && transmitted != Transmitted::more;
}

void EnginePump::flush(Lock& lock) {
    for (int burst = 0; burst < 4 && transmit(lock) == Transmitted::more; ++burst) {}
}

// One burst at most. True if there may be more.
bool EnginePump::receive(Lock& lock) {
    lock.unlock();
    const int received = std::max(0, table_->rx(io_, rx_.data(), static_cast<int>(rx_.size())));
    lock.lock();
    if (received > 0) {
        engine_->handle_packets(now(), std::span(rx_).first(static_cast<std::size_t>(received)));
        lock.unlock();
        table_->rx_done(io_, rx_.data(), received);
        lock.lock();
    }
    return received == static_cast<int>(rx_.size());
}

// One burst at most.
EnginePump::Transmitted EnginePump::transmit(Lock& lock) {
    lock.unlock();
    const int lent = table_->tx_get(io_, tx_.data(), static_cast<int>(tx_.size()));
    lock.lock();
    if (lent <= 0) return Transmitted::starved;
    const auto slots = std::span(tx_).first(static_cast<std::size_t>(lent));
    const Time when = now();
    std::size_t filled = 0;
    auto result = Transmitted::more;
    while (filled < slots.size() && result == Transmitted::more) {
        const std::size_t more = engine_->poll_transmit(when, slots.subspan(filled));
        filled += more;
        if (more == 0) result = Transmitted::drained;
    }
    copy_addresses(slots.first(filled));
    for (dlcp_packet& unused : slots.subspan(filled)) unused.head_bytes = 0;
    lock.unlock();
    table_->tx_put(io_, tx_.data(), lent);
    lock.lock();
    return result;
}

// The engine's addresses may change once the mutex is free, so the driver is given copies. Neighbours with one
// address keep one, since a driver may compare pointers to find runs.
void EnginePump::copy_addresses(std::span<dlcp_packet> packets) {
    const dlcp_address* last = nullptr;
    std::size_t copies = 0;
    for (dlcp_packet& packet : packets) {
        if (copies == 0 || packet.address != last) {
            last = packet.address;
            tx_addresses_[copies++] = *packet.address;
        }
        packet.address = &tx_addresses_[copies - 1];
    }
}

void EnginePump::sleep(Lock& lock, RealTime until) {
    if (interrupted_) return;
    std::int64_t timeout_ns = -1;
    const auto shorten = [&](std::int64_t ns) {
        if (timeout_ns < 0 || ns < timeout_ns) timeout_ns = std::max<std::int64_t>(ns, 0);
    };
    if (const Time deadline = next_deadline(); deadline != time_never) shorten((deadline - now()).value);
    if (until != real_never)
        shorten(std::chrono::duration_cast<std::chrono::nanoseconds>(until - RealClock::now()).count());
    // Packets are ready but had no buffer: look again soon, whatever the engine's deadline is.
    if (starved_) shorten(milliseconds(1).value);
    if (timeout_ns == 0) return;
    ++sleeps_;
    sleeping_ = true;
    lock.unlock();
    table_->wait(io_, timeout_ns);
    lock.lock();
    sleeping_ = false;
    woken_ = false;
}

bool EnginePump::nap(Lock& lock, RealTime until) {
    if (interrupted_ || starved_ || virtual_clock_) return false;
    const Time when = now();
    Duration time = std::min(engine_->nap(when), next_deadline() - when);
    if (until != real_never)
        time = std::min(
            time,
            Duration{std::chrono::duration_cast<std::chrono::nanoseconds>(until - RealClock::now()).count()});
    if (time <= Duration{0}) return false;
    ++sleeps_;
    napping_ = true;
    nap_end_.wait_for(lock, std::chrono::nanoseconds(time.value));
    napping_ = false;
    virtual_clock_ = now() == when;
    return true;
}

void EnginePump::interrupt() {
    interrupted_ = true;
    if (napping_) nap_end_.notify_one();
    if (sleeping_ && !woken_) {
        woken_ = true;
        table_->wake(io_);
    }
}

}  // namespace dlcp
