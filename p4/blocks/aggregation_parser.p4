// From bytes to headers and back. An aggregation packet is IPv4 without options or fragments, UDP of exactly its size,
// magic and version; whatever else comes is payload behind an Ethernet header.
#ifndef AGGREGATION_PARSER_P4
#define AGGREGATION_PARSER_P4

parser AggregationParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                         inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        // The flag bits: reserved, don't fragment, more fragments.
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.protocol, hdr.ipv4.flags,
                          hdr.ipv4.fragment_offset) {
            (4, 5, PROTOCOL_UDP, 3w0 &&& 3w1, 0): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.bytes, hdr.ipv4.total_bytes) {
            (AGGREGATION_UDP_BYTES, AGGREGATION_UDP_BYTES + 20): aggregation;
            default: accept;
        }
    }

    state aggregation {
        transition select(packet.lookahead<bit<40>>()) {
            AGGREGATION_MAGIC ++ AGGREGATION_VERSION: values;
            default: accept;
        }
    }

    state values {
        packet.extract(hdr.aggregation);
        packet.extract(hdr.values);
        transition accept;
    }
}

control AggregationDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.aggregation);
        packet.emit(hdr.values);
    }
}

#endif
