// A switch port's policy for tc's clsact hook on egress, in front of an HTB that serves eight classes by strict priority.
// The program decides on virtual queues: it knows the port's rate, drains its own count of every class by it, highest
// class first, and marks or drops by what is left. HTB behind it only holds packets back, with room to spare.
//
// The decision is native/switch/decision.hpp's, on what native/switch/frame.hpp reads. Less than there: nothing is
// trimmed (such a threshold is a drop here, see kernel.py), a port knows nothing of what others hold of a shared
// buffer, IP is not checked for being well formed, and the packet in transmission counts as waiting until its last byte has left.
//
// Maps, filled and read by kernel.py: `config` (struct config, laid out there as well), `queues`, `counts`.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define CLASSES 8
#define LEVELS 9 /* 8 of droppable packets by importance, then that of critical ones */
#define CRITICAL 8
#define UNKNOWN_IMPORTANCE 254
#define FOREIGN 0xff
#define NEVER 0xffffffffU
#define MARK_STEPS 16
#define SECOND_NS 1000000000ULL

#define ETHERNET_BYTES 14
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define UDP_BYTES 8
#define PROTOCOL_UDP 17
#define DLCP_BYTES 64
#define DLCP_VERSION 2
#define DLCP_DATA 1
#define DLCP_SHORT_DATA 4
#define DLCP_AUTHENTICATED 0x02 /* flags: native/engine/wire.hpp */
#define DLCP_TRIMMED 0x80
#define DLCP_TAG_BYTES 16
#define DLCP_PAYLOAD_OFFSET 58

struct thresholds {
	__u32 mark_from, mark_full, mark_ratio, drop_above; /* bytes, NEVER: none; ratio of 65536 */
};

struct config {
	__u64 rate_bytes; /* per second */
	__u32 port_bytes; /* of all classes together: a port's, or all of a shared buffer */
	__u32 priority;   /* HTB's handle << 16 | number of class 0 */
	__u8 foreign_class;
	__u8 shared;                  /* a queue may grow to the free bytes << alpha_left >> alpha_right */
	__u8 alpha_left, alpha_right; /* one of them 0 */
	__u8 pad[4];
	__u8 class_of_dscp[64];
	struct thresholds at[CLASSES][LEVELS];
};

struct queues {
	struct bpf_spin_lock lock;
	__u32 pad;
	__u64 last_ns; /* when they were drained */
	__u64 bytes[CLASSES];
	__u64 most[CLASSES]; /* ever */
};

struct count {
	__u64 packets, bytes, dropped, marked; /* all; of them; of the kept */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queues);
} queues SEC(".maps");

/* By class * (LEVELS + 1) + level; the last level is foreign traffic. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES * (LEVELS + 1));
	__type(key, __u32);
	__type(value, struct count);
} counts SEC(".maps");

struct packet {
	__u32 traffic_class, level, ecn, foreign;
};

/* Importance of dlcp's data; of anything else that of a packet that does not say. */
static __always_inline __u32 importance(struct __sk_buff *skb, __u32 udp)
{
	__u8 length[2], header[8], payload[2];
	__u32 udp_bytes, expected;

	if (bpf_skb_load_bytes(skb, udp + 4, length, 2) < 0 ||
	    bpf_skb_load_bytes(skb, udp + UDP_BYTES, header, 8) < 0 ||
	    bpf_skb_load_bytes(skb, udp + UDP_BYTES + DLCP_PAYLOAD_OFFSET, payload, 2) < 0)
		return UNKNOWN_IMPORTANCE;
	udp_bytes = length[0] << 8 | length[1];
	if (header[0] == DLCP_VERSION && header[1] == DLCP_SHORT_DATA && udp_bytes >= UDP_BYTES + DLCP_BYTES)
		return header[4];
	if (header[0] != DLCP_VERSION || header[1] != DLCP_DATA)
		return UNKNOWN_IMPORTANCE;
	expected = UDP_BYTES + DLCP_BYTES + (payload[0] << 8 | payload[1]);
	if (header[2] & DLCP_AUTHENTICATED)
		expected += DLCP_TAG_BYTES;
	if (header[2] & DLCP_TRIMMED ? udp_bytes > expected : udp_bytes != expected)
		return UNKNOWN_IMPORTANCE;
	return header[4];
}

static __always_inline struct packet read_packet(struct __sk_buff *skb, const struct config *c)
{
	struct packet p = {.traffic_class = c->foreign_class & (CLASSES - 1), .level = LEVELS, .foreign = 1};
	__u32 tos, protocol, udp, traffic_class;
	__u8 ip[IPV4_BYTES];

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, ip, sizeof(ip)) < 0)
		return p;
	if (skb->protocol == bpf_htons(0x0800)) {
		if (ip[0] != 0x45) /* with options: nobody's */
			return p;
		tos = ip[1];
		protocol = ((ip[6] & 0x3f) | ip[7]) ? 0 : ip[9]; /* a fragment has no UDP header */
		udp = ETHERNET_BYTES + IPV4_BYTES;
	} else if (skb->protocol == bpf_htons(0x86dd)) {
		tos = (ip[0] & 15) << 4 | ip[1] >> 4;
		protocol = ip[6];
		udp = ETHERNET_BYTES + IPV6_BYTES;
	} else {
		return p;
	}
	traffic_class = c->class_of_dscp[tos >> 2 & 63];
	if (traffic_class == FOREIGN)
		return p;
	p.foreign = 0;
	p.traffic_class = traffic_class & (CLASSES - 1);
	p.ecn = tos & 3;
	p.level = p.ecn                    ? CRITICAL
		  : protocol == PROTOCOL_UDP ? importance(skb, udp) >> 5
					     : UNKNOWN_IMPORTANCE >> 5;
	return p;
}

static __always_inline int is_marked(const struct thresholds *at, __u64 depth)
{
	__u64 step;

	if (depth <= at->mark_from)
		return 0;
	if (depth >= at->mark_full || at->mark_full <= at->mark_from)
		return 1;
	step = MARK_STEPS * (depth - at->mark_from) / (at->mark_full - at->mark_from);
	return (bpf_get_prandom_u32() & 0xffff) < at->mark_ratio * (2 * step + 1) / (2 * MARK_STEPS);
}

/* Room for `bytes` more? As decision.hpp's, if no other port took anything of a shared buffer. */
static __always_inline int fits(const struct config *c, __u64 depth, __u64 port, __u64 bytes)
{
	__u64 free;

	if (port + bytes > c->port_bytes)
		return 0;
	free = c->port_bytes - port;
	return !c->shared || depth + bytes <= free << (c->alpha_left & 31) >> (c->alpha_right & 31);
}

SEC("tc")
int police(struct __sk_buff *skb)
{
	__u32 zero = 0, place, dropped = 0, marked = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	struct queues *q = bpf_map_lookup_elem(&queues, &zero);
	__u64 now_ns = bpf_ktime_get_ns(), bytes = skb->len, left, gap_ns, depth, port = 0;
	const struct thresholds *at;
	struct count *count;
	struct packet p;
	int i;

	if (!c || !q || !c->rate_bytes)
		return TC_ACT_OK;
	p = read_packet(skb, c);
	place = p.traffic_class * (LEVELS + 1) + p.level;
	count = bpf_map_lookup_elem(&counts, &place);
	if (!count)
		return TC_ACT_OK;
	at = &c->at[p.traffic_class & (CLASSES - 1)][p.level < LEVELS ? p.level : 0];

	bpf_spin_lock(&q->lock);
	gap_ns = now_ns > q->last_ns ? now_ns - q->last_ns : 0;
	if (gap_ns > SECOND_NS)
		gap_ns = SECOND_NS;
	left = gap_ns * c->rate_bytes / SECOND_NS;
	if (left) /* too short a gap keeps its credit */
		q->last_ns = now_ns;
	for (i = CLASSES - 1; i >= 0; i--) {
		__u64 served = q->bytes[i] < left ? q->bytes[i] : left;

		q->bytes[i] -= served;
		left -= served;
		port += q->bytes[i];
	}
	depth = q->bytes[p.traffic_class & (CLASSES - 1)];
	if (!fits(c, depth, port, bytes) || (!p.foreign && at->drop_above != NEVER && depth > at->drop_above)) {
		dropped = 1;
	} else {
		depth += bytes;
		q->bytes[p.traffic_class & (CLASSES - 1)] = depth;
		if (depth > q->most[p.traffic_class & (CLASSES - 1)])
			q->most[p.traffic_class & (CLASSES - 1)] = depth;
		depth -= bytes;
	}
	bpf_spin_unlock(&q->lock);

	__sync_fetch_and_add(&count->packets, 1);
	__sync_fetch_and_add(&count->bytes, bytes);
	if (dropped) {
		__sync_fetch_and_add(&count->dropped, 1);
		return TC_ACT_SHOT;
	}
	if (p.ecn && at->mark_from != NEVER && is_marked(at, depth)) {
		marked = bpf_skb_ecn_set_ce(skb);
		__sync_fetch_and_add(&count->marked, marked);
	}
	skb->priority = c->priority + p.traffic_class;
	return TC_ACT_OK;
}

char _license[] SEC("license") = "GPL";
