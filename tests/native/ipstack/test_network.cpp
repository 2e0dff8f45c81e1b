// Random networks of interfaces on a virtual clock: loss, duplicates, delay, hosts that fall silent, come back, or come
// back with another card; cards that hear their groups alone, and switches that give a group to who has reported it.
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
        snoops_ = is_v6_ && dice_.chance(0.5);
        // Who says nothing at the start is not heard of by a switch that snoops until that asks.
        greeting_ = dice_.pick({Greeting::none, Greeting::announcement, Greeting::claim});
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
            if (snoops_ && now_ >= query_at_) query();
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
    // But for answers to the switch.
    std::uint64_t own_frames() const {
        std::uint64_t out = 0;
        for (const Host& host : hosts_)
            if (host.interface) {
                const InterfaceCounters& counters = host.interface->counters();
                out += counters.tx_own_frames - counters.tx_listener_report_frames;
            }
        return out;
    }
    std::uint64_t fingerprint() const { return fingerprint_; }
    std::size_t size() const { return hosts_.size(); }

private:
    enum class Greeting { none, announcement, claim };
    static constexpr Duration query_interval = seconds(2);

    struct Host {
        std::unique_ptr<Interface> interface;
        std::uint8_t cards = 0;  // that it has had
        Time started_at{0};
        Time silent_until{0};
        std::map<MacAddress, Time> groups;  // that the switch gives it, and until when
    };
    struct FrameInFlight {
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
        Host& host = hosts_[i];
        host.interface = std::make_unique<Interface>(config_of(i));
        host.started_at = now_;
        // What its last card has said does not come back to this one.
        std::erase_if(flying_, [&](const FrameInFlight& flight) { return flight.to == i; });
        if (greeting_ == Greeting::announcement) host.interface->announce(now_);
        if (greeting_ == Greeting::claim) host.interface->claim(now_);
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
        if (snoops_ && snoop(from, frame)) return;
        for (std::size_t to = 0; to < hosts_.size(); ++to) {
            if (to == from && !(reflects_ && (frame[0] & 1) != 0)) continue;
            if (snoops_ && !is_given(to, frame)) continue;
            if (hosts_[from].silent_until > now_ || hosts_[to].silent_until > now_ || dice_.chance(loss_))
                continue;
            for (int copies = dice_.chance(duplicates_) ? 2 : 1; copies > 0; --copies)
                flying_.push_back({to, frame});
        }
    }
    // Reports go no further (RFC 4541, 3); whether it is one. They may be lost as all else.
    bool snoop(std::size_t from, const Frame& frame) {
        const std::size_t ip = vlan_ != 0 ? 18 : 14;
        if (frame.size() < ip + 72 || frame[ip - 1] != 0xdd || frame[ip + 6] != protocol_hop_by_hop) return false;
        const std::uint8_t type = frame[ip + 48];
        if (type != 131 && type != 143) return false;
        if (hosts_[from].silent_until > now_ || dice_.chance(loss_)) return true;
        const IpAddress group = ip_at(&frame[ip + 48 + (type == 131 ? 8 : 12)], true);
        hosts_[from].groups[multicast_mac(group)] = now_ + query_interval * 2 + seconds(1);
        return true;
    }
    bool is_given(std::size_t to, const Frame& frame) const {
        MacAddress mac;
        std::copy_n(frame.begin(), mac.size(), mac.begin());
        if ((mac[0] & 1) == 0 || mac == multicast_mac(all_nodes_group)) return true;
        const auto group = hosts_[to].groups.find(mac);
        return group != hosts_[to].groups.end() && group->second > now_;
    }
    // To all, now in one version and now in the other.
    void query() {
        query_at_ = now_ + query_interval;
        InterfaceConfig router = config_of_host(99, true);
        router.address = *parse_ip("fe80::63");
        Frame message(dice_.chance(0.1) ? 24 : 28);
        message[0] = mld_query;
        message[4] = 1;  // answers within 256 ms
        Frame frame = query_frame(router, all_nodes_group, message);
        if (vlan_ != 0) {
            const std::uint8_t tag[] = {0x81, 0, 0, static_cast<std::uint8_t>(vlan_)};
            frame.insert(frame.begin() + 12, tag, tag + 4);
        }
        for (std::size_t to = 0; to < hosts_.size(); ++to)
            if (hosts_[to].silent_until <= now_ && !dice_.chance(loss_)) flying_.push_back({to, frame});
    }
    void deliver() {
        // Answers fly with the next turn, so that questions cross.
        std::vector<FrameInFlight> flying;
        flying.swap(flying_);
        for (std::size_t left = flying.size(); left > 0; --left) {
            const std::size_t pick = left - 1 - dice_.below(std::min<std::size_t>(left, 3));
            const FrameInFlight flight = flying[pick];
            flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(pick));
            for (const std::uint8_t byte : flight.frame) fingerprint_ = (fingerprint_ ^ byte) * 0x100000001b3ULL;
            Interface* const interface = hosts_[flight.to].interface.get();
            if (interface != nullptr && card_hears(*interface, flight.frame))
                receive(*interface, now_, flight.frame);
        }
    }

    Dice dice_;
    bool is_v6_ = false, snoops_ = false, reflects_ = false;
    Greeting greeting_ = Greeting::none;
    Time query_at_{0};
    std::uint16_t vlan_ = 0;
    double loss_ = 0, duplicates_ = 0;
    Time now_{1};
    std::vector<Host> hosts_;
    std::vector<FrameInFlight> flying_;
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
