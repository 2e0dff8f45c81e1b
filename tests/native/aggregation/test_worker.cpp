// Workers and the slots of one switch over links that lose, double and reorder, in virtual time. Whatever the network
// does: a block's sum is the plain sum of all workers' values, it is taken once, and every task ends. A switch that
// restarts in mid-task may hold a task up, and makes no wrong sum. One seed decides everything.
#include "aggregation/worker.hpp"

#include <doctest/doctest.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "switch/aggregation.hpp"
#include "switch/aggregation_frame.hpp"

using namespace dlcp::aggregation;
using namespace dlcp::switching;

namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr std::uint32_t job_number = 7;
constexpr std::uint16_t udp_port = 23701;

using Random = std::mt19937_64;
using Bytes = std::vector<std::uint8_t>;

std::uint64_t below(Random& random, std::uint64_t end) { return random() % end; }
bool chance(Random& random, double ratio) { return static_cast<double>(random() >> 11) * 0x1p-53 < ratio; }

// Integers, whose sums over 32 workers stay below 2^31.
class Integers final : public Blocks {
public:
    Integers(std::uint32_t count, std::uint32_t lanes, std::uint32_t workers, std::uint32_t worker,
             std::uint32_t seed)
        : lanes_(lanes), workers_(workers), worker_(worker), seed_(seed), taken_(count) {}

    std::uint32_t count() const override { return static_cast<std::uint32_t>(taken_.size()); }
    std::uint8_t exponent(std::uint32_t block) const override { return static_cast<std::uint8_t>(block + seed_); }
    void write(std::uint32_t block, std::uint8_t* values) const override {
        for (std::uint32_t lane = 0; lane < lanes_; ++lane)
            write32(values + 4 * lane, static_cast<std::uint32_t>(value(block, lane, worker_)));
    }
    bool take(std::uint32_t block, const std::uint8_t* values) override {
        ++taken_[block];
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
            std::int32_t sum = 0;
            for (std::uint32_t worker = 0; worker < workers_; ++worker) sum += value(block, lane, worker);
            if (static_cast<std::int32_t>(read32(values + 4 * lane)) != sum) ++wrong;
        }
        return true;
    }
    // How often the result of each block was taken.
    const std::vector<int>& taken() const { return taken_; }
    int wrong = 0;

private:
    std::int32_t value(std::uint32_t block, std::uint32_t lane, std::uint32_t worker) const {
        const std::uint64_t z = (std::uint64_t{block} << 32 | lane << 8 | worker) + seed_ * 0x9e3779b97f4a7c15U;
        return static_cast<std::int32_t>((z * 0xbf58476d1ce4e5b9U) >> 39) - (1 << 24);
    }

    std::uint32_t lanes_, workers_, worker_, seed_;
    std::vector<int> taken_;
};

struct Link {
    double loss_ratio = 0;
    double duplicate_ratio = 0;
    std::int64_t jitter_ns = 0;  // up to so much more than 10 us, so that packets overtake each other
};

Participant participant(std::uint16_t port) {
    return {port, 0x020000000000U + port, 0x0a000000U + port, udp_port};
}

// As worker `port`'s host sends it. No UDP checksum: the switch does without.
Bytes frame_of(std::uint16_t port, std::uint16_t hub_port, const Bytes& packet) {
    namespace f = aggregation_frame;
    Bytes frame(f::payload_at, 0);
    const Participant from = participant(port), to = participant(hub_port);
    f::write48(frame.data(), to.mac);
    f::write48(frame.data() + 6, from.mac);
    write16(frame.data() + 12, f::type_ipv4);
    std::uint8_t* ip = frame.data() + f::ip_at;
    ip[0] = 0x45;
    write16(ip + 2, static_cast<std::uint32_t>(f::ip_bytes + f::udp_bytes + packet.size()));
    ip[8] = 64;
    ip[9] = f::protocol_udp;
    write32(ip + 12, from.ip);
    write32(ip + 16, to.ip);
    write16(ip + 10, f::checksum_of(f::sum_words(ip, f::ip_bytes)));
    std::uint8_t* udp = frame.data() + f::udp_at;
    write16(udp, from.udp_port);
    write16(udp + 2, to.udp_port);
    write16(udp + 4, static_cast<std::uint32_t>(f::udp_bytes + packet.size()));
    frame.insert(frame.end(), packet.begin(), packet.end());
    return frame;
}

class Network {
public:
    Network(std::uint64_t seed, std::uint32_t workers, std::uint16_t slots, std::uint32_t lanes, const Link& link)
        : random(seed), link_(link), lanes_(lanes) {
        AggregationJob job{.job = job_number, .slots = slots, .lanes = lanes};
        for (std::uint32_t port = 0; port < workers; ++port)
            job.workers.push_back(participant(static_cast<std::uint16_t>(port)));
        job.hub = participant(static_cast<std::uint16_t>(workers));
        jobs_ = {job};
        slots_.configure(jobs_);
        for (std::uint32_t n = 0; n < workers; ++n)
            engines_.push_back(Worker({.job = job_number,
                                       .workers = workers,
                                       .worker = n,
                                       .ranks = workers,
                                       .rank = n,
                                       .slots = slots,
                                       .lanes = lanes}));
    }

    // Every slot is free, as after a restart.
    void restart_switch() {
        slots_.configure({});
        slots_.configure(jobs_);
    }

    // One task of all workers, which begin it at random times; whether it ends for all by then.
    bool run(std::vector<Integers>& tasks, std::uint64_t position, std::int64_t limit_ns,
             double restart_ratio = 0) {
        const std::int64_t end_ns = now_ns_ + limit_ns;
        for (std::size_t n = 0; n < engines_.size(); ++n) {
            const std::array<std::int64_t, 4> starts{0, 0, 2 * ms, 60 * ms};
            at(now_ns_ + starts[below(random, starts.size())], [this, n, &tasks, position] {
                engines_[n].begin(tasks[n], 1, position, now_ns_);
                begun_[n] = true;
                poll(n);
            });
        }
        begun_.assign(engines_.size(), false);
        while (!events_.empty() && events_.begin()->first <= end_ns) {
            const auto first = events_.begin();
            now_ns_ = first->first;
            const std::function<void()> call = std::move(first->second);
            events_.erase(first);
            if (chance(random, restart_ratio)) restart_switch();
            call();
            if (all_done()) return true;
        }
        return all_done();
    }

    Random random;

private:
    bool all_done() const {
        for (std::size_t n = 0; n < engines_.size(); ++n)
            if (!begun_[n] || !engines_[n].done()) return false;
        return true;
    }

    void at(std::int64_t time_ns, std::function<void()> call) { events_.emplace(time_ns, std::move(call)); }

    void over_link(const std::function<void()>& arrive) {
        if (chance(random, link_.loss_ratio)) return;
        for (int copies = chance(random, link_.duplicate_ratio) ? 2 : 1; copies > 0; --copies) {
            const auto jitter_ns = static_cast<std::int64_t>(below(random, link_.jitter_ns + 1));
            at(now_ns_ + 10'000 + jitter_ns, arrive);
        }
    }

    void poll(std::size_t n) {
        Bytes packet(packet_bytes(lanes_));
        while (begun_[n] && engines_[n].poll_packet(now_ns_, packet.data()))
            over_link([this, n, packet] { at_switch(static_cast<std::uint16_t>(n), packet); });
        const std::int64_t next_ns = engines_[n].next_time_ns();
        if (begun_[n] && !engines_[n].done() && next_ns != INT64_MAX)
            at(std::max(next_ns, now_ns_ + 1), [this, n, next_ns] {
                if (engines_[n].next_time_ns() == next_ns) poll(n);
            });
    }

    void at_switch(std::uint16_t port, const Bytes& packet) {
        const auto hub_port = static_cast<std::uint16_t>(engines_.size());
        const Bytes frame = frame_of(port, hub_port, packet);
        const AggregationSlots::Verdict verdict = slots_.handle(port, frame);
        const auto give = [&](std::uint16_t n) {
            slots_.address(verdict.job, n);
            const auto out = slots_.frame().subspan(aggregation_frame::payload_at);
            over_link([this, n, result = Bytes(out.begin(), out.end())] {
                engines_[n].handle_packet(result, now_ns_);
                poll(n);
            });
        };
        // What is not added or answered goes to the hub's address, where nobody is.
        if (verdict.whom == AggregationSlots::Whom::sender) give(port);
        if (verdict.whom == AggregationSlots::Whom::everyone)
            for (std::uint16_t n = 0; n < hub_port; ++n) give(n);
    }

    Link link_;
    std::uint32_t lanes_;
    std::vector<AggregationJob> jobs_;
    AggregationSlots slots_;
    std::vector<Worker> engines_;
    std::vector<bool> begun_;
    std::multimap<std::int64_t, std::function<void()>> events_;
    std::int64_t now_ns_ = 0;
};

std::vector<Integers> tasks_of(std::uint32_t blocks, std::uint32_t lanes, std::uint32_t workers,
                               std::uint32_t seed) {
    std::vector<Integers> tasks;
    for (std::uint32_t n = 0; n < workers; ++n) tasks.emplace_back(blocks, lanes, workers, n, seed);
    return tasks;
}

template <typename T>
T one_of(Random& random, std::initializer_list<T> values) {
    return values.begin()[below(random, values.size())];
}

}  // namespace

TEST_CASE("aggregation worker: over any network every block is the plain sum, taken once, and every task ends") {
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        const auto workers = one_of<std::uint32_t>(random, {1, 2, 3, 3, 5, 8, 32});
        const auto slots = one_of<std::uint16_t>(random, {2, 3, 4, 16, 100});
        const auto lanes = one_of<std::uint32_t>(random, {32, 32, 64});
        const Link link{.loss_ratio = one_of(random, {0.0, 0.01, 0.1, 0.3}),
                        .duplicate_ratio = one_of(random, {0.0, 0.1, 0.5}),
                        .jitter_ns = one_of(random, {std::int64_t{0}, ms / 10, 15 * ms})};
        Network network(seed, workers, slots, lanes, link);
        std::uint64_t position = below(random, 1000);
        std::deque<std::vector<Integers>> messages;  // late packets find the last one still there
        for (std::uint32_t message = 0; message < 3; ++message) {
            const auto blocks = one_of<std::uint32_t>(random, {1, 7, 33, 80});
            std::vector<Integers>& tasks = messages.emplace_back(tasks_of(blocks, lanes, workers, message));
            REQUIRE(network.run(tasks, position, 600'000 * ms));
            for (const Integers& task : tasks) {
                CHECK(task.wrong == 0);
                CHECK(task.taken() == std::vector<int>(blocks, 1));
            }
            position += blocks;
        }
    }
}

TEST_CASE("aggregation worker: a switch that restarts in mid-task makes no wrong sum") {
    int ended = 0;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        Network network(seed, 3, 16, 32, {.loss_ratio = 0.05, .duplicate_ratio = 0.2, .jitter_ns = ms});
        std::vector<Integers> tasks = tasks_of(200, 32, 3, 1);
        ended += network.run(tasks, 5, 5'000 * ms, 0.0005) ? 1 : 0;
        for (const Integers& task : tasks) {
            CHECK(task.wrong == 0);
            for (const int taken : task.taken()) CHECK(taken <= 1);
        }
    }
    CHECK(ended > 0);
    CHECK(ended < 60);
}

TEST_CASE("aggregation worker: a result that is not of a block in flight, or not as it has to be, is not taken") {
    constexpr std::uint32_t lanes = 32;
    Worker worker(
        {.job = job_number, .workers = 2, .worker = 0, .ranks = 2, .rank = 0, .slots = 4, .lanes = lanes});
    Integers task(9, lanes, 2, 0, 1);
    worker.begin(task, 1, 0, 0);
    Bytes packet(packet_bytes(lanes));
    REQUIRE(worker.poll_packet(0, packet.data()));
    Bytes sound = packet;
    sound[at_kind] = static_cast<std::uint8_t>(Kind::result);
    write32(sound.data() + at_bitmap, 3);
    sound[at_count] = 2;
    // Kind, job, another operation, slot, generation, bitmap, count, exponent, saturated lanes, magic, version.
    for (const std::size_t at : {at_kind, at_job, at_operation, at_slot, at_generation, at_bitmap, at_count,
                                 at_exponent, at_saturated, std::size_t{0}, at_version}) {
        CAPTURE(at);
        Bytes forged = sound;
        forged[at] ^= 4;
        worker.handle_packet(forged, 0);
    }
    worker.handle_packet(std::span(sound).first(sound.size() - 1), 0);
    CHECK(worker.counters().wrong_packets == 12);
    Bytes later = sound;  // of a block that was not sent yet
    write32(later.data() + at_block, 8);
    worker.handle_packet(later, 0);
    CHECK(worker.counters().late_results == 1);
    CHECK(task.taken() == std::vector<int>(9, 0));
    worker.handle_packet(sound, 0);
    worker.handle_packet(sound, 0);
    CHECK(task.taken()[0] == 1);
    CHECK(worker.counters().late_results == 2);
}

TEST_CASE("aggregation worker: it stands whatever comes, and takes no block twice") {
    constexpr std::uint32_t lanes = 32;
    Random random(1);
    for (int turn = 0; turn < 20; ++turn) {
        Worker worker(
            {.job = job_number, .workers = 3, .worker = 1, .ranks = 3, .rank = 1, .slots = 4, .lanes = lanes});
        Integers task(30, lanes, 3, 1, 0);
        worker.begin(task, 1, 0, 0);
        std::int64_t now_ns = 0;
        Bytes packet(packet_bytes(lanes)), sent(packet_bytes(lanes));
        for (int i = 0; i < 3000; ++i) {
            now_ns += static_cast<std::int64_t>(below(random, ms));
            while (worker.poll_packet(now_ns, sent.data())) {}
            packet = sent;
            packet[at_kind] = static_cast<std::uint8_t>(chance(random, 0.9) ? 2 : below(random, 256));
            write32(packet.data() + at_bitmap, one_of<std::uint32_t>(random, {7, 7, 7, 3, 0, UINT32_MAX}));
            packet[at_count] = static_cast<std::uint8_t>(chance(random, 0.9) ? 3 : below(random, 256));
            const auto block = one_of<std::uint32_t>(random, {0, 1, 2, 3, 9, 29, 30, UINT32_MAX});
            write32(packet.data() + at_message, one_of<std::uint32_t>(random, {1, 1, 1, 0, 2, UINT32_MAX}));
            write32(packet.data() + at_block, block);
            write16(packet.data() + at_slot, block % 4);
            packet[at_exponent] = static_cast<std::uint8_t>(block);
            if (chance(random, 0.2)) packet[below(random, packet.size())] ^= static_cast<std::uint8_t>(random());
            worker.handle_packet(
                std::span(packet).first(chance(random, 0.95) ? packet.size() : below(random, 164)), now_ns);
        }
        for (const int taken : task.taken()) CHECK(taken <= 1);
        CHECK(worker.counters().results > 0);
        CHECK(worker.sent() <= 30);
    }
}
