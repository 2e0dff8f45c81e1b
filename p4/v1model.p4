// The switch of dlcp for BMv2 (architecture v1model): the order in which a packet meets the blocks.
//
// The decision is that of native/switch, in bytes; golden vectors hold the two together (tests/p4). It is made at
// ingress, before the queue: a packet that egress drops has already taken place and time from a critical one. Queues
// are strict priority, 7 first (BMv2 from 1.15.1 on, with --priority-queues 8).
#include <core.p4>
#include <v1model.p4>

#include "blocks/admit.p4"
#include "blocks/checksum.p4"
#include "blocks/classify.p4"
#include "blocks/count.p4"
#include "blocks/depths.p4"
#include "blocks/forward.p4"
#include "blocks/headers.p4"
#include "blocks/mark.p4"
#include "blocks/metadata.p4"
#include "blocks/parser.p4"
#include "blocks/path_select.p4"
#include "blocks/read.p4"
#include "blocks/trim.p4"

control SwitchIngress(inout headers_t headers, inout metadata_t meta, inout standard_metadata_t standard) {
    Read() read;
    Classify() classify;
    Forward() forward;
    PathSelect() path_select;
    Admit() admit;
    Route() route;
    Mark() mark;
    Trim() trim;
    JoinQueue() join_queue;
    Count() count;

    apply {
        read.apply(headers, meta, standard);
        if (meta.kind == FrameKind.malformed) {
            meta.arrival = Arrival.malformed;
        } else {
            classify.apply(meta);
            forward.apply(headers, meta, standard);
            if (meta.arrival == Arrival.forwarded && meta.group != 0) {
                path_select.apply(meta);
            }
            // Registers have so many places.
            if (meta.arrival == Arrival.forwarded && (bit<32>)meta.port >= PORTS) {
                meta.arrival = Arrival.no_way;
            }
        }

        if (meta.arrival == Arrival.forwarded) {
            admit.apply(meta);
            if (meta.decision == Decision.kept || meta.decision == Decision.marked ||
                meta.decision == Decision.trimmed) {
                route.apply(headers, meta);
                if (meta.decision == Decision.marked) {
                    mark.apply(headers, meta);
                } else if (meta.decision == Decision.trimmed) {
                    trim.apply(headers, meta);
                }
                join_queue.apply(meta, standard);
            } else {
                mark_to_drop(standard);
            }
        } else if (meta.arrival == Arrival.flooded) {
            // To several ports, so no one queue decides: in its class, unmarked and uncut.
            standard.priority = meta.traffic_class;
        } else {
            mark_to_drop(standard);
        }
        count.apply(meta, standard);
    }
}

control SwitchEgress(inout headers_t headers, inout metadata_t meta, inout standard_metadata_t standard) {
    LeaveQueue() leave_queue;

    apply {
        leave_queue.apply(meta, standard);
    }
}

V1Switch(FrameParser(), VerifyIpv4(), SwitchIngress(), SwitchEgress(), UpdateIpv4(), FrameDeparser()) main;
