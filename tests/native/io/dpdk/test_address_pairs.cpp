// Which of the ports of the dpdk driver a peer is reached by, where ports have addresses of both families.
#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "dpdk_ports.hpp"

using namespace dlcp::test;

TEST_CASE("dpdk: ports of either family share the paths, and a peer with one of them is reached by that") {
    NEEDS_DPDK;
    for (const bool prefixes : {true, false}) {
        CAPTURE(prefixes);
        const std::string bits4 = prefixes ? "/24" : "", bits6 = prefixes ? "/64" : "";
        const Io sender(at(4, "port=net_memif6@fd08::1" + bits6, "10.9.0.1" + bits4, 8));
        const Io receiver(at(5, "port=net_memif7@fd08::2" + bits6, "10.9.0.2" + bits4, 8));
        CHECK(contains(receiver.text(), "+dpdk:[fd08::2]:"));
        const dlcp_address to = join(sender, receiver, 8);
        std::vector<Outgoing> outgoing;
        for (std::uint16_t path = 0; path < 8; ++path) append(outgoing, make_run(path, 8, 900, path, 0));
        CHECK(sender.send(to, outgoing) == 64);
        const std::vector<Incoming> incoming = receiver.receive();
        check_arrived(outgoing, incoming, false);
        std::map<bool, int> by_v6;
        for (const Incoming& packet : incoming) ++by_v6[contains(receiver.text_of(packet.source), "[fd08::1]:")];
        CHECK(by_v6 == std::map<bool, int>{{false, 32}, {true, 32}});

        // A peer that has one family alone.
        for (const std::string& only : {std::string("10.9.0.2:7000"), std::string("[fd08::2]:7000")}) {
            const dlcp_address peer = sender.resolve(only);
            CHECK(sender.text_of(peer) == only);
            CHECK(sender.send(peer, {{.head = "one", .path = 0}, {.head = "other", .path = 1}}) == 2);
        }
    }
}

TEST_CASE("dpdk: a peer's addresses of a family that we have not are left out") {
    NEEDS_DPDK;
    const Io sender(at(4, "", "10.9.0.1/24"));
    const Io receiver(at(5, "port=net_memif7@fd08::2/64", "10.9.0.2/24"));
    const dlcp_address to = join(sender, receiver);
    CHECK(sender.send(to, {{.head = "found"}}) == 1);
    CHECK(receiver.receive().size() == 1);
}

TEST_CASE("dpdk: a peer that was heard before it was named has all its address pairs once it is") {
    NEEDS_DPDK;
    const Io speaker(at(4, "port=net_memif6@10.8.0.1/24", "10.9.0.1/24", 8));
    const Io listener(at(5, "port=net_memif7@10.8.0.2/24", "10.9.0.2/24", 8));
    // Both ports are connected; the listener knows nobody by name.
    const dlcp_address to = speaker.resolve(listener.text());
    const auto limit = std::chrono::steady_clock::now() + patience;
    std::map<bool, dlcp_address> heard;  // by its second port
    while (heard.size() < 2) {
        REQUIRE(std::chrono::steady_clock::now() < limit);
        speaker.send(to, {{.head = "hello", .path = 0}, {.head = "hello", .path = 1}});
        dpdk.wait(speaker, 1'000'000);
        speaker.receive();
        for (const Incoming& packet : listener.receive())
            heard[contains(listener.text_of(packet.source), "10.8.0.1:")] = packet.source;
    }
    // One per path. What is sent before the listener has seen a link is lost: again then.
    int tries = 0;
    const auto answer = [&](const dlcp_address& source) {
        std::vector<Outgoing> outgoing(8);
        do {
            REQUIRE(std::chrono::steady_clock::now() < limit);
            ++tries;
            for (std::uint16_t path = 0; path < 8; ++path)
                outgoing[path] = {.head = "answer " + std::to_string(tries), .path = path};
            dpdk.wait(listener, 1'000'000);
        } while (listener.send(source, outgoing) < 8);
        std::map<bool, int> by_second;
        for (int arrived = 0; arrived < 8;) {
            REQUIRE(std::chrono::steady_clock::now() < limit);
            dpdk.wait(speaker, 50'000);
            dpdk.wait(listener, 50'000);  // it may have to ask where the speaker is
            listener.receive();
            for (const Incoming& packet : speaker.receive()) {
                if (packet.datagram != outgoing[0].head) continue;
                ++by_second[contains(speaker.text_of(packet.source), "10.8.0.2:")];
                ++arrived;
            }
        }
        return by_second;
    };
    CHECK(answer(heard[false]) == std::map<bool, int>{{false, 8}});
    CHECK(answer(heard[true]) == std::map<bool, int>{{true, 8}});
    listener.resolve(speaker.text());
    CHECK(answer(heard[false]) == std::map<bool, int>{{false, 4}, {true, 4}});
    CHECK(answer(heard[true]) == std::map<bool, int>{{false, 4}, {true, 4}});
    // Named again, with the first of its addresses alone: by whichever it is known, that is where it is now.
    listener.resolve(speaker.text().substr(0, speaker.text().find('+')));
    CHECK(answer(heard[false]) == std::map<bool, int>{{false, 8}});
    CHECK(answer(heard[true]) == std::map<bool, int>{{false, 8}});
}

TEST_CASE("dpdk: a port without a prefix is for the peer's address of its place, beside one with a prefix") {
    NEEDS_DPDK;
    const Io sender(at(4, "port=net_memif6@10.8.0.1", "10.9.0.1/24", 8));
    const Io receiver(at(5, "port=net_memif7@10.8.0.2", "10.9.0.2/24", 8));
    const dlcp_address to = join(sender, receiver, 8);
    std::vector<Outgoing> outgoing;
    for (std::uint16_t path = 0; path < 8; ++path) append(outgoing, make_run(path, 8, 900, path, 0));
    CHECK(sender.send(to, outgoing) == 64);
    const std::vector<Incoming> incoming = receiver.receive();
    check_arrived(outgoing, incoming, false);
    std::map<bool, int> by_second;
    for (const Incoming& packet : incoming) ++by_second[contains(receiver.text_of(packet.source), "10.8.0.1:")];
    CHECK(by_second == std::map<bool, int>{{false, 32}, {true, 32}});
}
