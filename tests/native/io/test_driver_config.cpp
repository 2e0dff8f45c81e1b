// What every driver checks of its configuration.
#include "io/driver_config.hpp"

#include <doctest/doctest.h>

#include <string>

namespace dlcp {
namespace {

std::string refusal(const dlcp_io_config& config) {
    char text[256] = "";
    return check_config(config, {text, sizeof text}) == 0 ? "" : text;
}

}  // namespace

TEST_CASE("driver config: paths, datagram and flags are checked at their edges") {
    dlcp_io_config config{};
    CHECK(refusal(config) == "paths is 0: choose 1 to 64");
    config.paths = 65;
    CHECK(refusal(config) == "paths is 65: choose 1 to 64");
    for (const std::uint16_t paths : {1, 64}) {
        config.paths = paths;
        CHECK(refusal(config) == "");
    }
    config.max_datagram_bytes = 575;
    CHECK(refusal(config).find("choose 576 to 9152, or 0") != std::string::npos);
    config.max_datagram_bytes = 576;
    CHECK(refusal(config) == "");
    config.flags = DLCP_IO_NO_GSO | DLCP_IO_NO_GRO;
    CHECK(refusal(config) == "");
    config.flags = 4;
    CHECK(refusal(config).find("flags 0x4") != std::string::npos);
}

TEST_CASE("driver config: a drawn port leaves room for those of all paths") {
    for (int i = 0; i < 1000; ++i) {
        const unsigned port = draw_port(paths_max);
        CHECK(port >= 49152);
        CHECK(port + paths_max <= 65536);
    }
}

}  // namespace dlcp
