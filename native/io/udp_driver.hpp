// The UDP driver: unprivileged sockets with segmentation offload, built in and the default.
//
// Path i leaves from source port i: socket 0 is bound to the advertised port, the others to free ports of the same
// address, so that routers which hash ports spread them. Peers answer to the advertised port, but all are read.
#pragma once

#include "io/io_table.h"

const dlcp_io_table* dlcp_udp_driver();
