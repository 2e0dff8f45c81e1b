// The Internet checksum against a twin that adds byte by byte.
#include <doctest/doctest.h>

#include <vector>

#include "ipstack/checksum.hpp"
#include "support/native/dice.hpp"

namespace dlcp::ipstack {
namespace {

using test::Dice;

// RFC 1071, 1: 16-bit words in network order, the carry added again at once. Answers the number, not memory order.
class SlowSum {
public:
    void add(const std::uint8_t* data, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i, ++at_) {
            sum_ += at_ % 2 == 0 ? data[i] << 8 : data[i];
            if (sum_ > 0xffff) sum_ -= 0xffff;
        }
    }
    std::uint16_t value() const { return static_cast<std::uint16_t>(sum_); }

private:
    std::uint32_t sum_ = 0;
    std::size_t at_ = 0;
};

std::uint16_t number(std::uint64_t sum) { return __builtin_bswap16(fold(sum)); }

}  // namespace

TEST_CASE("ipstack checksum: the example of RFC 1071, 3") {
    const std::uint8_t bytes[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    CHECK(number(add_words(0, bytes, sizeof bytes)) == 0xddf2);
    CHECK(fold(0) == 0);
    CHECK(fold(0xffff) == 0xffff);
    CHECK(fold(0x1ffff) == 1);
    CHECK(fold(UINT64_MAX) == 0xffff);
}

TEST_CASE("ipstack checksum: any length and alignment") {
    Dice dice(1);
    std::vector<std::uint8_t> memory(9200);
    for (auto& byte : memory) byte = static_cast<std::uint8_t>(dice.chance(0.2) ? 0xff : dice.word());
    for (int turn = 0; turn < 4000; ++turn) {
        const std::size_t start = dice.below(64);
        const std::size_t bytes = turn < 200 ? static_cast<std::size_t>(turn) : dice.below(9100);
        CAPTURE(start);
        CAPTURE(bytes);
        SlowSum slow;
        slow.add(memory.data() + start, bytes);
        REQUIRE(number(add_words(0, memory.data() + start, bytes)) == slow.value());
    }
}

TEST_CASE("ipstack checksum: a whole in pieces at any offset") {
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        CAPTURE(seed);
        Dice dice(seed);
        std::vector<std::uint8_t> whole(dice.below(600));
        for (auto& byte : whole) byte = static_cast<std::uint8_t>(dice.word());
        SlowSum slow;
        slow.add(whole.data(), whole.size());
        std::uint64_t sum = 0, copied_sum = 0;
        std::vector<std::uint8_t> copy(whole.size());
        for (std::size_t at = 0; at < whole.size();) {
            const std::size_t bytes = 1 + dice.below(std::min<std::size_t>(whole.size() - at, 100));
            sum = add_piece(sum, whole.data() + at, bytes, at);
            copied_sum = copy_piece(copied_sum, copy.data() + at, whole.data() + at, bytes, at);
            at += bytes;
        }
        REQUIRE(number(sum) == slow.value());
        REQUIRE(number(copied_sum) == slow.value());
        REQUIRE(copy == whole);
    }
}

TEST_CASE("ipstack checksum: nothing of all ones is lost in a long sum") {
    const std::vector<std::uint8_t> ones(1 << 20, 0xff);
    CHECK(fold(add_words(0, ones.data(), ones.size())) == 0xffff);
    // 2^56 - 1 is 255 modulo 2^16 - 1.
    CHECK(fold(add_words(UINT64_MAX >> 8, ones.data(), ones.size())) == 255);
}

}  // namespace dlcp::ipstack
