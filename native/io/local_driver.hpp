// The driver "local": shared memory to the endpoints of this host, UDP to all others.
//
// It holds a UDP driver and speaks for it. Its address in text is the UDP address and, behind a "+", where the endpoint
// is to be found in shared memory: "10.0.0.1:4711+shm:HOST/NAME". resolve() opens a channel (shm_channel.hpp) if that
// is this host, and else answers the UDP address: also if the endpoint has gone, or is another user's. An endpoint that
// opens a channel here is known by the same address from its first packet on.
//
// One reader per direction and one thread per driver: rx hands out packets where they lie in the ring, tx_put copies a
// packet once, from the caller's memory into the ring. What does not fit is lost locally, as with UDP; the engine keeps
// less in flight than `channel_buffer_bytes`, which any mix of packets fits in.
//
// Two endpoints that open a channel to each other at once have two. The one whose name is smaller sends through the one
// that it opened; the other sends through that as well once it has it, and gives up its own.
//
// What it does not do: watch over silence (the engine does), or tell the engine of congestion (there is none).
#pragma once

#include "io/io_table.h"

// `extra`: empty, or "ring_bytes=N", a power of two from 65536 to 67108864: the memory of one direction of a channel.
const dlcp_io_table* dlcp_local_driver();
