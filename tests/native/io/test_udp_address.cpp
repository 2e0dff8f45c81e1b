// Addresses as text and as sockaddr, for both families.
#include <doctest/doctest.h>

#include <string>

#include "io/udp_address.hpp"

namespace dlcp::udp {
namespace {

dlcp_address resolved(const char* text, int family = AF_UNSPEC) {
    dlcp_address out{};
    REQUIRE(resolve_endpoint(text, family, out, {nullptr, 0}) == 0);
    return out;
}

std::string refusal(const char* text, int family = AF_UNSPEC) {
    dlcp_address out{};
    char error[256] = "";
    CHECK(resolve_endpoint(text, family, out, {error, sizeof error}) < 0);
    return error;
}

}  // namespace

TEST_CASE("udp address: text to address and back") {
    for (const char* text : {"10.0.0.1:7000", "[::1]:1", "[fd00::1:2]:65535", "255.255.255.255:9"})
        CHECK(format_address(resolved(text)) == text);
    CHECK(format_host(resolved("[fd00::1]:7000")) == "fd00::1");
    CHECK(port_of(resolved("10.0.0.1:7000")) == 7000);
    CHECK(family_of(resolved("10.0.0.1:7000")) == AF_INET);
    CHECK(family_of(resolved("[::1]:7000")) == AF_INET6);
}

TEST_CASE("udp address: neither family, or a length that is not its family's, is none") {
    dlcp_address none{};
    CHECK(family_of(none) == AF_UNSPEC);
    CHECK(port_of(none) == 0);
    dlcp_address cut = resolved("10.0.0.1:7000");
    cut.length = 8;
    CHECK(family_of(cut) == AF_UNSPEC);
}

TEST_CASE("udp address: the port is at one place in both families") {
    for (const char* text : {"10.0.0.1:7000", "[::1]:7000"}) {
        dlcp_address address = resolved(text);
        set_port(address, 258);
        CHECK(port_of(address) == 258);
    }
}

TEST_CASE("udp address: loopback and wildcard") {
    for (const char* text : {"127.0.0.1:1", "127.255.0.1:1", "[::1]:1"}) CHECK(is_loopback(resolved(text)));
    for (const char* text : {"128.0.0.1:1", "126.0.0.1:1", "[::2]:1", "0.0.0.0:1"})
        CHECK_FALSE(is_loopback(resolved(text)));
    for (const char* text : {"0.0.0.0:1", "[::]:1"}) CHECK(is_wildcard(resolved(text)));
    CHECK_FALSE(is_wildcard(resolved("0.0.0.1:1")));
}

TEST_CASE("udp address: what is no address of the family is refused with a sentence that has it") {
    for (const char* text : {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:70000", "10.0.0.1:-1", "[::1:7000", ":7000"}) {
        CAPTURE(text);
        CHECK(refusal(text).find(text) != std::string::npos);
    }
    CHECK_FALSE(refusal("10.0.0.1:7000", AF_INET6).empty());
    CHECK_FALSE(refusal("[::1]:7000", AF_INET).empty());
}

TEST_CASE("udp address: all of 127/8 belongs to the loopback interface, a stranger's address to none") {
    const auto interfaces = list_interfaces();
    const Interface* const owner = find_owner(interfaces, resolved("127.9.9.9:1"));
    REQUIRE(owner != nullptr);
    CHECK(owner->loopback);
    CHECK(find_owner(interfaces, resolved("192.0.2.77:1")) == nullptr);
    CHECK(describe(interfaces).find(owner->name + " (127.0.0.1") != std::string::npos);
}

}  // namespace dlcp::udp
