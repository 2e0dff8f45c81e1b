// What the blocks tell each other about one packet, and the words of the counters.
//
// Numbers and words that the control plane needs are in dlcp/switch/programs.py as well; a test holds the two together.
#ifndef DLCP_METADATA_P4
#define DLCP_METADATA_P4

#include "headers.p4"

typedef bit<9> port_t;    // as wide as v1model has them
typedef bit<3> class_t;   // traffic class; 7 is served first
typedef bit<4> level_t;   // of importance
typedef bit<8> group_t;   // of equal ways; 0: none

const bit<32> PORTS = 64;
const bit<32> QUEUES = 512;  // port ++ class
const bit<32> GROUPS = 256;

const bit<32> NEVER = 0xffffffff;     // a threshold that is not met
const bit<8> NO_DSCP = 0xff;          // of frames that have none; in no entry of `classify`
const bit<8> UNKNOWN_IMPORTANCE = 254;  // Not-ECT, and silent about its importance: native/switch/frame.hpp
const level_t CRITICAL_LEVEL = 8;     // ECN-capable
const level_t FOREIGN_LEVEL = 9;      // in counters: of no class, so of no level

enum bit<2> FrameKind {
    malformed = 0,  // an IP packet that no host would take
    other = 1,      // not IP, or IP that is not read: foreign
    ipv4 = 2,
    ipv6 = 3
}

// What became of a frame between its port and its queue. Counter `arrivals`: port of arrival ++ this.
enum bit<3> Arrival {
    forwarded = 0,    // on to an output queue: counted on in `decisions`
    flooded = 1,      // copied to a multicast group
    malformed = 2,    // this and what follows: dropped
    ttl_expired = 3,  // routed, and its time to live at an end
    no_route = 4,     // to the router's address, but not IP, or to nowhere
    no_way = 5,       // a group without ports, a port that is not one, an input that has no flood group
    filtered = 6      // back where it came from: its own port, or another one of the same group
}

// What became of a packet at its output queue. Counter `decisions`: port ++ class ++ level ++ this.
enum bit<3> Decision {
    kept = 0,
    marked = 1,
    trimmed = 2,             // and is in the queue of trimmed packets
    dropped_threshold = 3,   // more waited than its level may find
    dropped_buffer = 4,      // no room
    dropped_trimmed = 5      // it was to be trimmed, and trimmed it found no place either
}

enum bit<8> PathChoice {
    flow_hash = 0,
    path_id = 1,
    random = 2,
    round_robin = 3,
    adaptive = 4
}

// All of it is zero when a frame comes in.
struct metadata_t {
    // Read (read.p4): native/switch/frame.hpp says what each is.
    FrameKind kind;
    bit<8> dscp;
    bit<2> ecn;
    bit<16> source_port;
    bit<16> destination_port;
    bit<32> flow;
    bit<16> path;
    bit<8> importance;
    bit<1> trimmable;
    level_t level;
    bit<32> frame_bytes;

    // Classified.
    class_t traffic_class;
    bit<1> foreign;

    // Forwarded: where to. Either `port`, or `group` until path_select.p4 has chosen one of its ports.
    Arrival arrival;
    group_t arrival_group;  // that the port of arrival belongs to
    group_t group;
    port_t port;
    bit<1> routed;       // by IP address: time to live counts down
    bit<1> new_macs;     // the two below are to be written
    mac_t destination_mac;
    mac_t source_mac;

    // Admitted.
    Decision decision;
    bit<8> trimmed_dscp;     // written into a trimmed packet; NO_DSCP: left as it is
    bit<1> ipv4_changed;     // its checksum has to follow
    bit<16> zero;            // what a sound IPv4 header sums up to; never written
    class_t queue_class;     // whose queue it joined …
    bit<32> waiting_bytes;   // … and what it added there. 0: not counted, as copies are not
}

#endif
