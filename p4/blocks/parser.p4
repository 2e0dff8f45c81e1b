// Takes a frame apart, and puts it together again.
//
// Structure only: whether what was found makes sense is for read.p4. A frame that ends inside a header leaves
// parser_error set. UDP and TCP only directly behind the IP header and not in fragments, of which only the first has
// ports (RFC 791, 3.2).
#ifndef DLCP_PARSER_P4
#define DLCP_PARSER_P4

#include "metadata.p4"

parser FrameParser(packet_in packet, out headers_t headers, inout metadata_t meta,
                   inout standard_metadata_t standard) {
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
            (4, 5, 0, 0, PROTOCOL_TCP): ipv4_tcp;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(headers.ipv6);
        transition select(headers.ipv6.version, headers.ipv6.next_header) {
            (6, PROTOCOL_UDP): udp;
            (6, PROTOCOL_TCP): ipv6_tcp;
            default: accept;
        }
    }

    // Behind a short IP packet comes padding, which has no ports.
    state ipv4_tcp {
        transition select(headers.ipv4.total_bytes) {
            24 .. 0xffff: tcp;
            default: accept;
        }
    }

    state ipv6_tcp {
        transition select(headers.ipv6.payload_bytes) {
            4 .. 0xffff: tcp;
            default: accept;
        }
    }

    state tcp {
        packet.extract(headers.tcp);
        transition accept;
    }

    // Room for a dlcp header is enough to take one; if it is another program's, it is sent on as it came.
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

control FrameDeparser(packet_out packet, in headers_t headers) {
    apply {
        packet.emit(headers.ethernet);
        packet.emit(headers.ipv4);
        packet.emit(headers.ipv6);
        packet.emit(headers.udp);
        packet.emit(headers.tcp);
        packet.emit(headers.dlcp);
    }
}

#endif
