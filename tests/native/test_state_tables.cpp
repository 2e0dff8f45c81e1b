// tests/tables/states.txt holds every state machine as text, from which docs/states.md is made.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "collective/states.hpp"
#include "engine/incoming_id_states.hpp"
#include "engine/incoming_states.hpp"
#include "engine/outgoing_states.hpp"
#include "engine/peer_states.hpp"
#include "support/native/source_folder.hpp"

namespace dlcp {
namespace {

template <class... Machines>
std::string all_transition_lines() {
    return (transition_lines<Machines>() + ...);
}

TEST_CASE("state tables: the stored ones are those of the code") {
    const std::string path = test::source_folder() + "/tests/tables/states.txt";
    std::ifstream file(path);
    std::stringstream stored;
    stored << file.rdbuf();
    const std::string now = all_transition_lines<PeerStates, OutgoingStates, IncomingStates, IncomingIdStates,
                                                 OperationStates, InquiryStates, AbsenceStates, GroupStates>();
    INFO(path << " should hold:\n" << now);
    CHECK(stored.str() == now);
}

}  // namespace
}  // namespace dlcp
