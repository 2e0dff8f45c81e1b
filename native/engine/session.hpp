// One incarnation of a pair of endpoints: everything that starts anew when the two meet, and ends when they part.
//
// Constructed when a session is established, destroyed when it ends; no field outlives it.
#pragma once

#include "engine/owed.hpp"
#include "engine/receiver_state.hpp"
#include "engine/sender_state.hpp"
#include "engine/session_keys.hpp"

namespace dlcp {

struct Session {
    SessionKeys keys;
    SenderState sender;
    ReceiverState receiver;
    Owed owed;
};

}  // namespace dlcp
