// The software switch's loop between ports in memory: the order of arrivals, work handed over from other threads, its end.
#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <thread>

#include "softswitch/clock.hpp"
#include "softswitch/loop.hpp"
#include "softswitch_bench.hpp"
#include "support/native/memory_port.hpp"

using namespace dlcp;
using namespace dlcp::softswitch;
using namespace dlcp::softswitch::bench;

namespace {

constexpr std::uint64_t far = 0x020000000002;

// A switch of three ports in a thread of its own, from birth to its end; what is for `far` leaves by port 2.
class Running {
public:
    // `prepare` puts frames before anything runs.
    explicit Running(
        bool busy_poll = false, std::uint64_t rate_bps = 0,
        const std::function<void(Running&)>& prepare = [](Running&) {})
        : core_({.frame_bytes = {1518, 1518, 1518}}, configuration(rate_bps)), loop_(core_, open(), busy_poll) {
        prepare(*this);
        thread_ = std::thread([this] { loop_.run(); });
        // Until it runs: what is handed over before is done by who hands it over.
        std::thread::id by;
        while (by != thread_.get_id()) loop_.call([&] { by = std::this_thread::get_id(); });
    }
    ~Running() { end(); }

    void end() {
        loop_.stop();
        if (thread_.joinable()) thread_.join();
    }
    Loop& loop() { return loop_; }
    MemoryPort& port(std::size_t index) { return *ports_[index]; }

    // Waits until so many frames have left by port 2.
    void wait_for(std::size_t frames) {
        const Time end = monotonic_now() + 60s;
        for (std::size_t sent = 0; sent < frames;) {
            loop_.call([&] { sent = port(2).sent().size(); });
            REQUIRE(monotonic_now() < end);
        }
    }

private:
    static Configuration configuration(std::uint64_t rate_bps) {
        Configuration out = plain(3, rate_bps);
        out.addresses = {{far, {2, false}}};
        return out;
    }
    std::vector<std::unique_ptr<Port>> open() {
        std::vector<std::unique_ptr<Port>> out;
        for (int i = 0; i < 3; ++i) {
            auto port = std::make_unique<MemoryPort>();
            ports_.push_back(port.get());
            out.push_back(std::move(port));
        }
        return out;
    }

    std::vector<MemoryPort*> ports_;
    Core core_;
    Loop loop_;
    std::thread thread_;
};

}  // namespace

TEST_CASE("softswitch: frames of several ports are handled in the order of their times") {
    for (const bool busy_poll : {false, true}) {
        CAPTURE(busy_poll);
        constexpr std::uint32_t frames = 500;  // several batches of each port
        Running running(busy_poll, 0, [&](Running& made_of) {
            const Time start = monotonic_now() - 1s;
            Made made;
            for (std::uint32_t i = 0; i < frames; ++i) {
                made.number = i;
                made_of.port(i % 3 == 0 ? 0 : 1).put(made.bytes(), start + 1us * i);
            }
        });
        running.wait_for(frames);
        running.end();
        const auto& sent = running.port(2).sent();
        REQUIRE(sent.size() == frames);
        for (std::uint32_t i = 0; i < frames; ++i) CHECK(Sent{sent[i].bytes, sent[i].at}.number() == i);
    }
}

TEST_CASE("softswitch: a thread that comes late serves lines as they would have been") {
    constexpr std::uint64_t rate_bps = 100'000'000;
    const Time each = transmit_time(Made{}.bytes().size() + 24, rate_bps);
    const Time start = monotonic_now() - 1s;
    // As fast as the line, and all of it long ago: nothing may queue.
    Running running(false, rate_bps, [&](Running& made_of) {
        for (int i = 0; i < 1'000; ++i)
            made_of.port(static_cast<std::size_t>(i % 2)).put(Made{}.bytes(), start + i * each);
    });
    running.wait_for(1'000);
    running.end();
    const auto& sent = running.port(2).sent();
    for (std::size_t i = 0; i < sent.size(); ++i) CHECK(sent[i].at == start + static_cast<int>(i) * each);
    CHECK(running.loop().core().queues(2).bytes_max() == 0);
}

TEST_CASE("softswitch: a port that takes nothing keeps others going, and what it kept leaves in order") {
    Running running;
    running.loop().call([&] {
        running.port(2).take(10);
        Made made;
        for (std::uint32_t i = 0; i < 300; ++i) {
            made.number = i;
            running.port(0).put(made.bytes(), monotonic_now());
        }
    });
    running.wait_for(10);
    running.loop().call([&] { running.port(2).take(SIZE_MAX); });
    running.loop().call([&] { running.port(0).put(Made{.number = 300}.bytes(), monotonic_now()); });
    running.wait_for(301);
    running.end();
    for (std::uint32_t i = 0; i <= 300; ++i) {
        const auto& sent = running.port(2).sent()[i];
        CHECK(Sent{sent.bytes, sent.at}.number() == i);
    }
}

TEST_CASE("softswitch: work of other threads is done between frames, and its errors are theirs") {
    Running running;
    CHECK_THROWS_AS(running.loop().call([] { throw std::runtime_error("mine"); }), std::runtime_error);
    std::vector<std::thread> callers;
    int sum = 0;  // only ever touched in the loop's thread
    for (int i = 0; i < 4; ++i) {
        callers.emplace_back([&] {
            for (int k = 0; k < 200; ++k) running.loop().call([&] { ++sum; });
        });
    }
    for (std::thread& caller : callers) caller.join();
    running.loop().call([&] { CHECK(sum == 800); });
    CHECK_THROWS_AS(running.loop().close(), std::logic_error);
    running.end();
    running.loop().close();
    running.loop().call([&] { ++sum; });  // after its end, here
    CHECK(sum == 801);
}
