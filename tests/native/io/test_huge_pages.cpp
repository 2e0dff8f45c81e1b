// Which buffers are moved into huge pages, and when.
#include <doctest/doctest.h>

#include <errno.h>
#include <sys/mman.h>

#include <cstdint>
#include <vector>

#include "io/huge_pages.hpp"

using namespace dlcp;

namespace {

constexpr std::size_t page = HugePages::page_bytes;

struct Asked {
    std::uintptr_t start;
    std::size_t bytes;
    int advice;
    bool operator==(const Asked&) const = default;
};
std::vector<Asked> asked;
int refusal = 0;  // errno of the first kind of advice

int advise(void* start, std::size_t bytes, int advice) {
    asked.push_back({reinterpret_cast<std::uintptr_t>(start), bytes, advice});
    if (refusal == 0 || advice == MADV_HUGEPAGE) return 0;
    errno = refusal;
    return -1;
}

struct Memory {
    Memory() {
        asked.clear();
        refusal = 0;
    }
    // Nothing reads or writes what is noted.
    static ChunkMemory chunk(std::uintptr_t start, std::size_t bytes) {
        return {reinterpret_cast<std::uint8_t*>(start), bytes};
    }
};

constexpr int collapse = 25;
constexpr std::uintptr_t base = 100 * page;

}  // namespace

TEST_CASE_FIXTURE(Memory, "huge pages: a buffer's whole ones are asked for once, when it comes again and again") {
    HugePages pages(true, advise);
    const std::vector<ChunkMemory> buffer{chunk(base + 100, 2 * page), chunk(base + 100 + 2 * page, page)};
    for (std::uint32_t use = 0; use < HugePages::uses_before; ++use) {
        pages.note(buffer);
        CHECK(asked.empty());
    }
    for (int use = 0; use < 5; ++use) pages.note(buffer);
    CHECK(asked == std::vector<Asked>{{base + page, 2 * page, collapse}});
}

TEST_CASE_FIXTURE(Memory, "huge pages: chunks apart are buffers of their own, virtual and empty ones none") {
    HugePages pages(true, advise);
    const std::vector<ChunkMemory> apart{chunk(base, HugePages::bytes_min), chunk(0, HugePages::bytes_min),
                                         chunk(base + 10 * page, 0), chunk(base + 20 * page, 3 * page),
                                         chunk(base + 30 * page, HugePages::bytes_min - 1)};
    for (int use = 0; use < 5; ++use) pages.note(apart);
    CHECK(asked ==
          std::vector<Asked>{{base, HugePages::bytes_min, collapse}, {base + 20 * page, 3 * page, collapse}});
}

TEST_CASE_FIXTURE(Memory, "huge pages: another start or end is another buffer, and the oldest are forgotten") {
    HugePages pages(true, advise);
    const auto note = [&](std::uintptr_t start, std::size_t bytes) {
        pages.note(std::vector<ChunkMemory>{chunk(start, bytes)});
    };
    for (std::size_t i = 0; i < 5; ++i) note(base, (4 + i) * page);
    CHECK(asked.empty());
    for (std::size_t i = 0; i < 70; ++i) note(base + i * 100 * page, 4 * page);
    for (int use = 0; use < 2; ++use) note(base, 4 * page);  // it is new again
    CHECK(asked.empty());
    note(base, 4 * page);
    CHECK(asked.size() == 1);
}

TEST_CASE_FIXTURE(Memory, "huge pages: a kernel that cannot move memory at once is told that it may") {
    HugePages pages(true, advise);
    refusal = EINVAL;
    for (int use = 0; use < 5; ++use) pages.note(std::vector<ChunkMemory>{chunk(base, 4 * page)});
    CHECK(asked == std::vector<Asked>{{base, 4 * page, collapse}, {base, 4 * page, MADV_HUGEPAGE}});
}

TEST_CASE_FIXTURE(Memory, "huge pages: what the kernel has no room for is not asked for again") {
    HugePages pages(true, advise);
    refusal = ENOMEM;
    for (int use = 0; use < 5; ++use) pages.note(std::vector<ChunkMemory>{chunk(base, 4 * page)});
    CHECK(asked == std::vector<Asked>{{base, 4 * page, collapse}});
}

TEST_CASE_FIXTURE(Memory, "huge pages: not where they are turned off") {
    HugePages pages(false, advise);
    for (int use = 0; use < 5; ++use) pages.note(std::vector<ChunkMemory>{chunk(base, 4 * page)});
    CHECK(asked.empty());
}
