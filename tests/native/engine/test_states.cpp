// The engine's state machines: each transition, and that nothing else is one. The tables as text are stored in
// tests/tables/engine_states.txt, from which drawings are made.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "engine/incoming_id_states.hpp"
#include "engine/incoming_states.hpp"
#include "engine/outgoing_states.hpp"
#include "engine/peer_states.hpp"
#include "support/native/source_folder.hpp"
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

TEST_CASE("states: the stored tables are those of the engine") {
    const std::string path = test::source_folder() + "/tests/tables/engine_states.txt";
    std::ifstream file(path);
    std::stringstream stored;
    stored << file.rdbuf();
    const std::string now = transition_lines<PeerStates>() + transition_lines<OutgoingStates>() +
                            transition_lines<IncomingStates>() + transition_lines<IncomingIdStates>();
    INFO(path << " should hold:\n" << now);
    CHECK(stored.str() == now);
}

}  // namespace
}  // namespace dlcp
