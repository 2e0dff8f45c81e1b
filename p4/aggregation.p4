// An aggregating switch (v1model, BMv2): workers' blocks of integers are added up on the way, and the sum is sent back.
//
// Design, packet and proofs: p4/aggregation.md. A worker addresses everything to the hub of its job; what the switch
// can take in, it answers in the hub's place, and the rest arrives. So a switch that has no room, no such job or no
// such program is only slower. Compiled with AGGREGATION_SLOTS slots for AGGREGATION_JOBS jobs.
#include <core.p4>
#include <v1model.p4>

#define AGGREGATION_SLOTS 2048
#define AGGREGATION_JOBS 64

#include "blocks/aggregation_headers.p4"
#include "blocks/aggregation_parser.p4"
#include "blocks/aggregation_checksum.p4"
#include "blocks/aggregation_sums.p4"
#include "blocks/aggregation_slots.p4"
#include "blocks/aggregation_admit.p4"
#include "blocks/aggregation_forward.p4"

control AggregationIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    AggregationAdmit() admit;
    AggregationForward() forward;

    action answer_sender() {
        standard.egress_spec = standard.ingress_port;
    }

    action answer_everyone() {
        standard.mcast_grp = meta.participant.group;
    }

    action keep() {
        mark_to_drop(standard);
    }

    apply {
        if (hdr.values.isValid()) {
            admit.apply(hdr, meta, standard);
        }
        if (meta.answer == ANSWER_SENDER) {
            answer_sender();
        } else if (meta.answer == ANSWER_EVERYONE) {
            answer_everyone();
        } else if (meta.aggregated == 1) {
            keep();
        } else {
            forward.apply(hdr, standard);
        }
    }
}

control AggregationEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    AggregationAddress() address;

    apply {
        address.apply(hdr, meta, standard);
    }
}

V1Switch(AggregationParser(), AggregationVerify(), AggregationIngress(), AggregationEgress(), AggregationUpdate(),
         AggregationDeparser()) main;
