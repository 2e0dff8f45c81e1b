// IncomingMessage: where a block goes, and whether the message may end.
#include <doctest/doctest.h>

#include <array>
#include <utility>
#include <vector>

#include "engine/incoming_message.hpp"

namespace dlcp {
namespace {

constexpr std::uint16_t block = 4;

wire::Header header(std::uint32_t bytes, std::uint32_t critical_blocks, double loss_ratio = 0.0) {
    wire::Header h;
    h.message_id = 1;
    h.tag = 7;
    h.message_bytes = bytes;
    h.block_bytes = block;
    h.critical_blocks = critical_blocks;
    h.budget = wire::encode_budget(loss_ratio);
    return h;
}

void arrive(IncomingMessage& m, std::uint32_t index, const std::uint8_t* payload, bool critical = true) {
    const std::uint32_t bytes = std::min<std::uint32_t>(block, m.message_bytes - index * block);
    m.received.insert(index);
    ++m.received_blocks;
    m.received_bytes += bytes;
    m.received_critical += critical;
    m.place(Time{0}, index, payload, bytes);
}

struct Receive {
    explicit Receive(std::uint32_t capacity) : buffer(capacity) {
        command.buffer = buffer.data();
        command.capacity_bytes = capacity;
    }
    std::vector<std::uint8_t> buffer;
    ReceiveCommand command;
};

TEST_CASE("incoming message: a block goes to its place in the buffer") {
    Receive receive(10);
    IncomingMessage m;
    m.state.apply(IncomingState::Event::post);
    m.set_receive(Time{0}, 0, receive.command);
    m.set_message(0, header(10, 3));
    CHECK(m.state == IncomingState::State::receiving);
    const std::array<std::uint8_t, 4> payload = {1, 2, 3, 4};
    arrive(m, 2, payload.data());
    CHECK(receive.buffer == std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0, 0, 0, 1, 2});
}

TEST_CASE("incoming message: what nobody asked for is put aside, and only what arrived is handed over") {
    IncomingMessage m;
    m.set_message(0, header(12, 3));
    CHECK(m.unasked());
    const std::array<std::uint8_t, 4> payload = {1, 2, 3, 4};
    arrive(m, 1, payload.data());
    Receive receive(12);
    receive.buffer.assign(12, 9);
    m.state.apply(IncomingState::Event::claim);
    m.set_receive(Time{0}, 0, receive.command);
    m.unstage(Time{0});
    CHECK(receive.buffer == std::vector<std::uint8_t>{9, 9, 9, 9, 1, 2, 3, 4, 9, 9, 9, 9});
}

TEST_CASE("incoming message: a sink takes blocks in place of the buffer") {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> taken;
    ReceiveCommand command;
    command.capacity_bytes = 10;
    command.sink.context = &taken;
    command.sink.place = [](void* context, std::uint64_t, Time, std::uint32_t offset, const std::uint8_t*,
                            std::uint32_t bytes) {
        static_cast<decltype(taken)*>(context)->push_back({offset, bytes});
    };
    IncomingMessage m;
    m.state.apply(IncomingState::Event::post);
    m.set_receive(Time{0}, 0, command);
    m.set_message(0, header(10, 3));
    arrive(m, 2, nullptr);
    arrive(m, 0, nullptr);
    CHECK(taken == std::vector<std::pair<std::uint32_t, std::uint32_t>>{{8, 2}, {0, 4}});
}

TEST_CASE("incoming message: it may end when the critical blocks are in and the rest is within the budget") {
    IncomingMessage m;
    m.set_message(0, header(40, 1, 0.25));
    arrive(m, 0, nullptr, true);
    CHECK(m.critical_complete());
    for (std::uint32_t b = 1; b < 7; ++b) arrive(m, b, nullptr, false);
    CHECK(!m.within_budget());  // 12 of 40 bytes are missing
    arrive(m, 7, nullptr, false);
    CHECK(m.within_budget());
    CHECK(!m.complete());
}

TEST_CASE("incoming message: no more blocks of a kind than the message said it has") {
    IncomingMessage m;
    m.set_message(0, header(12, 1));
    CHECK(!m.full(true));
    arrive(m, 0, nullptr, true);
    CHECK(m.full(true));
    CHECK(!m.full(false));
}

TEST_CASE("incoming message: a length that the receive does not take") {
    IncomingMessage m;
    m.set_message(0, header(12, 3));
    m.capacity_bytes = 11;
    CHECK(m.size_error() == CommandError::receive_too_small);
    m.capacity_bytes = 13;
    CHECK(m.size_error() == CommandError::none);
    m.exact = true;
    CHECK(m.size_error() == CommandError::wrong_size);
}

TEST_CASE("incoming message: a packet that says something else of the message does not agree") {
    IncomingMessage m;
    m.set_message(0, header(12, 3));
    CHECK(m.fits(header(12, 3)));
    CHECK(!m.fits(header(13, 3)));
    CHECK(!m.fits(header(12, 2)));
    CHECK(!m.fits(header(12, 3, 0.5)));
}

TEST_CASE("incoming message: a short header fits if the message has such a block") {
    IncomingMessage m;
    m.set_message(0, header(11, 3));
    const auto short_header = [](std::uint32_t block, std::uint16_t payload_bytes) {
        wire::Header h;
        h.type = wire::Type::short_data;
        h.block_index = block;
        h.payload_bytes = payload_bytes;
        return h;
    };
    const std::uint32_t last = m.blocks - 1;
    const auto rest = static_cast<std::uint16_t>(m.message_bytes - last * m.block_bytes);
    REQUIRE(rest < m.block_bytes);
    CHECK(m.fits(short_header(0, m.block_bytes)));
    CHECK(m.fits(short_header(last, rest)));
    CHECK(!m.fits(short_header(last, m.block_bytes)));
    CHECK(!m.fits(short_header(0, rest)));
    CHECK(!m.fits(short_header(last + 1, m.block_bytes)));
}

}  // namespace
}  // namespace dlcp
