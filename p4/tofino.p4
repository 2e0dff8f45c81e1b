// The switch of dlcp for a Tofino (architecture TNA): the order in which a packet meets the blocks.
//
// The decision to drop is the traffic manager's, at enqueue: ingress says queue and colour, and each queue has a limit
// for each colour (BF Runtime table tf1.tm.queue.color; dlcp/switch/tofino.py writes them). So no packet that is
// dropped has taken place in a queue, and no register has to follow depths. Marks are set at egress.
//
// Not here: trimming. A Tofino can cut a packet only as a mirror copy, which goes to a port that its session fixes,
// after the original was dropped or deflected; that takes a session per port and a second pass through the traffic
// manager, and was not tried. Packets that a policy would trim are dropped, by colour. Nor IP routing, TTL,
// `adaptive`.
//
// Checked against the architecture's own include files, not run: p4/tofino.md says how far.
#include <core.p4>
#include <tna.p4>

#include "blocks/headers.p4"
#include "blocks/tofino_classify.p4"
#include "blocks/tofino_forward.p4"
#include "blocks/tofino_mark.p4"
#include "blocks/tofino_metadata.p4"
#include "blocks/tofino_parser.p4"

control TofinoIngress(inout headers_t headers, inout ingress_t meta, in ingress_intrinsic_metadata_t intrinsic,
                      in ingress_intrinsic_metadata_from_parser_t from_parser,
                      inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                      inout ingress_intrinsic_metadata_for_tm_t manager) {
    TofinoClassify() classify;
    TofinoColour() colour;
    TofinoForward() forward;

    apply {
        classify.apply(headers, meta);
        colour.apply(meta, manager);
        forward.apply(headers, meta, intrinsic, for_deparser, manager);
    }
}

control TofinoEgress(inout headers_t headers, inout egress_t meta, in egress_intrinsic_metadata_t intrinsic,
                     in egress_intrinsic_metadata_from_parser_t from_parser,
                     inout egress_intrinsic_metadata_for_deparser_t for_deparser,
                     inout egress_intrinsic_metadata_for_output_port_t for_output_port) {
    TofinoMark() mark;

    apply {
        mark.apply(headers, meta, intrinsic);
    }
}

Pipeline(TofinoIngressParser(), TofinoIngress(), TofinoIngressDeparser(), TofinoEgressParser(), TofinoEgress(),
         TofinoEgressDeparser()) pipe;

Switch(pipe) main;
