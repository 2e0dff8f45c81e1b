// IPv4's header checksum: looked at as a host does, and written only where we changed the header.
#ifndef DLCP_CHECKSUM_P4
#define DLCP_CHECKSUM_P4

#include "metadata.p4"

// A host adds up the whole header, checksum included, and wants 0xffff, whose complement is 0 (RFC 1071, 1). Comparing
// with a checksum of our own would refuse 0xffff where 0 is meant.
control VerifyIpv4(inout headers_t headers, inout metadata_t meta) {
    apply {
        verify_checksum(
            headers.ipv4.isValid() && headers.ipv4.version == 4 && headers.ipv4.header_words == 5,
            { headers.ipv4.version, headers.ipv4.header_words, headers.ipv4.dscp, headers.ipv4.ecn,
              headers.ipv4.total_bytes, headers.ipv4.identification, headers.ipv4.reserved,
              headers.ipv4.dont_fragment, headers.ipv4.more_fragments, headers.ipv4.fragment_offset,
              headers.ipv4.ttl, headers.ipv4.protocol, headers.ipv4.checksum, headers.ipv4.source,
              headers.ipv4.destination },
            meta.zero, HashAlgorithm.csum16);
    }
}

// Computed anew: the old one was right, or the packet would not be here, so this is what RFC 1624 gives, too.
control UpdateIpv4(inout headers_t headers, inout metadata_t meta) {
    apply {
        update_checksum(
            meta.ipv4_changed == 1,
            { headers.ipv4.version, headers.ipv4.header_words, headers.ipv4.dscp, headers.ipv4.ecn,
              headers.ipv4.total_bytes, headers.ipv4.identification, headers.ipv4.reserved,
              headers.ipv4.dont_fragment, headers.ipv4.more_fragments, headers.ipv4.fragment_offset,
              headers.ipv4.ttl, headers.ipv4.protocol, headers.ipv4.source, headers.ipv4.destination },
            headers.ipv4.checksum, HashAlgorithm.csum16);
    }
}

#endif
