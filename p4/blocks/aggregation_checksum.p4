// Checksums: of the IPv4 header (RFC 791) and of UDP over pseudo header, header and all values (RFC 768). The whole
// payload is parsed, so the switch can check what it adds and write what it sends.
//
// A UDP checksum of 0 was not computed by the sender, and one of 0xffff stands for a sum of 0, which csum16 does not
// know: neither is checked. A sum of 0 is sent as 0, "not computed", which every receiver accepts.
#ifndef AGGREGATION_CHECKSUM_P4
#define AGGREGATION_CHECKSUM_P4

#define IPV4_FIELDS                                                                                            \
    {                                                                                                          \
        hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_bytes, hdr.ipv4.identification,           \
            hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src,           \
            hdr.ipv4.dst                                                                                       \
    }

#define UDP_FIELDS                                                                                             \
    {                                                                                                          \
        hdr.ipv4.src, hdr.ipv4.dst, 8w0, hdr.ipv4.protocol, hdr.udp.bytes, hdr.udp.src_port, hdr.udp.dst_port, \
            hdr.udp.bytes, hdr.aggregation, hdr.values                                                         \
    }

control AggregationVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.values.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(hdr.values.isValid() && hdr.udp.checksum != 0 && hdr.udp.checksum != 0xffff,
                        UDP_FIELDS, hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

// Only of packets that the switch has touched: what came damaged must not leave with a right checksum.
control AggregationUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.changed == 1, IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.changed == 1, UDP_FIELDS, hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

#undef IPV4_FIELDS
#undef UDP_FIELDS

#endif
