// The options of the dpdk driver and EAL's arguments, as far as they need no DPDK.
#include <doctest/doctest.h>

#include <cerrno>
#include <string>

#include "io/dpdk/eal_arguments.hpp"
#include "io/dpdk/options.hpp"
#include "io/dpdk/port_blocks.hpp"

using namespace dlcp::dpdk;
using dlcp::ipstack::to_text;

namespace {

Options accepted(const std::string& extra, const char* bind_host = "10.0.0.1/24") {
    char text[1024] = "";
    Options options;
    const int rc = parse_options(extra.c_str(), bind_host, options, {text, sizeof text});
    INFO(extra, ": ", text);
    CHECK(rc == 0);
    return options;
}

// The sentence of a refusal; whose fault it is, is told by its errno.
std::string refusal(const std::string& extra, const char* bind_host = "10.0.0.1/24", int mistake = EDOM) {
    char text[1024] = "";
    Options options;
    CHECK(parse_options(extra.c_str(), bind_host, options, {text, sizeof text}) == -mistake);
    return text;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Arguments split(const std::string& text) {
    Arguments words;
    char error[256] = "";
    CHECK(split_arguments(text, words, {error, sizeof error}) == 0);
    return words;
}

std::string added(const std::string& arguments, const std::vector<unsigned>& cpus = {0, 1}) {
    return join_arguments(added_arguments(split(arguments), cpus));
}

std::string check(const std::string& arguments) {
    char error[512] = "";
    const int rc = check_arguments(split(arguments), {error, sizeof error});
    CHECK(rc == (error[0] == 0 ? 0 : -EDOM));
    return error;
}

}  // namespace

TEST_CASE("dpdk options: none are the only port at bind_host") {
    for (const char* bind_host :
         {"10.0.0.1", "10.0.0.1/24", "fd00::1", "[fd00::1]", "[fd00::1]/64", "fd00::1/64"}) {
        char text[256] = "";
        Options options;
        CHECK(parse_options(nullptr, bind_host, options, {text, sizeof text}) == 0);
        REQUIRE(options.ports.size() == 1);
        CHECK(options.ports[0].device == "");
        CHECK(contains(bind_host, to_text(options.ports[0].address)));
    }
    CHECK(accepted("", "10.0.0.1/24").ports[0].prefix_bits == 24);
    CHECK(accepted("", "[fd00::1]/64").ports[0].prefix_bits == 64);
    CHECK(accepted("", "10.0.0.1").ports[0].prefix_bits == 0);
    const Options options = accepted("");
    CHECK(options.queues == 1);
    CHECK(options.vlan == 0);
    CHECK(options.mtu_bytes == 0);
    CHECK(options.checksum == ChecksumMode::automatic);
    CHECK(options.payload == PayloadMode::automatic);
    CHECK(options.poll == PollMode::automatic);
    CHECK(!options.flow_isolation);
    CHECK(options.address_probe);
    CHECK(options.eal_arguments == "");
}

TEST_CASE("dpdk options: every one") {
    const Options options = accepted(
        "  port=0000:3b:00.0  port=net_memif0@10.1.0.1/16 gateway=10.0.0.254 gateway=10.1.0.254 "
        "neighbour=10.0.0.2@02:00:00:00:00:02 neighbour=10.1.0.2@02:00:00:00:00:03\tqueues=4 vlan=12 mtu=9000 "
        "checksum=software payload=gather poll=sleep flow_isolation=on address_probe=off -- --no-huge  -m 64 "
        "--vdev='net_null0' ");
    REQUIRE(options.ports.size() == 2);
    CHECK(options.ports[0].device == "0000:3b:00.0");
    CHECK(to_text(options.ports[0].address) == "10.0.0.1");
    CHECK(to_text(options.ports[0].gateway) == "10.0.0.254");
    CHECK(options.ports[1].device == "net_memif0");
    CHECK(to_text(options.ports[1].address) == "10.1.0.1");
    CHECK(options.ports[1].prefix_bits == 16);
    CHECK(to_text(options.ports[1].gateway) == "10.1.0.254");
    REQUIRE(options.neighbours.size() == 2);
    CHECK(to_text(options.neighbours[0].mac) == "02:00:00:00:00:02");
    CHECK(to_text(options.neighbours[1].ip) == "10.1.0.2");
    CHECK(options.queues == 4);
    CHECK(options.vlan == 12);
    CHECK(options.mtu_bytes == 9000);
    CHECK(options.checksum == ChecksumMode::software);
    CHECK(options.payload == PayloadMode::gather);
    CHECK(options.poll == PollMode::sleep);
    CHECK(options.flow_isolation);
    CHECK(!options.address_probe);
    CHECK(options.eal_arguments == "--no-huge  -m 64 --vdev='net_null0'");
}

TEST_CASE("dpdk options: zero is the default of a number, and edges are in") {
    CHECK(accepted("queues=0 vlan=0 mtu=0").queues == 1);
    CHECK(accepted("queues=64").queues == 64);
    CHECK(accepted("vlan=4094").vlan == 4094);
    CHECK(accepted("mtu=576").mtu_bytes == 576);
    CHECK(accepted("mtu=16000").mtu_bytes == 16000);
    for (const char* word :
         {"queues=65", "vlan=4095", "mtu=575", "mtu=16001", "queues=-1", "queues=x", "mtu=1500x"}) {
        CHECK(contains(refusal(word), word));
    }
    CHECK(contains(refusal("vlan=4095"), "1 to 4094, or 0: no tag"));
    CHECK(contains(refusal("mtu=1279", "fd00::1/64"), "1280"));
}

TEST_CASE("dpdk options: an unknown one is named with the nearest") {
    CHECK(contains(refusal("prot=net_null0"), "did you mean 'port='"));
    CHECK(contains(refusal("neighbor=10.0.0.2@02:00:00:00:00:02"), "did you mean 'neighbour='"));
    CHECK(contains(refusal("que=2"), "did you mean 'queues='"));
    CHECK(contains(refusal("flowisolation=on"), "did you mean 'flow_isolation='"));
    CHECK(contains(refusal("--vdev=net_null0"), "follow '--'"));
    CHECK(contains(refusal("port"), "needs a value"));
    CHECK(contains(refusal("port="), "needs a value"));
    CHECK(contains(refusal("checksum=hardware"), "one of auto, card, software, none"));
    CHECK(contains(refusal("flow_isolation=yes"), "one of on, off"));
    CHECK(contains(refusal("poll=spin poll=sleep"), "given before"));
}

TEST_CASE("dpdk options: addresses") {
    for (const char* text :
         {"0.0.0.0", "224.0.0.1", "127.0.0.1", "::", "::1", "ff02::1", "host.example", "10.0.0", ""}) {
        CHECK(!refusal("", text, EINVAL).empty());
    }
    CHECK(contains(refusal("", nullptr, EINVAL), "bind_host"));
    CHECK(contains(refusal("", "10.0.0.1/33", EINVAL), "0 to 32"));
    CHECK(contains(refusal("", "fd00::1/129", EINVAL), "0 to 128"));
    CHECK(contains(refusal("port=a@10.0.0.1/x"), "'x'"));
    CHECK(to_text(accepted("port=a@10.9.0.1", nullptr).ports[0].address) == "10.9.0.1");
    CHECK(to_text(accepted("port=a@[fd00::9]/64", "10.0.0.1").ports[0].address) == "fd00::9");
    CHECK(contains(refusal("port=a port=b"), "port=b@ADDRESS/PREFIX"));
    CHECK(contains(refusal("port=a port=a@10.1.0.1"), "twice"));
    CHECK(contains(refusal("port=3b:00.0 port=0000:3B:00.0@10.1.0.1"), "0000:3b:00.0 was given twice"));
    CHECK(accepted("port=3B:00.0").ports[0].device == "0000:3b:00.0");
    CHECK(accepted("port=net_memif0").ports[0].device == "net_memif0");
    for (const char* text : {"10.0.0.0/24", "10.0.0.255/24", "10.0.0.3/30", "10.255.255.255/8"}) {
        CHECK(contains(refusal("", text, EINVAL), "no host's address"));
        CHECK(contains(refusal(std::string("port=a@") + text), "no host's address"));
    }
    for (const char* text :
         {"10.0.0.0/31", "10.0.0.1/31", "10.0.0.255/32", "10.0.1.0/16", "10.0.0.255", "fd00::/64"})
        CHECK(accepted("", text).ports[0].address.present());
    CHECK(contains(refusal("gateway=10.0.0.255"), "no host's address"));
    CHECK(contains(refusal("port=a port=b@10.0.0.1"), "same address"));
    CHECK(contains(refusal("port=a port=@10.1.0.1"), "name"));
    CHECK(accepted("port=@10.9.0.1/24").ports[0].device == "");
}

TEST_CASE("dpdk options: a gateway is on the link of its port") {
    CHECK(to_text(accepted("gateway=10.0.0.254").ports[0].gateway) == "10.0.0.254");
    CHECK(to_text(accepted("gateway=fe80::1", "fd00::1/64").ports[0].gateway) == "fe80::1");
    CHECK(contains(refusal("gateway=10.0.1.1"), "not on the link of 10.0.0.1/24"));
    CHECK(contains(refusal("gateway=10.0.0.254", "10.0.0.1"), "bind_host=10.0.0.1/24"));
    CHECK(contains(refusal("gateway=10.0.0.1"), "own address"));
    CHECK(contains(refusal("gateway=fd00::2"), "family"));
    CHECK(contains(refusal("gateway=10.0.0.2 gateway=10.0.0.3"), "2 gateways for 1 ports"));
    CHECK(contains(refusal("gateway=nobody"), "gateway=nobody"));
    const Options one_for_all = accepted("port=a port=b@10.0.0.2/24 port=c@fd00::1/64 gateway=10.0.0.254");
    CHECK(to_text(one_for_all.ports[1].gateway) == "10.0.0.254");
    CHECK(!one_for_all.ports[2].gateway.present());
}

TEST_CASE("dpdk options: a neighbour is one station") {
    for (const char* value : {"10.0.0.2", "10.0.0.2@", "@02:00:00:00:00:02", "10.0.0.2@01:00:00:00:00:02",
                              "10.0.0.2@00:00:00:00:00:00", "224.0.0.1@02:00:00:00:00:02", "10.0.0.2@02:00"}) {
        CHECK(contains(refusal(std::string("neighbour=") + value), value));
    }
    CHECK(to_text(accepted("neighbour=[fd00::2]@02:00:00:00:00:02", "fd00::1").neighbours[0].ip) == "fd00::2");
    CHECK(contains(refusal("neighbour=fd00::2@02:00:00:00:00:02"), "of its family"));
    CHECK(
        contains(refusal("neighbour=10.0.0.2@02:00:00:00:00:02 neighbour=10.0.0.2@02:00:00:00:00:03"), "before"));
}

TEST_CASE("eal arguments: quoting is a shell's") {
    CHECK(split("") == Arguments{});
    CHECK(split(" a\tb \n c ") == Arguments{"a", "b", "c"});
    CHECK(split("--vdev='net_null0,x=a b' -m \"6 4\"") == Arguments{"--vdev=net_null0,x=a b", "-m", "6 4"});
    CHECK(split("'' a\\ b 'c\\d' \"e\\\"f\\\\g\\h\"") == Arguments{"", "a b", "c\\d", "e\"f\\g\\h"});
    for (const char* text : {"a 'b", "a \"b", "'"}) {
        Arguments words;
        char error[256] = "";
        CHECK(split_arguments(text, words, {error, sizeof error}) == -EDOM);
        CHECK(contains(error, text));
    }
    for (const Arguments& words : {Arguments{"a b", "", "it's", "\"", "\\", "plain"}, Arguments{}}) {
        CHECK(split(join_arguments(words)) == words);
    }
}

TEST_CASE("eal arguments: what is added") {
    CHECK(added("") == "--lcores=0@(0-1) --in-memory --no-telemetry");
    CHECK(added("", {0, 2, 3, 4, 9}) == "--lcores=0@(0,2-4,9) --in-memory --no-telemetry");
    CHECK(added("--no-huge") == "--lcores=0@(0-1) --no-shconf --no-telemetry");
    CHECK(added("-l 3 --telemetry") == "--in-memory");
    CHECK(added("-c f --no-telemetry --file-prefix x") == "");
    CHECK(added("--lcores 0 --huge-dir=/mnt --no-telemetry") == "");
    CHECK(added("--in-memory --main-lcore 1") == "--no-telemetry");
    CHECK(added("--no-huge --no-shconf -l0") == "--no-telemetry");
    // A value that looks like an option is none.
    CHECK(added("--vdev net_x,a=--in-memory -l 0 --no-telemetry") == "--in-memory");
}

TEST_CASE("eal arguments: what would end the process or belongs to nothing is refused") {
    CHECK(check("--no-huge -m 64 -l0 --vdev=net_null0 --vdev net_null1 -a 3b:00.0 -vn4") == "");
    CHECK(check("--coremask 3 -c3 --memory-size=64 -S 2 --remap-lcore-ids=4") == "");
    for (const char* unknown : {"--no-such-option", "--no-hug", "--=1", "--no-such=1", "-q"})
        CHECK(contains(check(std::string("--no-huge ") + unknown), std::string("unrecognized option '") + unknown));
    CHECK(contains(check("-h"), "-h would end the process"));
    CHECK(contains(check("--help"), "--help"));
    CHECK(contains(check("--log-level help"), "--log-level"));
    CHECK(contains(check("--log-level=help"), "--log-level"));
    CHECK(contains(check("--no-huge stray"), "'stray'"));
    CHECK(contains(check("-m"), "-m needs a value"));
    CHECK(contains(check("--vdev="), "--vdev= needs a value"));
    CHECK(contains(check("-m 64M"), "64M"));
}

TEST_CASE("dpdk flows: blocks hold the source ports of all paths and no other") {
    for (const std::uint16_t port : {80, 1024, 7000, 7001, 49152, 65500, 65535}) {
        for (const std::uint16_t paths : {1, 2, 3, 8, 63, 64}) {
            CAPTURE(port);
            CAPTURE(paths);
            const auto blocks = path_port_blocks(port, paths);
            CHECK(blocks.size() <= 13);
            for (std::uint32_t candidate = 0; candidate < 65536; ++candidate) {
                const auto wanted = static_cast<std::uint16_t>(candidate);
                unsigned held = 0;
                for (const PortBlock& block : blocks) held += block.holds(wanted);
                // Not CHECK each time: there are millions.
                if (held != (dlcp::ipstack::is_path_port(wanted, port, paths) ? 1 : 0)) FAIL(candidate);
            }
        }
    }
}
