// Random networks of interfaces on a virtual clock: loss, duplicates, delay, hosts that fall silent, come back, or come
// back with another card.
//
// Invariants: who is there and has been for a while is resolved, at the MAC that it has; who is not is not for long;
// nobody sends frames of its own beyond a rate that follows from what it is asked; all tables keep their bounds.
#include <map>
#include <optional>

#include "ipstack_support.hpp"
#include "support/native/dice.hpp"

namespace dlcp::ipstack {
namespace {

using test::Dice;

class Network {
public:
    explicit Network(std::uint64_t seed) : dice_(seed) {
        is_v6_ = dice_.chance(0.5);
        vlan_ = static_cast<std::uint16_t>(dice_.chance(0.3) ? 42 : 0);
        loss_ = dice_.pick({0.0, 0.0, 0.05, 0.3});
        duplicates_ = dice_.pick({0.0, 0.2});
        announces_ = dice_.chance(0.5);
        reflects_ = dice_.chance(0.2);
        hosts_.resize(dice_.between(2, 5));
        for (std::size_t i = 0; i < hosts_.size(); ++i) start(i);
    }

    // Runs for a time in which each host sends to each other every few milliseconds, with changes or without.
    void run(Duration time, bool changes) {
        const Time end = now_ + time;
        while (now_ < end) {
            if (changes && dice_.chance(0.002)) change(dice_.below(hosts_.size()));
            for (std::size_t i = 0; i < hosts_.size(); ++i) turn(i);
            deliver();
            now_ = now_ + milliseconds(1) + dice_.up_to(milliseconds(20));
            for (Host& host : hosts_)
                if (host.interface && host.interface->next_deadline() <= now_) {
                    host.interface->handle_timer(now_);
                    REQUIRE(host.interface->next_deadline() > now_);
                }
        }
    }
    void heal() {
        loss_ = 0;
        for (std::size_t i = 0; i < hosts_.size(); ++i)
            if (!hosts_[i].interface) start(i);
    }
    // Stops one for good, so that it can be missed.
    void stop(std::size_t i) { hosts_[i].interface.reset(); }

    void check_resolved() {
        for (std::size_t i = 0; i < hosts_.size(); ++i)
            for (std::size_t j = 0; j < hosts_.size(); ++j) {
                if (i == j || !hosts_[i].interface) continue;
                CAPTURE(i);
                CAPTURE(j);
                const auto mac = hosts_[i].interface->mac_of(config_of(j).address);
                if (!hosts_[j].interface) {
                    REQUIRE_FALSE(mac);
                    continue;
                }
                REQUIRE(mac);
                REQUIRE(*mac == config_of(j).mac);
                const Destination* const destination = hosts_[i].interface->reach(now_, address_of(j));
                REQUIRE(destination->resolved);
                REQUIRE(std::equal(mac->begin(), mac->end(), destination->headers.begin()));
            }
    }
    void check_bounds() {
        for (const Host& host : hosts_) {
            if (!host.interface) continue;
            const InterfaceCounters& counters = host.interface->counters();
            // Each neighbour is asked some four times a second at the most, each question of theirs is answered, and
            // who we are is said; a duplicate doubles what comes in.
            const double seconds_up = 1 + static_cast<double>((now_ - host.started_at).value) * 1e-9;
            const double peers = static_cast<double>(hosts_.size() - 1);
            const double bound = seconds_up * 4 * peers * (1 + 2) + 10;
            REQUIRE(static_cast<double>(counters.tx_own_frames) < bound);
            REQUIRE(counters.tx_own_dropped_frames == 0);
            REQUIRE(counters.rx_malformed_frames == 0);
            REQUIRE(counters.rx_bad_checksum_frames == 0);
            REQUIRE(counters.address_conflict_frames == 0);
        }
    }
    std::uint64_t own_frames() const {
        std::uint64_t out = 0;
        for (const Host& host : hosts_)
            if (host.interface) out += host.interface->counters().tx_own_frames;
        return out;
    }
    std::uint64_t fingerprint() const { return fingerprint_; }
    std::size_t size() const { return hosts_.size(); }

private:
    struct Host {
        std::unique_ptr<Interface> interface;
        std::uint8_t cards = 0;  // that it has had
        Time started_at{0};
        Time silent_until{0};
    };
    struct Flight {
        std::size_t to;
        Frame frame;
    };

    InterfaceConfig config_of(std::size_t i) const {
        InterfaceConfig config = config_of_host(static_cast<unsigned>(i + 1), is_v6_, vlan_);
        config.mac[4] = hosts_[i].cards;
        return config;
    }
    UdpAddress address_of(std::size_t i) const { return {config_of(i).address, 7000}; }

    void start(std::size_t i) {
        hosts_[i].interface = std::make_unique<Interface>(config_of(i));
        hosts_[i].started_at = now_;
        if (announces_) hosts_[i].interface->announce(now_);
    }
    void change(std::size_t i) {
        Host& host = hosts_[i];
        if (!host.interface) return start(i);
        switch (dice_.below(4)) {
            case 0: host.interface.reset(); break;
            case 1: start(i); break;
            case 2:
                ++host.cards;
                start(i);
                break;
            case 3: host.silent_until = now_ + dice_.up_to(seconds(20)); break;
        }
    }
    void turn(std::size_t i) {
        Host& host = hosts_[i];
        if (!host.interface) return;
        for (std::size_t j = 0; j < hosts_.size(); ++j) {
            if (i == j || dice_.chance(0.5)) continue;
            const Destination* const destination = host.interface->reach(now_, address_of(j));
            REQUIRE(destination != nullptr);
            if (!destination->resolved) continue;
            put(i, datagram_to(*destination, {.source_port = 7000}, {1, 2, 3, 4}));
            host.interface->used(now_, *destination);
        }
        for (const Frame& frame : all_frames(*host.interface)) put(i, frame);
        while (host.interface->next_event()) {}
    }
    // A hub: everybody hears everything, and some switches give back what went to a group.
    void put(std::size_t from, const Frame& frame) {
        for (std::size_t to = 0; to < hosts_.size(); ++to) {
            if (to == from && !(reflects_ && (frame[0] & 1) != 0)) continue;
            if (hosts_[from].silent_until > now_ || hosts_[to].silent_until > now_ || dice_.chance(loss_))
                continue;
            for (int copies = dice_.chance(duplicates_) ? 2 : 1; copies > 0; --copies)
                flying_.push_back({to, frame});
        }
    }
    void deliver() {
        // Answers fly with the next turn, so that questions cross.
        std::vector<Flight> flying;
        flying.swap(flying_);
        for (std::size_t left = flying.size(); left > 0; --left) {
            const std::size_t pick = left - 1 - dice_.below(std::min<std::size_t>(left, 3));
            const Flight flight = flying[pick];
            flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(pick));
            for (const std::uint8_t byte : flight.frame) fingerprint_ = (fingerprint_ ^ byte) * 0x100000001b3ULL;
            if (hosts_[flight.to].interface) receive(*hosts_[flight.to].interface, now_, flight.frame);
        }
    }

    Dice dice_;
    bool is_v6_ = false, announces_ = false, reflects_ = false;
    std::uint16_t vlan_ = 0;
    double loss_ = 0, duplicates_ = 0;
    Time now_{1};
    std::vector<Host> hosts_;
    std::vector<Flight> flying_;
    std::uint64_t fingerprint_ = 0xcbf29ce484222325ULL;
};

}  // namespace

TEST_CASE("ipstack network: whoever is there is resolved, whatever happened before") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Network network(seed);
        network.run(seconds(10), true);
        network.check_bounds();
        network.heal();
        // Silence lasts up to twenty seconds; then one request a second is enough, and five for a MAC that is wrong.
        network.run(seconds(28), false);
        network.check_resolved();
        network.check_bounds();
        // Nothing changes: nobody asks any more, for datagrams show that all are there.
        const std::uint64_t frames = network.own_frames();
        network.run(seconds(40), false);
        CHECK(network.own_frames() == frames);
    }
}

TEST_CASE("ipstack network: who is gone is missed by all within a minute") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Network network(seed);
        network.run(seconds(3), false);
        network.heal();
        network.run(seconds(3), false);
        network.check_resolved();
        network.stop(0);
        network.run(seconds(45), false);
        network.check_resolved();
        network.check_bounds();
    }
}

TEST_CASE("ipstack network: the same seed, the same frames") {
    const auto trace = [](std::uint64_t seed) {
        Network network(seed);
        network.run(seconds(5), true);
        return network.fingerprint();
    };
    CHECK(trace(3) == trace(3));
    CHECK(trace(3) != trace(4));
}

}  // namespace dlcp::ipstack
