// The engine's state machines: each transition, and that nothing else is one.
#include <doctest/doctest.h>

#include "engine/incoming_id_states.hpp"
#include "engine/incoming_states.hpp"
#include "engine/outgoing_states.hpp"
#include "engine/peer_states.hpp"
#include "support/native/state_walk.hpp"

namespace dlcp {
namespace {

TEST_CASE("states: a peer takes every transition of its table and no other") { test::walk<PeerStates>(); }
TEST_CASE("states: an outgoing message takes every transition of its table and no other") {
    test::walk<OutgoingStates>();
}
TEST_CASE("states: an incoming message takes every transition of its table and no other") {
    test::walk<IncomingStates>();
}
TEST_CASE("states: an incoming id takes every transition of its table and no other") {
    test::walk<IncomingIdStates>();
}

}  // namespace
}  // namespace dlcp
