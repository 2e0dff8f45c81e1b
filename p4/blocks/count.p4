// What became of every frame, in packets and bytes (as they arrived): once at arrival, and once more at its output
// queue.
//
// Both indices are concatenations, so that whoever reads them shifts and adds: metadata.p4 has the words.
#ifndef DLCP_COUNT_P4
#define DLCP_COUNT_P4

#include "metadata.p4"

control Count(in metadata_t meta, in standard_metadata_t standard) {
    @name(".arrivals")
    counter(512, CounterType.packets_and_bytes) arrivals;    // port of arrival (6 bits) ++ Arrival (3)
    @name(".decisions")
    counter(65536, CounterType.packets_and_bytes) decisions;  // port (6) ++ class (3) ++ level (4) ++ Decision (3)

    apply {
        arrivals.count((bit<32>)(standard.ingress_port[5:0] ++ (bit<3>)meta.arrival));
        if (meta.arrival == Arrival.forwarded) {
            decisions.count((bit<32>)(meta.port[5:0] ++ meta.traffic_class ++ meta.level ++ (bit<3>)meta.decision));
        }
    }
}

#endif
