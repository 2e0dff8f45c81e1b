// Two endpoints over links of fixed arrays, so that whatever is allocated is the endpoints' doing.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "engine/endpoint.hpp"
#include "pair_scenario.hpp"

// Allocations of this program, counted while `counting` is set.
namespace {
bool counting = false;
std::uint64_t allocations = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
    if (counting) ++allocations;
    void* const result = alignment <= alignof(std::max_align_t)
                             ? std::malloc(bytes != 0 ? bytes : 1)
                             : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (result == nullptr) throw std::bad_alloc();
    return result;
}
// Not inlined, or gcc warns that free() gets what operator new made.
[[gnu::noinline]] void release(void* memory) { std::free(memory); }
}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace dlcp::test {
namespace {

class TrivialLink {
public:
    explicit TrivialLink(const dlcp_address& source) : source_(source), packets_(capacity) {}

    void send(const dlcp_packet& packet) {
        REQUIRE(count_ < capacity);
        Stored& to = packets_[count_++];
        to.length = packet.head_bytes + packet.body_bytes + packet.tail_bytes;
        REQUIRE(to.length <= to.bytes.size());
        std::copy_n(packet.head, packet.head_bytes, to.bytes.data());
        std::copy_n(packet.body, packet.body_bytes, to.bytes.data() + packet.head_bytes);
        std::copy_n(packet.head + packet.head_bytes, packet.tail_bytes,
                    to.bytes.data() + packet.head_bytes + packet.body_bytes);
        to.tos = packet.tos;
        to.path = packet.path;
    }
    // Everything sent so far arrives.
    std::size_t deliver(Time now, Endpoint& endpoint) {
        const std::size_t total = count_;
        for (std::size_t i = 0; i < total;) {
            std::array<dlcp_packet, 64> batch{};
            std::size_t n = 0;
            for (; n < batch.size() && i < total; ++n, ++i) {
                batch[n].head = packets_[i].bytes.data();
                batch[n].head_bytes = packets_[i].length;
                batch[n].address = &source_;
                batch[n].tos = packets_[i].tos;
                batch[n].path = packets_[i].path;
            }
            endpoint.handle_packets(now, {batch.data(), n});
        }
        count_ = 0;
        return total;
    }

private:
    static constexpr std::size_t capacity = 8192;
    struct Stored {
        std::array<std::uint8_t, 1500> bytes{};
        std::uint32_t length = 0;
        std::uint16_t path = 0;
        std::uint8_t tos = 0;
    };
    dlcp_address source_;
    std::vector<Stored> packets_;
    std::size_t count_ = 0;
};

}  // namespace

TEST_CASE("endpoint pair: nothing is allocated per packet or message once the tables have grown") {
    for (const bool key : {false, true}) {
        CAPTURE(key);
        EndpointConfig config = key ? keyed_config() : plain_config();
        const std::array<dlcp_address, 2> addresses = {VirtualNetwork::address(0), VirtualNetwork::address(1)};
        std::vector<std::unique_ptr<Endpoint>> endpoints;
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            config.rank = rank;
            endpoints.push_back(std::make_unique<Endpoint>(config, rank + 1, Time{0}));
        }
        std::array<TrivialLink, 2> links{TrivialLink(addresses[0]), TrivialLink(addresses[1])};  // by sender
        constexpr std::size_t slots = 32;
        const std::unique_ptr<std::uint8_t[]> heads(new std::uint8_t[slots * DLCP_HEAD_CAPACITY]);
        std::array<dlcp_packet, slots> packets{};

        constexpr std::uint32_t message_bytes = 30'000;
        constexpr std::uint64_t messages_in_flight = 4;
        std::vector<std::uint8_t> payload(message_bytes, 1);
        std::vector<std::uint8_t> buffer(message_bytes * messages_in_flight);
        const PeerId to = endpoints[0]->connect(Time{0}, 1, addresses[1]).value;
        const PeerId from = endpoints[1]->connect(Time{0}, 0, addresses[0]).value;
        std::uint64_t next_tag = 0;
        Time now{0};
        const auto start_message = [&] {
            const std::uint64_t tag = next_tag++;
            ReceiveCommand receive;
            receive.peer = from;
            receive.tag = tag;
            receive.buffer = buffer.data() + tag % messages_in_flight * message_bytes;
            receive.capacity_bytes = message_bytes;
            REQUIRE(endpoints[1]->receive(now, receive));
            SendCommand send;
            send.peer = to;
            send.tag = tag;
            send.payload = payload.data();
            send.message_bytes = message_bytes;
            REQUIRE(endpoints[0]->send(now, send));
        };
        std::uint64_t finished = 0;
        const auto run_messages = [&](std::uint64_t until) {
            for (int steps = 0; finished < until; ++steps) {
                REQUIRE(steps < 1'000'000);
                now = now + microseconds(10);
                for (std::size_t i = 0; i < 2; ++i) {
                    links[1 - i].deliver(now, *endpoints[i]);
                    if (endpoints[i]->next_deadline() <= now) endpoints[i]->handle_timer(now);
                    for (;;) {
                        for (std::size_t s = 0; s < slots; ++s) {
                            packets[s] = {};
                            packets[s].head = heads.get() + s * DLCP_HEAD_CAPACITY;
                        }
                        const std::size_t count = endpoints[i]->poll_transmit(now, packets);
                        if (count == 0) break;
                        for (std::size_t s = 0; s < count; ++s) links[i].send(packets[s]);
                    }
                    for (Event event; endpoints[i]->poll_event(event);) {
                        if (event.kind == EventKind::peer_established || event.kind == EventKind::path_down ||
                            event.kind == EventKind::path_up) {
                            continue;
                        }
                        REQUIRE(event.error == CommandError::none);
                        REQUIRE(endpoints[i]->release(event.message) == CommandError::none);
                        if (event.kind == EventKind::send_finished) {
                            ++finished;
                            start_message();
                        }
                    }
                }
            }
        };
        for (std::uint64_t i = 0; i < messages_in_flight; ++i) start_message();
        run_messages(2'000);  // warm-up: the ring of message ids has grown as far as it may

        const std::uint64_t packets_before = endpoints[0]->counters().data_packets_sent;
        allocations = 0;
        counting = true;
        run_messages(7'000);
        counting = false;
        CHECK(endpoints[0]->counters().data_packets_sent - packets_before > 100'000);
        CHECK(allocations == 0);
    }
}

}  // namespace dlcp::test
