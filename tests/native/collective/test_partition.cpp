// The rule by which a buffer becomes the parts of a collective.
#include "collective/partition.hpp"

#include <doctest/doctest.h>

namespace dlcp {
namespace {

std::vector<std::uint64_t> lengths(std::uint64_t bytes, std::uint32_t parts, DataType type) {
    std::vector<std::uint64_t> out;
    for (const ChunkMemory& part : partition({nullptr, bytes}, parts, type)) out.push_back(part.bytes);
    return out;
}

using Lengths = std::vector<std::uint64_t>;

TEST_CASE("partition: what divides into whole elements is cut evenly") {
    CHECK(lengths(4096, 4, DataType::f32) == Lengths{1024, 1024, 1024, 1024});
    CHECK(lengths(24, 3, DataType::f32) == Lengths{8, 8, 8});
    CHECK(lengths(3, 3, DataType::u8) == Lengths{1, 1, 1});
}

TEST_CASE("partition: what does not is cut at cache lines, and the last parts are shorter or empty") {
    CHECK(lengths(1000, 3, DataType::f32) == Lengths{384, 384, 232});
    CHECK(lengths(100, 4, DataType::f32) == Lengths{64, 36, 0, 0});
}

TEST_CASE("partition: the element type decides whether parts can be equal") {
    CHECK(lengths(24, 4, DataType::u8) == Lengths{6, 6, 6, 6});
    CHECK(lengths(24, 4, DataType::f32) == Lengths{24, 0, 0, 0});
}

TEST_CASE("partition: parts follow each other, cover the memory and cut no element") {
    std::uint8_t memory[4096];
    for (const DataType type : {DataType::u8, DataType::f16, DataType::f32, DataType::f64}) {
        const std::uint64_t step = element_bytes(type);
        for (std::uint64_t bytes = 0; bytes <= sizeof memory; bytes += step * 7) {
            for (std::uint32_t parts = 1; parts < 9; ++parts) {
                CAPTURE(name(type));
                CAPTURE(bytes);
                CAPTURE(parts);
                const std::uint8_t* at = memory;
                for (const ChunkMemory& part : partition({memory, bytes}, parts, type)) {
                    REQUIRE(part.data == at);
                    REQUIRE(part.bytes % step == 0);
                    at += part.bytes;
                }
                REQUIRE(at == memory + bytes);
            }
        }
    }
}

TEST_CASE("partition: virtual memory stays virtual; no parts are no chunks") {
    for (const ChunkMemory& part : partition({nullptr, 1000}, 3, DataType::f32)) CHECK(part.data == nullptr);
    CHECK(partition({nullptr, 10}, 0, DataType::f32).empty());
}

}  // namespace
}  // namespace dlcp
