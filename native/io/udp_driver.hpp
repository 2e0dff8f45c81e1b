// The UDP driver: unprivileged sockets with segmentation offload, built in and the default.
//
// Each path leaves from a source port of its own, and peers send to the advertised one (udp_sockets.hpp).
#pragma once

#include "io/io_table.h"

const dlcp_io_table* dlcp_udp_driver();
