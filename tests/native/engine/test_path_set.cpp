// Paths that die are left, also when they are as many as those that live.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "engine/path_set.hpp"

using namespace dlcp;

namespace {

// Sends `packets` one after the other; those on a path from `first_dead` on are lost. Returns how many.
int send(PathSet& paths, Time& now, int packets, std::uint16_t first_dead) {
    std::vector<PathSet::Change> changes;
    int lost = 0;
    for (int i = 0; i < packets; ++i) {
        now = now + microseconds(1);
        const std::uint16_t path = paths.choose(now, microseconds(20), 64).path;
        paths.on_sent(path);
        if (path >= first_dead) {
            ++lost;
            paths.on_lost(path);
        } else {
            paths.on_acked(path, false);
        }
        if (paths.due()) paths.update(now, microseconds(20), changes);
    }
    return lost;
}

}  // namespace

TEST_CASE("path set: when half of 64 paths die, most packets take the others within three turns") {
    PathSet paths;
    paths.reset(64);
    Time now{0};
    CHECK(send(paths, now, 640, 64) == 0);
    const int first = send(paths, now, 192, 32);
    CHECK(first <= 80);  // 96 if nothing were learned
    CHECK(send(paths, now, 640, 32) <= 64);
    CHECK(send(paths, now, 6400, 32) <= 320);
}

TEST_CASE("path set: a path that comes back is used as before") {
    PathSet paths;
    paths.reset(8);
    Time now{0};
    send(paths, now, 800, 7);
    send(paths, now, 8000, 8);
    std::vector<int> used(8);
    for (int i = 0; i < 800; ++i) {
        now = now + microseconds(1);
        const std::uint16_t path = paths.choose(now, microseconds(20), 64).path;
        ++used[path];
        paths.on_acked(path, false);
    }
    CHECK(*std::min_element(used.begin(), used.end()) >= 90);
}

TEST_CASE("path set: one lost packet halves the path's share until the next arrives, and no longer") {
    PathSet paths;
    paths.reset(4);
    const Time now{0};
    paths.on_lost(2);
    std::vector<int> used(4);
    for (int i = 0; i < 70; ++i) ++used[paths.choose(now, microseconds(20), 64).path];
    CHECK(used == std::vector<int>{20, 20, 10, 20});
    paths.on_acked(2, false);
    used.assign(4, 0);
    for (int i = 0; i < 80; ++i) ++used[paths.choose(now, microseconds(20), 64).path];
    CHECK(used == std::vector<int>{20, 20, 20, 20});
}

TEST_CASE("path set: repairs take turns over the paths whose last packet arrived, and all if there is none") {
    PathSet paths;
    paths.reset(8);
    const Time now{0};
    const auto repairs = [&](int count) {
        std::vector<int> used(8);
        for (int i = 0; i < count; ++i) ++used[paths.choose(now, microseconds(20), 64, true).path];
        return used;
    };
    CHECK(repairs(80) == std::vector<int>(8, 10));
    for (const std::uint16_t path : {1, 4, 6}) paths.on_acked(path, false);
    paths.on_lost(6);
    CHECK(repairs(80) == std::vector<int>{0, 40, 0, 0, 40, 0, 0, 0});
    CHECK(paths.any_proven(2) == 4);
    CHECK(paths.any_up(2) == 2);
}

TEST_CASE("few paths: as many as are asked for, and others only in place of those that are down") {
    PathSet paths;
    paths.reset(16);
    std::vector<PathSet::Change> changes;
    const Time now{1'000'000'000};
    const auto used = [&] {
        std::set<std::uint16_t> found;
        for (int i = 0; i < 200; ++i)
            if (const PathSet::Choice choice = paths.choose(now, microseconds(20), 4); !choice.single)
                found.insert(choice.path);
        return found;
    };
    CHECK(used() == std::set<std::uint16_t>{0, 1, 2, 3});
    for (int i = 0; i < 100; ++i) {
        for (std::uint16_t path = 0; path < 16; ++path)
            path == 2 ? paths.on_lost(path) : paths.on_acked(path, false);
    }
    paths.update(now, microseconds(20), changes);
    REQUIRE(changes.size() == 1);
    CHECK(used() == std::set<std::uint16_t>{0, 1, 3, 4});
}
