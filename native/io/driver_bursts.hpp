// Moves bursts of packets between one engine and one open driver, and holds the buffers for it.
//
// One thread at a time uses it: the holder of the host's driving role. The engine is only touched with the given
// mutex held, the driver only without it. Keeps no packet over from one call to the next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "engine/endpoint.hpp"
#include "io/io_table.h"

namespace dlcp {

class DriverBursts {
public:
    void open(const dlcp_io_table& table, dlcp_io* io, std::uint32_t max_burst_packets) {
        table_ = &table;
        io_ = io;
        // 256: enough to share the cost of a call, few enough that a burst of headers stays in a core's cache.
        const std::size_t burst = std::clamp<std::size_t>(max_burst_packets, 1, 256);
        rx_.resize(burst);
        tx_.resize(burst);
        tx_addresses_.resize(burst);
    }

    // Hands what has arrived to the engine, at most one burst. True if there may be more. The mutex is held at
    // entry and at return. `now` is asked for under the mutex.
    template <class Now>
    bool receive(Endpoint& engine, std::unique_lock<std::mutex>& lock, Now&& now) {
        lock.unlock();
        const int received = std::max(0, table_->rx(io_, rx_.data(), static_cast<int>(rx_.size())));
        lock.lock();
        if (received > 0) {
            engine.handle_packets(now(), std::span(rx_).first(static_cast<std::size_t>(received)));
            lock.unlock();
            table_->rx_done(io_, rx_.data(), received);
            lock.lock();
        }
        return received == static_cast<int>(rx_.size());
    }

    enum class Transmit {
        drained,  // the engine has nothing more to send now
        more,     // it may have
        starved,  // the driver has no free buffer: look again after wait()
    };

    // Sends at most one burst; the mutex as above.
    template <class Now>
    Transmit transmit(Endpoint& engine, std::unique_lock<std::mutex>& lock, Now&& now) {
        lock.unlock();
        const int lent = table_->tx_get(io_, tx_.data(), static_cast<int>(tx_.size()));
        lock.lock();
        if (lent <= 0) return Transmit::starved;
        const auto slots = std::span(tx_).first(static_cast<std::size_t>(lent));
        const Time when = now();
        std::size_t filled = 0;
        Transmit result = Transmit::more;
        while (filled < slots.size() && result == Transmit::more) {
            const std::size_t more = engine.poll_transmit(when, slots.subspan(filled));
            filled += more;
            if (more == 0) result = Transmit::drained;
        }
        copy_addresses(slots.first(filled));
        for (dlcp_packet& unused : slots.subspan(filled)) unused.head_bytes = 0;
        lock.unlock();
        table_->tx_put(io_, tx_.data(), lent);
        lock.lock();
        return result;
    }

private:
    // The engine's addresses may move once the mutex is free, so the driver is given copies. Neighbours with one
    // address keep one, since a driver may compare pointers to find runs.
    void copy_addresses(std::span<dlcp_packet> packets) {
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

    const dlcp_io_table* table_ = nullptr;
    dlcp_io* io_ = nullptr;
    std::vector<dlcp_packet> rx_;
    std::vector<dlcp_packet> tx_;
    std::vector<dlcp_address> tx_addresses_;  // of the burst being sent
};

}  // namespace dlcp
