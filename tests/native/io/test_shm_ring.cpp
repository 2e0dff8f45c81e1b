// The ring of packets in shared memory: order, room, wrapping, sleeping, and a neighbour that writes nonsense into it.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "io/shm_ring.hpp"
#include "support/native/dice.hpp"

namespace dlcp::shm {
namespace {

using test::Dice;

constexpr std::uint32_t packet_bytes_max = 9216;

// A ring in plain memory, guarded by bytes that nobody may touch.
class Memory {
public:
    explicit Memory(std::uint32_t data_bytes)
        : bytes_(new (std::align_val_t{cache_line_bytes})
                     std::uint8_t[sizeof(RingControl) + data_bytes + 2 * guard]),
          data_bytes_(data_bytes) {
        std::memset(bytes_.get(), 0, sizeof(RingControl));
        std::memset(bytes_.get() + sizeof(RingControl), canary, data_bytes + 2 * guard);
    }
    RingMemory ring() {
        return {
            .control = reinterpret_cast<RingControl*>(bytes_.get()), .data = data(), .data_bytes = data_bytes_};
    }
    std::uint8_t* data() { return bytes_.get() + sizeof(RingControl) + guard; }
    bool holds(const std::uint8_t* start, std::uint32_t length) {
        return start >= data() && length <= data_bytes_ && start + length <= data() + data_bytes_;
    }
    // The first prefix lies before the data, as it should; nothing else outside does.
    bool intact() {
        for (std::uint32_t i = 0; i < guard; ++i) {
            if (i < guard - 8 && data()[static_cast<std::ptrdiff_t>(i) - guard] != canary) return false;
            if (data()[data_bytes_ + i] != canary) return false;
        }
        return true;
    }

private:
    static constexpr std::uint32_t guard = 2 * cache_line_bytes;
    static constexpr std::uint8_t canary = 0xa5;
    struct Free {
        void operator()(std::uint8_t* bytes) const {
            ::operator delete[](bytes, std::align_val_t{cache_line_bytes});
        }
    };
    std::unique_ptr<std::uint8_t[], Free> bytes_;
    std::uint32_t data_bytes_;
};

// What packet `number` looks like: any length, contents that follow from both.
std::uint32_t length_of(std::uint64_t number) {
    return static_cast<std::uint32_t>(
        Dice(number + 1).pick<std::uint64_t>({0, 1, 55, 56, 57, 64, 72, 1472, 9152, 9216}));
}
std::uint8_t byte_of(std::uint64_t number, std::uint32_t at) {
    return static_cast<std::uint8_t>(number * 31 + at);
}

bool write(RingWriter& writer, std::uint64_t number) {
    const std::uint32_t length = length_of(number);
    std::uint8_t* to = writer.reserve(length);
    if (to == nullptr) return false;
    for (std::uint32_t i = 0; i < length; ++i) to[i] = byte_of(number, i);
    writer.commit(length, static_cast<std::uint8_t>(number));
    return true;
}

bool is_packet(const RingReader::Packet& packet, std::uint64_t number) {
    if (packet.length != length_of(number) || packet.tos != static_cast<std::uint8_t>(number)) return false;
    for (std::uint32_t i = 0; i < packet.length; ++i)
        if (packet.bytes[i] != byte_of(number, i)) return false;
    return true;
}

}  // namespace

TEST_CASE("shm ring: packets of all lengths come out whole and in order, round after round") {
    Memory memory(64 * 1024);
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring(), packet_bytes_max);
    Dice dice(1);
    std::uint64_t written = 0, read = 0;
    while (read < 20'000) {
        for (std::uint64_t burst = dice.below(20); burst > 0 && write(writer, written); --burst) ++written;
        writer.publish();
        RingReader::Packet packet;
        std::uint32_t taken = 0;
        for (std::uint64_t burst = dice.below(20); burst > 0 && reader.next(packet); --burst, ++read, ++taken) {
            REQUIRE(is_packet(packet, read));
            REQUIRE(memory.holds(packet.bytes, packet.length));
        }
        reader.give_back(taken);
    }
    CHECK(memory.intact());
    CHECK(!writer.broken());
    CHECK(!reader.broken());
}

TEST_CASE("shm ring: nothing is shown before it is published") {
    Memory memory(64 * 1024);
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring(), packet_bytes_max);
    REQUIRE(write(writer, 1));
    RingReader::Packet packet;
    CHECK(!reader.readable());
    CHECK(!reader.next(packet));
    writer.publish();
    CHECK(reader.readable());
    CHECK(reader.next(packet));
    CHECK(is_packet(packet, 1));
}

TEST_CASE("shm ring: a full one refuses, and has room again once all that is lent has come back") {
    Memory memory(64 * 1024);
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring(), packet_bytes_max);
    std::uint32_t written = 0;
    while (writer.reserve(9000) != nullptr) {
        writer.commit(9000, 0);
        ++written;
    }
    CHECK(written == 64 * 1024 / slot_bytes(9000));
    writer.publish();
    RingReader::Packet packet;
    for (std::uint32_t i = 0; i < written; ++i) REQUIRE(reader.next(packet));
    CHECK(writer.reserve(9000) == nullptr);
    reader.give_back(written - 1);
    CHECK(writer.reserve(9000) == nullptr);
    reader.give_back(1);
    CHECK(writer.reserve(9000) != nullptr);
    CHECK(memory.intact());
}

TEST_CASE("shm ring: one that has run empty starts at the beginning of its memory") {
    Memory memory(64 * 1024);
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring(), packet_bytes_max);
    for (std::uint64_t i = 0; i < 100; ++i) {
        for (int n = 0; n < 3; ++n) REQUIRE(write(writer, i * 3 + static_cast<std::uint64_t>(n)));
        writer.publish();
        RingReader::Packet packet;
        REQUIRE(reader.next(packet));
        CHECK(packet.bytes == memory.data());
        CHECK(is_packet(packet, i * 3));
        REQUIRE(reader.next(packet));
        REQUIRE(reader.next(packet));
        CHECK(is_packet(packet, i * 3 + 2));
        reader.give_back(3);
    }
}

TEST_CASE("shm ring: a reader that announces its sleep is woken for the next packet, once") {
    Memory memory(64 * 1024);
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring(), packet_bytes_max);
    REQUIRE(write(writer, 0));
    CHECK(!writer.publish());  // awake
    CHECK(!reader.arm());      // something is there
    RingReader::Packet packet;
    REQUIRE(reader.next(packet));
    reader.give_back(1);
    CHECK(reader.arm());
    REQUIRE(write(writer, 1));
    CHECK(writer.publish());
    REQUIRE(write(writer, 2));
    CHECK(!writer.publish());
}

TEST_CASE("shm ring: between two threads no packet and no wake is lost") {
    Memory memory(64 * 1024);
    RingWriter writer(memory.ring());
    RingReader reader(memory.ring(), packet_bytes_max);
    std::counting_semaphore<> bell(0), room(0);
    constexpr std::uint64_t packets = 30'000;
    std::thread other([&] {
        Dice dice(3);
        for (std::uint64_t number = 0; number < packets;) {
            if (!write(writer, number)) {
                if (writer.publish()) bell.release();
                room.acquire();
                continue;
            }
            ++number;
            if (dice.chance(0.3) && writer.publish()) bell.release();
        }
        if (writer.publish()) bell.release();
    });
    std::uint64_t read = 0;
    bool right = true;
    while (read < packets) {
        RingReader::Packet packet;
        std::uint32_t taken = 0;
        while (taken < 16 && reader.next(packet)) {
            right &= is_packet(packet, read++);
            ++taken;
        }
        if (taken > 0) {
            reader.give_back(taken);
            room.release();
        } else if (reader.arm()) {
            bell.acquire();
        }
    }
    room.release(packets);  // whatever the writer still waits for
    other.join();
    CHECK(right);
    CHECK(!reader.broken());
}

TEST_CASE("shm ring: whatever the other side writes, no packet lies outside the memory") {
    for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
        Dice dice(seed);
        Memory memory(64 * 1024);
        const RingMemory ring = memory.ring();
        RingWriter writer(ring);
        RingReader reader(ring, packet_bytes_max);
        const auto nonsense = [&]() -> std::uint64_t {
            switch (dice.below(5)) {
                case 0: return dice.word();
                case 1: return dice.below(256) * 64;
                case 2: return std::uint64_t{1} << 40 | dice.below(20'000);  // a prefix with any length
                case 3: return std::uint64_t{2} << 40 | dice.word() >> 32;   // an end
                default: return UINT64_MAX - dice.below(200'000);
            }
        };
        for (int step = 0; step < 60; ++step) {
            switch (dice.below(5)) {
                case 0: ring.control->tail.store(nonsense()); break;
                case 1: ring.control->base.store(nonsense()); break;
                case 2: ring.control->head.store(nonsense()); break;
                case 3: {
                    const std::uint64_t value = nonsense();
                    std::memcpy(ring.data + dice.below(1024) * 64 - 8, &value, sizeof value);
                    break;
                }
                default:
                    for (std::uint64_t i = dice.below(12); i > 0 && write(writer, i); --i) {}
                    writer.publish();
                    break;
            }
            RingReader::Packet packet;
            std::uint32_t taken = 0;
            while (taken < 8 && reader.next(packet)) {
                ++taken;
                REQUIRE(packet.length <= packet_bytes_max);
                REQUIRE(memory.holds(packet.bytes, packet.length));
            }
            reader.give_back(taken);
            reader.arm();
            CAPTURE(seed);
            REQUIRE(memory.intact());
        }
    }
}

TEST_CASE("shm ring: one with impossible positions is broken and stays so") {
    Memory memory(64 * 1024);
    RingReader reader(memory.ring(), packet_bytes_max);
    memory.ring().control->tail.store(64 * 1024 + 64);  // more than the ring holds
    RingReader::Packet packet;
    CHECK(!reader.next(packet));
    CHECK(reader.broken());
    memory.ring().control->tail.store(64);
    CHECK(!reader.next(packet));
    CHECK(!reader.readable());

    // A packet that would go on behind the end of the data.
    Memory long_one(64 * 1024);
    RingWriter honest(long_one.ring());
    RingReader careful(long_one.ring(), packet_bytes_max);
    for (int i = 0; i < 7; ++i) {
        REQUIRE(honest.reserve(9152) != nullptr);
        honest.commit(9152, 0);
    }
    honest.publish();
    for (int i = 0; i < 7; ++i) REQUIRE(careful.next(packet));
    const std::uint64_t prefix = std::uint64_t{1} << 40 | 9152;
    std::memcpy(long_one.ring().data + 7 * slot_bytes(9152) - 8, &prefix, sizeof prefix);
    long_one.ring().control->tail.store(8 * slot_bytes(9152));
    careful.give_back(7);
    CHECK(!careful.next(packet));
    CHECK(careful.broken());

    Memory other(64 * 1024);
    RingWriter writer(other.ring());
    other.ring().control->head.store(64);  // of what was never written
    CHECK(writer.reserve(100) == nullptr);
    CHECK(writer.broken());
}

}  // namespace dlcp::shm
