// The group of an IPv6 interface: who hears of it, when, and in which words.
#include "engine/bytes.hpp"
#include "ipstack_link.hpp"

namespace dlcp::ipstack {
namespace {

InterfaceConfig router() {
    InterfaceConfig config = config_of_host(9, true);
    config.address = *parse_ip("fe80::9");
    return config;
}
// Of MLDv2 with 28 bytes, of MLDv1 with 24.
Frame query_message(std::uint16_t delay_code, const IpAddress& group = {}, std::size_t bytes = 28,
                    std::uint8_t robustness = 2) {
    Frame message(std::max<std::size_t>(bytes, 28));
    message[0] = mld_query;
    wire::store16(&message[4], delay_code);
    std::copy(group.bytes.begin(), group.bytes.end(), &message[8]);
    message[24] = robustness;
    message.resize(bytes);
    return message;
}
Frame query(const Frame& message, const IpAddress& to = all_nodes_group) {
    return query_frame(router(), to, message);
}

struct Listener : Link {
    Listener() : Link(true) {}

    void hear(const Frame& frame) {
        REQUIRE(card_hears(own, frame));
        receive(own, now, frame);
    }
    // ICMPv6 types of the reports within this time, one step per deadline.
    std::vector<int> reports_within(Duration time) {
        std::vector<int> out;
        const Time end = now + time;
        for (;;) {
            for (const Frame& frame : all_frames(own))
                if (is_listener_report(frame)) out.push_back(frame[62]);
            if (own.next_deadline() > end) break;
            now = own.next_deadline();
            own.handle_timer(now);
            REQUIRE(own.next_deadline() > now);
        }
        now = end;
        return out;
    }
    IpAddress group() const { return solicited_node(config.address); }
};

using Reports = std::vector<int>;

}  // namespace

TEST_CASE("ipstack groups: an IPv6 interface hears all nodes and its solicited-node group, an IPv4 one none") {
    const Interface v6(config_of_host(1, true)), v4(config_of_host(1, false));
    REQUIRE(v6.groups().size() == 2);
    CHECK(v6.groups()[0] == MacAddress{0x33, 0x33, 0, 0, 0, 1});
    CHECK(v6.groups()[1] == MacAddress{0x33, 0x33, 0xff, 0, 0, 1});
    CHECK(v4.groups().empty());
}

TEST_CASE("ipstack groups: a card that takes its groups alone hears of a conflict") {
    Link link(true);
    InterfaceConfig thief = link.config;
    thief.mac = mac(66);
    link.peer = std::make_unique<Interface>(thief);
    link.peer->announce(link.now);
    link.exchange();
    CHECK(link.events() == std::vector{Kind::address_taken});
}

TEST_CASE("ipstack mld: a group is reported twice within a second, and again when a link is back") {
    Listener listener;
    for (int times = 0; times < 3; ++times) {
        listener.own.announce(listener.now);
        CHECK(listener.reports_within(nanoseconds(0)) == Reports{143});
        CHECK(listener.reports_within(seconds(1)) == Reports{143});
        CHECK(listener.reports_within(seconds(1000)).empty());
    }
    CHECK(listener.own.counters().tx_listener_report_frames == 6);
}

TEST_CASE("ipstack mld: hosts spread what they say, each alike in every run") {
    std::vector<std::int64_t> at;
    for (unsigned host = 1; host <= 50; ++host) {
        const auto second = [&] {
            Interface interface(config_of_host(host, true));
            interface.announce({0});
            return interface.next_deadline().value;
        };
        at.push_back(second());
        CHECK(second() == at.back());
        CHECK(at.back() > 0);
        CHECK(at.back() <= seconds(1).value);
    }
    std::sort(at.begin(), at.end());
    CHECK(std::adjacent_find(at.begin(), at.end()) == at.end());
    CHECK(at.front() < milliseconds(200).value);
    CHECK(at.back() > milliseconds(800).value);
}

TEST_CASE("ipstack mld: queries for all and for our group are answered once, in time; for others not") {
    Listener listener;
    listener.hear(query(query_message(1000)));
    CHECK(listener.reports_within(milliseconds(1000)) == Reports{143});
    listener.hear(query(query_message(500, listener.group()), listener.group()));
    CHECK(listener.reports_within(milliseconds(500)) == Reports{143});
    // Many are one, at the first time that one of them sets.
    for (int i = 0; i < 20; ++i) listener.hear(query(query_message(10'000)));
    listener.hear(query(query_message(1)));
    CHECK(listener.reports_within(milliseconds(1)) == Reports{143});
    // To be answered at once; a delay of more than half a minute; sources.
    listener.hear(query(query_message(0)));
    CHECK(listener.reports_within(nanoseconds(1)) == Reports{143});
    listener.hear(query(query_message(0x8000)));
    CHECK(listener.reports_within(milliseconds(0x1000 << 3)) == Reports{143});
    Frame sources = query_message(100, listener.group(), 28 + 32);
    sources[27] = 2;
    listener.hear(query(sources));
    CHECK(listener.reports_within(milliseconds(100)) == Reports{143});
    CHECK(listener.own.counters().rx_listener_query_frames == 26);
    // Of another group whose frames come here too, and of all nodes, which nobody reports.
    listener.hear(query(query_message(100, *parse_ip("ff05::1:ff00:1"))));
    listener.hear(query(query_message(100, all_nodes_group)));
    CHECK(listener.reports_within(seconds(10)).empty());
    CHECK(listener.own.counters().rx_listener_query_frames == 28);
    CHECK(listener.own.counters().rx_malformed_frames == 0);
}

TEST_CASE("ipstack mld: while somebody asks in MLDv1, answers are of MLDv1") {
    Listener listener;
    listener.hear(query(query_message(1000, {}, 24)));
    CHECK(listener.reports_within(seconds(1)) == Reports{131});
    listener.hear(query(query_message(1000)));  // MLDv2's querier does not end it
    CHECK(listener.reports_within(seconds(1)) == Reports{131});
    listener.own.announce(listener.now);
    CHECK(listener.reports_within(seconds(1)) == Reports{131, 131});
    // Two intervals of queries, and the delay of the last answer (RFC 3810, 9.12).
    CHECK(listener.reports_within(seconds(2 * 125 + 1 - 4)).empty());
    listener.hear(query(query_message(1000)));
    CHECK(listener.reports_within(seconds(1)).size() == 1);
    listener.reports_within(seconds(1));
    listener.hear(query(query_message(1000)));
    CHECK(listener.reports_within(seconds(1)) == Reports{143});
}

TEST_CASE("ipstack mld: a querier's robustness says how often a change is told") {
    Listener listener;
    listener.hear(query(query_message(0, {}, 28, 5)));
    listener.reports_within(seconds(1));
    listener.own.announce(listener.now);
    CHECK(listener.reports_within(seconds(10)).size() == 5);
    listener.hear(query(query_message(0, {}, 28, 0)));
    listener.reports_within(seconds(1));
    listener.own.announce(listener.now);
    CHECK(listener.reports_within(seconds(10)).size() == 2);
}

TEST_CASE("ipstack mld: a report comes from a link-local address that is ours, or from nobody") {
    const auto source_of = [](const char* address, bool is_claimed) {
        InterfaceConfig config = config_of_host(1, true);
        config.address = *parse_ip(address);
        Interface interface(config);
        is_claimed ? interface.claim({0}) : interface.announce({0});
        const Frame frame = next_frame(interface);
        REQUIRE(is_listener_report(frame));
        return ip_at(frame.data() + 22, true);
    };
    CHECK(is_unspecified(source_of("fd00::1", false)));
    CHECK(source_of("fe80::1", false) == *parse_ip("fe80::1"));
    CHECK(is_unspecified(source_of("fe80::1", true)));  // not known to be ours yet
}

TEST_CASE("ipstack mld: queries that are forged or broken are counted and not answered") {
    Listener listener;
    const InterfaceCounters& counters = listener.own.counters();
    std::uint64_t malformed = 0;
    const auto refused = [&](const Frame& frame) {
        receive(listener.own, listener.now, frame);
        CHECK(counters.rx_malformed_frames == ++malformed);
    };
    const Frame good = query(query_message(0));
    const auto changed = [&](std::size_t at, std::uint8_t value) {
        Frame frame = good;
        frame[at] = value;
        return frame;
    };
    refused(changed(14 + 7, 2));  // hop limit
    InterfaceConfig far = router();
    far.address = *parse_ip("fd00::9");
    refused(query_frame(far, all_nodes_group, query_message(0)));
    for (const std::size_t bytes : {8, 23, 25, 27}) refused(query(query_message(0, {}, bytes)));
    refused(query(query_message(0, *parse_ip("fd00::1"))));
    Frame sources = query_message(0, {}, 28 + 16);
    sources[27] = 2;
    refused(query(sources));
    refused(changed(54 + 1, 9));          // a header longer than the packet
    refused(changed(54 + 3, 200));        // an option longer than the header
    refused(changed(54 + 2, 6));          // no alert
    refused(changed(54 + 5, 1));          // another alert
    refused(query(Frame(4, mld_query)));  // too short
    Frame plain = icmp_frame(router(), all_nodes_group, multicast_mac(all_nodes_group), query_message(0), 1);
    receive(listener.own, listener.now, plain);
    CHECK(counters.rx_other_protocol_frames == 1);
    receive(listener.own, listener.now, changed(54, 17));  // no ICMPv6
    CHECK(counters.rx_other_protocol_frames == 2);
    receive(listener.own, listener.now, changed(good.size() - 1, 1));
    CHECK(counters.rx_bad_checksum_frames == 1);
    CHECK(counters.rx_listener_query_frames == 0);
    CHECK(listener.own.next_deadline() == time_never);
    // Padding before the alert is none of our concern.
    Frame padded = good;
    const std::uint8_t header[] = {58, 1, 1, 2, 0, 0, 0, 5, 2, 0, 0, 30, 1, 9, 0, 0};
    padded.erase(padded.begin() + 54, padded.begin() + 62);
    padded.insert(padded.begin() + 54, header, header + 16);
    wire::store16(&padded[18], 28 + 16);
    receive(listener.own, listener.now, padded);
    CHECK(counters.rx_listener_query_frames == 1);
    CHECK(listener.reports_within(milliseconds(1)) == Reports{143});
}

}  // namespace dlcp::ipstack
