// Messages whose blocks are released one by one, receives that take blocks as they come, and what nobody asked for:
// what the engine does for collectives, by hand over the virtual network.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "support/native/collective_world.hpp"

using namespace dlcp;
using namespace dlcp::test;

namespace {

constexpr std::uint32_t block = 1408;  // of a datagram of 1472 bytes

EndpointConfig config() {
    EndpointConfig config;
    config.peer_timeout = seconds(1);
    return config;
}

// Two hosts that know each other. Events of messages are kept; executors have no part in it.
class Pair {
public:
    explicit Pair(const EndpointConfig& receiver = config(), const EndpointConfig& sender = config()) : world(1) {
        world.add_host(sender);
        world.add_host(receiver);
        set_between({});
        world.on_event = [this](std::uint32_t host, const Event& event) { events[host].push_back(event); };
        world.on_packet = [this](std::uint32_t host, const dlcp_packet& packet) {
            wire::Datagram d;
            const bool parsed =
                wire::parse({packet.head, packet.head_bytes}, packet.body_bytes, d) == wire::ParseError::none ||
                wire::parse({packet.head, std::size_t{packet.head_bytes} + packet.body_bytes}, 0, d) ==
                    wire::ParseError::none;
            if (parsed && wire::is_data(d.header.type)) sent[host].push_back(d.header.block_index);
        };
    }
    void set_between(LinkSettings way) {
        way.delay = microseconds(50);
        world.network().set_between(0, 1, way);
        world.network().set_between(1, 0, way);
    }
    void connect() {
        REQUIRE(world.endpoint(0).connect(world.now(), 1, VirtualNetwork::address(1)));
        world.serve(0);
        REQUIRE(run([&] { return count(0, EventKind::peer_established) == 1; }));
        REQUIRE(run([&] { return count(1, EventKind::peer_established) == 1; }));
    }
    bool run(const std::function<bool()>& done, Duration limit = seconds(20)) {
        const bool did = world.run(world.now() + limit, done);
        INFO(world.failure());
        CHECK(!world.failed());
        return did;
    }
    void wait(Duration duration) { world.run_until(world.now() + duration); }
    PeerId peer(std::uint32_t host) { return *world.endpoint(host).find_peer(1 - host); }
    MessageId send(SendCommand command, std::vector<std::uint8_t> bytes) {
        const std::vector<std::uint8_t>& payload = payloads.emplace_back(std::move(bytes));
        command.peer = peer(0);
        command.payload = payload.data();
        command.message_bytes = static_cast<std::uint32_t>(payload.size());
        const auto sending = world.endpoint(0).send(world.now(), command);
        REQUIRE(sending);
        world.serve(0);
        return sending.value;
    }
    CommandError release(MessageId message, std::uint32_t first, std::uint32_t blocks) {
        const CommandError error = world.endpoint(0).release_blocks(world.now(), message, first, blocks);
        world.serve(0);
        return error;
    }
    MessageId receive(ReceiveCommand command) {
        if (!(command.peer == any_peer)) command.peer = peer(1);
        const auto receiving = world.endpoint(1).receive(world.now(), command);
        REQUIRE(receiving);
        world.serve(1);
        return receiving.value;
    }
    std::size_t count(std::uint32_t host, EventKind kind) const {
        return static_cast<std::size_t>(std::count_if(events[host].begin(), events[host].end(),
                                                      [&](const Event& event) { return event.kind == kind; }));
    }
    const Event* find(std::uint32_t host, EventKind kind) const {
        const auto found = std::find_if(events[host].begin(), events[host].end(),
                                        [&](const Event& event) { return event.kind == kind; });
        return found == events[host].end() ? nullptr : &*found;
    }

    std::deque<std::vector<std::uint8_t>> payloads;
    CollectiveWorld world;
    std::vector<Event> events[2];
    std::vector<std::uint32_t> sent[2];  // blocks of data packets, in order
};

std::vector<std::uint8_t> numbered(std::size_t bytes) {
    std::vector<std::uint8_t> out(bytes);
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
    return out;
}

// What a sink was given.
struct Taken {
    struct Block {
        std::uint64_t token;
        std::uint32_t offset;
        std::uint32_t bytes;
        bool operator==(const Block&) const = default;
    };
    std::vector<Block> blocks;
    std::vector<std::uint8_t> memory;

    explicit Taken(std::size_t bytes) : memory(bytes) {}
    BlockSink sink(std::uint64_t token = 0) {
        return {[](void* context, std::uint64_t given, Time, std::uint32_t offset, const std::uint8_t* payload,
                   std::uint32_t bytes) {
                    auto& taken = *static_cast<Taken*>(context);
                    taken.blocks.push_back({given, offset, bytes});
                    if (payload != nullptr) std::copy_n(payload, bytes, taken.memory.begin() + offset);
                },
                this, token};
    }
};

ReceiveCommand into(std::vector<std::uint8_t>& memory, std::uint64_t tag = 0) {
    ReceiveCommand command;
    command.tag = tag;
    command.buffer = memory.data();
    command.capacity_bytes = static_cast<std::uint32_t>(memory.size());
    return command;
}

SendCommand gated(std::uint64_t tag = 0) {
    SendCommand command;
    command.tag = tag;
    command.gated = true;
    return command;
}

SendCommand plain(std::uint64_t tag = 0) {
    SendCommand command;
    command.tag = tag;
    return command;
}

}  // namespace

TEST_CASE("gated message: blocks leave when they are released, in that order, and not before") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(10 * block);
    std::vector<std::uint8_t> memory(payload.size());
    const MessageId sending = pair.send(gated(), payload);
    pair.receive(into(memory));
    pair.wait(milliseconds(20));
    CHECK(pair.sent[0].empty());

    CHECK(pair.release(sending, 7, 2) == CommandError::none);
    CHECK(pair.release(sending, 0, 1) == CommandError::none);
    pair.wait(milliseconds(20));
    CHECK(pair.sent[0] == std::vector<std::uint32_t>{7, 8, 0});
    CHECK(pair.count(0, EventKind::send_finished) == 0);

    CHECK(pair.release(sending, 0, 9) == CommandError::none);
    pair.wait(milliseconds(20));
    CHECK(pair.sent[0] == std::vector<std::uint32_t>{7, 8, 0, 1, 2, 3, 4, 5, 6});
    CHECK(pair.count(1, EventKind::receive_finished) == 0);

    CHECK(pair.release(sending, 9, 1) == CommandError::none);
    CHECK(pair.run([&] { return pair.count(0, EventKind::send_finished) == 1; }));
    CHECK(pair.count(1, EventKind::receive_finished) == 1);
    CHECK(memory == payload);
}

TEST_CASE("gated message: released twice is released once") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(4 * block);
    std::vector<std::uint8_t> memory(payload.size());
    const MessageId sending = pair.send(gated(), payload);
    pair.receive(into(memory));
    for (int i = 0; i < 3; ++i) CHECK(pair.release(sending, 1, 2) == CommandError::none);
    pair.wait(milliseconds(20));
    CHECK(pair.release(sending, 1, 2) == CommandError::none);
    CHECK(pair.release(sending, 0, 4) == CommandError::none);
    CHECK(pair.run([&] { return pair.count(0, EventKind::send_finished) == 1; }));
    CHECK(pair.sent[0] == std::vector<std::uint32_t>{1, 2, 0, 3});
    CHECK(memory == payload);
    // It is over: no mistake, and nothing happens.
    CHECK(pair.release(sending, 0, 4) == CommandError::none);
    CHECK(pair.world.endpoint(0).release(sending) == CommandError::none);
    CHECK(pair.release(sending, 0, 4) == CommandError::unknown_message);
}

TEST_CASE("gated message: what cannot be released is refused") {
    Pair pair;
    const auto payload = numbered(4 * block);
    REQUIRE(pair.world.endpoint(0).connect(pair.world.now(), 1, VirtualNetwork::address(1)));
    const MessageId early = pair.send(gated(), payload);
    CHECK(pair.release(early, 0, 1) == CommandError::bad_release);  // blocks are not cut for good
    pair.connect();
    CHECK(pair.release(early, 4, 1) == CommandError::bad_release);
    CHECK(pair.release(early, 3, 2) == CommandError::bad_release);
    CHECK(pair.release(early, 5, 0) == CommandError::bad_release);
    CHECK(pair.release(early, UINT32_MAX, 2) == CommandError::bad_release);
    CHECK(pair.release(early, 4, 0) == CommandError::none);
    CHECK(pair.release({77, 1}, 0, 1) == CommandError::unknown_message);
    const MessageId whole = pair.send(plain(1), payload);
    CHECK(pair.release(whole, 0, 1) == CommandError::bad_release);
    CHECK(pair.sent[0] == std::vector<std::uint32_t>{0, 1, 2, 3});  // of the one that is not gated
}

TEST_CASE("gated message: nobody takes a peer for dead that has nothing to send yet") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(3 * block);
    std::vector<std::uint8_t> memory(payload.size());
    const MessageId sending = pair.send(gated(), payload);
    pair.receive(into(memory));
    CHECK(pair.release(sending, 1, 1) == CommandError::none);
    pair.wait(seconds(30));  // the peer timeout is 1 s
    CHECK(pair.count(0, EventKind::peer_down) + pair.count(1, EventKind::peer_down) == 0);
    CHECK(pair.world.endpoint(0).counters().repair_packets_sent == 0);
    CHECK(pair.release(sending, 0, 3) == CommandError::none);
    CHECK(pair.run([&] { return pair.count(0, EventKind::send_finished) == 1; }));
    CHECK(memory == payload);
}

TEST_CASE("gated message: a lost block is repaired while others are still to be released") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(6 * block);
    Taken taken(payload.size());
    const MessageId sending = pair.send(gated(), payload);
    ReceiveCommand command;
    command.capacity_bytes = static_cast<std::uint32_t>(payload.size());
    command.sink = taken.sink();
    pair.receive(command);
    LinkSettings dead;
    dead.loss_ratio = 1.0;
    pair.set_between(dead);
    CHECK(pair.release(sending, 2, 2) == CommandError::none);
    pair.wait(milliseconds(5));
    CHECK(taken.blocks.empty());
    pair.set_between({});
    CHECK(pair.run([&] { return taken.blocks.size() == 2; }));
    CHECK(pair.world.endpoint(0).counters().repair_packets_sent >= 2);
    CHECK(pair.count(0, EventKind::send_finished) == 0);
    CHECK(pair.release(sending, 0, 6) == CommandError::none);
    CHECK(pair.run([&] { return pair.count(0, EventKind::send_finished) == 1; }));
    CHECK(taken.memory == payload);
}

TEST_CASE("gated message: it goes on when no other message may start, and waits behind none") {
    EndpointConfig few = config();
    few.max_messages_per_peer = 16;  // ids in use may lie 1024 apart
    Pair pair(few, few);
    pair.connect();
    const auto payload = numbered(2 * block);
    std::vector<std::uint8_t> memory(payload.size());
    const MessageId first = pair.send(gated(), payload);
    pair.receive(into(memory));
    CHECK(pair.release(first, 0, 1) == CommandError::none);
    std::deque<std::vector<std::uint8_t>> others;
    std::size_t sent = 0;
    for (; pair.count(0, EventKind::bound_reached) == 0; ++sent) {
        REQUIRE(sent < 2000);
        ReceiveCommand command = into(others.emplace_back(block));
        command.tag = 2 + sent;
        pair.receive(command);
        pair.send(plain(command.tag), numbered(block));
        if (sent < 1020) pair.run([&] { return pair.count(0, EventKind::send_finished) == sent + 1; });
    }
    CHECK(pair.count(0, EventKind::send_finished) < sent);
    CHECK(pair.release(first, 1, 1) == CommandError::none);
    CHECK(pair.run([&] { return pair.count(0, EventKind::send_finished) == sent + 1; }));
    CHECK(memory == payload);
}

TEST_CASE("gated message: a bounded one does not end before all of it was released") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(10 * block);
    std::vector<std::uint8_t> memory(payload.size());
    const std::vector<std::uint8_t> importance = {255, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    SendCommand command = gated();
    command.delivery = Delivery::bounded;
    command.loss_ratio = 0.5;
    command.importance = importance;
    const MessageId sending = pair.send(command, payload);
    pair.receive(into(memory));
    CHECK(pair.release(sending, 0, 7) == CommandError::none);
    pair.wait(seconds(2));
    CHECK(pair.count(1, EventKind::receive_finished) == 0);  // 30 % are missing, but they are not lost
    LinkSettings dead;
    dead.loss_ratio = 1.0;
    pair.set_between(dead);
    CHECK(pair.release(sending, 7, 3) == CommandError::none);
    pair.set_between({});
    CHECK(pair.run([&] { return pair.count(0, EventKind::send_finished) == 1; }));
    CHECK(pair.world.endpoint(0).outcome(sending).value.abandoned_blocks == 2);  // the last one is critical
}

TEST_CASE("gated message: cancelled before anything was released, it ends at once and the peer hears nothing") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(3 * block);
    const MessageId sending = pair.send(gated(), payload);
    CHECK(pair.world.endpoint(0).cancel(pair.world.now(), sending) == CommandError::none);
    pair.world.serve(0);
    REQUIRE(pair.find(0, EventKind::send_failed) != nullptr);
    CHECK(pair.find(0, EventKind::send_failed)->error == CommandError::cancelled);
    CHECK(pair.world.endpoint(0).release(sending) == CommandError::none);
    CHECK(pair.world.endpoint(0).kept_messages().outgoing == 0);
    // The next one of this tag is not held up.
    std::vector<std::uint8_t> memory(payload.size());
    pair.receive(into(memory));
    pair.send(plain(), payload);
    CHECK(pair.run([&] { return pair.count(1, EventKind::receive_finished) == 1; }));
    CHECK(memory == payload);
}

TEST_CASE("gated message: does not hold up others of its class") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(3 * block);
    std::vector<std::uint8_t> first(payload.size()), second(payload.size());
    const MessageId waits = pair.send(gated(1), payload);
    pair.receive(into(first, 1));
    pair.receive(into(second, 2));
    pair.send(plain(2), payload);
    CHECK(pair.run([&] { return pair.count(1, EventKind::receive_finished) == 1; }));
    CHECK(second == payload);
    CHECK(pair.release(waits, 0, 3) == CommandError::none);
    CHECK(pair.run([&] { return pair.count(1, EventKind::receive_finished) == 2; }));
    CHECK(first == payload);
}

TEST_CASE("sink: gets every block once, whatever the network does") {
    Pair pair;
    pair.connect();
    LinkSettings way;
    way.loss_ratio = 0.2;
    way.duplicate_ratio = 0.3;
    way.reorder_ratio = 0.3;
    way.reorder_delay = microseconds(300);
    pair.set_between(way);
    const auto payload = numbered(20 * block + 5);
    Taken taken(payload.size());
    ReceiveCommand command;
    command.capacity_bytes = static_cast<std::uint32_t>(payload.size());
    command.sink = taken.sink(42);
    command.exact = true;
    pair.receive(command);
    pair.send(plain(), payload);
    CHECK(pair.run([&] { return pair.count(1, EventKind::receive_finished) == 1; }));
    CHECK(taken.memory == payload);
    std::sort(taken.blocks.begin(), taken.blocks.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
    REQUIRE(taken.blocks.size() == 21);
    for (std::uint32_t i = 0; i < 21; ++i)
        CHECK(taken.blocks[i] == Taken::Block{42, i * block, i < 20 ? block : 5});
}

TEST_CASE("sink: what came before the receive comes inside it, the rest as it arrives") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(4 * block);
    const MessageId sending = pair.send(gated(), payload);
    CHECK(pair.release(sending, 1, 2) == CommandError::none);
    pair.wait(milliseconds(5));
    Taken taken(payload.size());
    ReceiveCommand command;
    command.capacity_bytes = static_cast<std::uint32_t>(payload.size());
    command.sink = taken.sink();
    const auto receiving = pair.world.endpoint(1).receive(pair.world.now(), command);
    REQUIRE(receiving);
    CHECK(taken.blocks == std::vector<Taken::Block>{{0, block, block}, {0, 2 * block, block}});
    CHECK(pair.release(sending, 0, 4) == CommandError::none);
    CHECK(pair.run([&] { return pair.count(1, EventKind::receive_finished) == 1; }));
    CHECK(taken.memory == payload);
}

TEST_CASE("sink: a virtual message has lengths and no bytes") {
    Pair pair;
    pair.connect();
    Taken taken(0);
    for (const bool late : {false, true}) {
        taken.blocks.clear();
        SendCommand command = plain(late);
        command.peer = pair.peer(0);
        command.message_bytes = 2 * block + 1;
        ReceiveCommand receive;
        receive.tag = late;
        receive.capacity_bytes = command.message_bytes;
        receive.sink = taken.sink();
        if (!late) pair.receive(receive);
        REQUIRE(pair.world.endpoint(0).send(pair.world.now(), command));
        pair.world.serve(0);
        pair.wait(milliseconds(5));
        if (late) pair.receive(receive);
        CHECK(pair.run([&] { return pair.count(1, EventKind::receive_finished) == 1u + late; }));
        CHECK(taken.blocks.size() == 3);
        CHECK(std::accumulate(taken.blocks.begin(), taken.blocks.end(), 0u,
                              [](std::uint32_t sum, const auto& each) { return sum + each.bytes; }) ==
              command.message_bytes);
    }
}

TEST_CASE("exact receive: a message of another length fails on both sides before any block") {
    for (const bool first : {true, false}) {  // the receive comes first, or the message
        for (const std::uint32_t bytes : {0u, block, 2 * block - 1, 2 * block + 1, 9 * block}) {
            CAPTURE(first);
            CAPTURE(bytes);
            Pair pair;
            pair.connect();
            const auto payload = numbered(bytes);
            Taken taken(9 * block);
            ReceiveCommand command;
            command.capacity_bytes = 2 * block;
            command.sink = taken.sink();
            command.exact = true;
            if (first) pair.receive(command);
            pair.send(plain(), payload);
            pair.wait(milliseconds(2));
            if (!first) pair.receive(command);
            CHECK(pair.run([&] { return pair.count(1, EventKind::receive_failed) == 1; }));
            CHECK(pair.find(1, EventKind::receive_failed)->error == CommandError::wrong_size);
            CHECK(taken.blocks.empty());
            CHECK(pair.world.endpoint(1)
                      .outcome(pair.find(1, EventKind::receive_failed)->message)
                      .value.message_bytes == bytes);
            if (first) {
                CHECK(pair.run([&] { return pair.count(0, EventKind::send_failed) == 1; }));
                CHECK(pair.find(0, EventKind::send_failed)->error == CommandError::refused);
            }
        }
    }
}

TEST_CASE("exact receive: takes a message of its length") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(2 * block);
    std::vector<std::uint8_t> memory(payload.size());
    ReceiveCommand command = into(memory);
    command.exact = true;
    pair.receive(command);
    pair.send(plain(), payload);
    CHECK(pair.run([&] { return pair.count(1, EventKind::receive_finished) == 1; }));
    CHECK(memory == payload);
}

TEST_CASE("unexpected message: announced once, with its tag and length") {
    EndpointConfig small = config();
    small.max_unexpected = Bytes{3 * block};
    Pair pair(small);
    pair.connect();
    const auto fits = numbered(2 * block), too_long = numbered(5 * block);
    LinkSettings way;
    way.duplicate_ratio = 0.5;
    pair.set_between(way);
    pair.send(plain(7), fits);
    pair.send(plain(8), too_long);
    std::vector<std::uint8_t> asked_for(block);
    pair.receive(into(asked_for, 9));
    pair.send(plain(9), numbered(block));
    pair.wait(milliseconds(500));
    std::vector<std::pair<std::uint64_t, std::uint32_t>> told;
    for (const Event& event : pair.events[1])
        if (event.kind == EventKind::message_unexpected) told.emplace_back(event.tag, event.value);
    CHECK(told == std::vector<std::pair<std::uint64_t, std::uint32_t>>{{7, 2 * block}, {8, 5 * block}});
    CHECK(pair.count(1, EventKind::bound_reached) == 1);  // the second did not fit
}

TEST_CASE("unexpected message: a long one is held until it is asked for, though there is room") {
    EndpointConfig brief = config();
    brief.max_unexpected_message = Bytes{block};
    Pair pair(brief);
    pair.connect();
    const auto lng = numbered(3 * block), brief_one = numbered(block);
    pair.send(plain(1), lng);
    pair.send(plain(2), brief_one);
    pair.wait(milliseconds(50));
    CHECK(pair.count(0, EventKind::send_finished) == 1);
    CHECK(pair.world.endpoint(1).kept_messages().unexpected == Bytes{block});
    CHECK(pair.count(1, EventKind::bound_reached) == 0);  // no bound was: it is a choice
    std::vector<std::uint8_t> memory(lng.size());
    pair.receive(into(memory, 1));
    CHECK(pair.run([&] { return pair.count(1, EventKind::receive_finished) == 1; }, milliseconds(5)));
    CHECK(memory == lng);
}

TEST_CASE("unexpected message: discarded by tag, in whole or in part, and its room is free") {
    Pair pair;
    pair.connect();
    const auto payload = numbered(2 * block);
    pair.send(plain(0x1001), payload);
    const MessageId part = pair.send(gated(0x1002), payload);
    pair.send(plain(0x2001), payload);
    CHECK(pair.release(part, 0, 1) == CommandError::none);
    pair.wait(milliseconds(5));
    Endpoint& receiver = pair.world.endpoint(1);
    CHECK(receiver.kept_messages().unexpected == Bytes{6 * block});
    const auto with_0x1000 = [](std::uint64_t tag) { return (tag & 0xf000) == 0x1000; };
    CHECK(receiver.discard_unexpected(pair.world.now(), with_0x1000) == 2);
    pair.world.serve(1);
    CHECK(receiver.kept_messages().unexpected == Bytes{2 * block});
    CHECK(receiver.check_invariants().empty());
    CHECK(receiver.discard_unexpected(pair.world.now(), with_0x1000) == 0);
    // Its sender hears that nobody wants it.
    CHECK(pair.run([&] { return pair.count(0, EventKind::send_failed) == 1; }));
    CHECK(pair.find(0, EventKind::send_failed)->error == CommandError::peer_cancelled);
    CHECK(pair.find(0, EventKind::send_failed)->tag == 0x1002);
    // The other is there, and a new one of the old tag is not the old one.
    std::vector<std::uint8_t> memory(payload.size()), fresh(payload.size());
    pair.receive(into(memory, 0x2001));
    CHECK(memory == payload);
    pair.receive(into(fresh, 0x1001));
    auto other = payload;
    std::reverse(other.begin(), other.end());
    pair.send(plain(0x1001), other);
    CHECK(pair.run([&] { return pair.count(1, EventKind::receive_finished) == 2; }));
    CHECK(fresh == other);
}

TEST_CASE("unexpected message: discarded while it was on hold, it is announced again") {
    EndpointConfig brief = config();
    brief.max_unexpected_message = Bytes{block};
    Pair pair(brief);
    pair.connect();
    pair.send(plain(1), numbered(3 * block));
    pair.wait(milliseconds(20));
    CHECK(pair.count(1, EventKind::message_unexpected) == 1);
    CHECK(pair.world.endpoint(1).discard_unexpected(pair.world.now(),
                                                    [](std::uint64_t tag) { return tag == 1; }) == 0);
    pair.world.serve(1);
    CHECK(pair.run([&] { return pair.count(1, EventKind::message_unexpected) == 2; }));
}

TEST_CASE("unexpected message: one that comes between close and the goodbye goes with the session") {
    Pair pair;
    pair.connect();
    pair.world.freeze(1);
    pair.world.close(1);
    const auto receiving = pair.world.endpoint(1).receive(pair.world.now(), {});
    CHECK(receiving.error == CommandError::closed);
    pair.send(plain(1), numbered(60 * block));
    pair.wait(milliseconds(1));
    pair.world.thaw(1);
    CHECK(pair.run([&] { return pair.count(0, EventKind::send_failed) == 1; }));
    CHECK(pair.world.endpoint(1).check_invariants().empty());
    CHECK(pair.world.endpoint(1).kept_messages().incoming == 0);
    CHECK(pair.world.endpoint(1).kept_messages().unexpected == Bytes{0});
}
