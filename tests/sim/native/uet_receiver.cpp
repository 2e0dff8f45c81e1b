// UetReceiver: what has come of a flow, and the bits that an acknowledgement carries.
#include "sim/core/transports/uet_receiver.hpp"

#include <doctest/doctest.h>

namespace dlcp::sim {
namespace {

TEST_CASE("uet receiver: the cumulative number is the first that is missing") {
    UetReceiver receiver(130);
    for (std::uint32_t number = 1; number < 130; ++number) receiver.take(number);
    CHECK(receiver.cumulative() == 0);
    CHECK_FALSE(receiver.complete());
    receiver.take(0);
    CHECK(receiver.cumulative() == 130);
    CHECK(receiver.complete());
}

TEST_CASE("uet receiver: bits begin at any number and end with the flow") {
    UetReceiver receiver(70);
    receiver.take(63);
    receiver.take(65);
    receiver.take(69);
    CHECK(receiver.bits_from(63) == 0b1000101);
    CHECK(receiver.bits_from(65) == 0b10001);
    CHECK(receiver.bits_from(70) == 0);
}

}  // namespace
}  // namespace dlcp::sim
