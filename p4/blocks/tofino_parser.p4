// Takes a frame apart on a Tofino, at ingress and again at egress, and puts it together. The states are those of
// parser.p4, behind the chip's own metadata.
#ifndef TOFINO_PARSER_P4
#define TOFINO_PARSER_P4

#include "tofino_metadata.p4"

parser TofinoFrame(packet_in packet, out headers_t headers) {
    state start {
        packet.extract(headers.ethernet);
        transition select(headers.ethernet.ether_type) {
            ETHER_TYPE_IPV4: ipv4;
            ETHER_TYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(headers.ipv4);
        transition select(headers.ipv4.version, headers.ipv4.header_words, headers.ipv4.more_fragments,
                          headers.ipv4.fragment_offset, headers.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(headers.ipv6);
        transition select(headers.ipv6.version, headers.ipv6.next_header) {
            (6, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(headers.udp);
        transition select(headers.udp.udp_bytes) {
            72 .. 0xffff: dlcp;
            default: accept;
        }
    }

    state dlcp {
        packet.extract(headers.dlcp);
        transition accept;
    }
}

parser TofinoIngressParser(packet_in packet, out headers_t headers, out ingress_t meta,
                           out ingress_intrinsic_metadata_t intrinsic) {
    TofinoFrame() frame;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta = { 0, 0, 0, UNKNOWN_IMPORTANCE, 0, 0, 0, 1, 0, 0, 0, 0 };
        frame.apply(packet, headers);
        transition accept;
    }
}

parser TofinoEgressParser(packet_in packet, out headers_t headers, out egress_t meta,
                          out egress_intrinsic_metadata_t intrinsic) {
    TofinoFrame() frame;

    state start {
        packet.extract(intrinsic);
        meta = { 0, 0, 0 };
        frame.apply(packet, headers);
        transition accept;
    }
}

control TofinoIngressDeparser(packet_out packet, inout headers_t headers, in ingress_t meta,
                              in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply {
        packet.emit(headers);
    }
}

control TofinoEgressDeparser(packet_out packet, inout headers_t headers, in egress_t meta,
                             in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    Checksum() ipv4_checksum;

    apply {
        // Only where the ECN field was changed: what came damaged leaves damaged.
        if (meta.changed == 1) {
            headers.ipv4.checksum = ipv4_checksum.update({
                headers.ipv4.version, headers.ipv4.header_words, headers.ipv4.dscp, headers.ipv4.ecn,
                headers.ipv4.total_bytes, headers.ipv4.identification, headers.ipv4.reserved,
                headers.ipv4.dont_fragment, headers.ipv4.more_fragments, headers.ipv4.fragment_offset,
                headers.ipv4.ttl, headers.ipv4.protocol, headers.ipv4.source, headers.ipv4.destination
            });
        }
        packet.emit(headers);
    }
}

#endif
