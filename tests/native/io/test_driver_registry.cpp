// Which driver a name means, and what is said of names that mean none.
#include "io/driver_registry.hpp"

#include <doctest/doctest.h>

#include <string>

#include "io/io_error.hpp"
#include "io/local_driver.hpp"
#include "io/runtime.hpp"
#include "io/udp_driver.hpp"

namespace dlcp {
namespace {

std::string refusal(const std::string& name) {
    try {
        find_driver(name);
    } catch (const IoError& error) {
        CHECK(error.kind == IoErrorKind::driver);
        return error.what();
    }
    FAIL("driver " << name << " was found");
    return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("driver registry: built-in drivers by name") {
    CHECK(&find_driver("udp") == dlcp_udp_driver());
    CHECK(&find_driver("local") == dlcp_local_driver());
    CHECK(&find_driver("local+udp") == dlcp_local_driver());
}

TEST_CASE("driver registry: what cannot be found is refused with what could") {
    CHECK(contains(refusal("absent"), "the drivers of dlcp are 'udp', 'local', 'dpdk' and 'xdp'"));
    CHECK(contains(refusal("local+absent"), "driver 'absent'"));
    CHECK(contains(refusal("Bad Name"), "lower-case letters"));
    CHECK(contains(refusal(""), "lower-case letters"));
    CHECK(contains(refusal("/absent.so"), "cannot load the plugin"));
    CHECK(contains(refusal("virtual"), "cannot load the plugin"));  // test support, not a driver that ships
}

TEST_CASE("driver registry: a library that is no driver is refused") {
    CHECK(contains(refusal("/proc/self/exe"), "driver '/proc/self/exe'"));
    CHECK(contains(refusal("libm.so.6/../libm.so.6"), "driver 'libm"));
}

TEST_CASE("driver registry: options of the driver within follow its name") {
    CHECK(driver_options_of("local+dpdk", "queues=2 -- --no-huge") == "inner=dpdk queues=2 -- --no-huge");
    CHECK(driver_options_of("local+udp", "") == "inner=udp");
    CHECK(driver_options_of("local", "ring_bytes=65536") == "ring_bytes=65536");
    CHECK(driver_options_of("udp", "") == "");
}

TEST_CASE("driver registry: shared memory goes around any driver") {
    RuntimeOptions left, right;
    left.driver = right.driver = "local+udp";
    right.engine.rank = 1;
    Runtime a(left), b(right);
    a.connect(1, b.local_address());
    REQUIRE(a.wait_established(1, seconds(60)));
    CHECK(a.statistics().io.channels == 1);
    left.driver_options = "queues=1";  // of the UDP driver, which takes none
    CHECK_THROWS_AS(Runtime{left}, IoError);
}

}  // namespace dlcp
