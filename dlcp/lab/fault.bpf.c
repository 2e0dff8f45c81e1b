// Losses of a link, for tc's clsact hook on arrival: each packet on its own, in bursts (Gilbert's two states), or those
// of one path of dlcp's. Only IP is lost: a lost ARP answer would measure a one-second timer of the kernel's.
// Map `fault`: what to lose, filled by losses.py, and what was seen; probabilities of 2^32.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERNET_BYTES 14
#define UDP_BYTES 8
#define PROTOCOL_UDP 17
#define DLCP_VERSION 2
#define DLCP_PATH_OFFSET 6 /* native/engine/wire.hpp */
#define NO_PATH 0x10000

struct fault {
	__u64 loss, enter, leave, burst_loss;
	__u64 path, path_loss; /* of IPv4 packets on this path, in place of `loss`; NO_PATH: of none */
	__u64 packets, lost;   /* counted here */
	__u64 bad;             /* the link's state */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fault);
} fault SEC(".maps");

static __always_inline int drawn(__u64 probability)
{
	/* In 64 bits: 1 is 2^32, which no 32-bit draw reaches. */
	return probability && (__u64)bpf_get_prandom_u32() < probability;
}

/* By the header and not by the source port: drivers choose ports freely, and the two map one to one. */
static __always_inline int on_path(struct __sk_buff *skb, __u64 path)
{
	__u8 ip[20], header[8];

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, ip, sizeof(ip)) < 0 || ip[9] != PROTOCOL_UDP)
		return 0;
	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES + (ip[0] & 15) * 4 + UDP_BYTES, header, sizeof(header)) < 0)
		return 0;
	return header[0] == DLCP_VERSION && (header[DLCP_PATH_OFFSET] << 8 | header[DLCP_PATH_OFFSET + 1]) == path;
}

SEC("tc")
int lose(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct fault *f = bpf_map_lookup_elem(&fault, &zero);
	__u64 loss;

	if (!f || (skb->protocol != bpf_htons(0x0800) && skb->protocol != bpf_htons(0x86dd)))
		return TC_ACT_OK;
	__sync_fetch_and_add(&f->packets, 1);
	/* Two processors may both move the state: that is one draw too many, and harmless. */
	f->bad = f->bad ? !drawn(f->leave) : drawn(f->enter);
	loss = f->loss;
	if (f->path != NO_PATH && skb->protocol == bpf_htons(0x0800) && on_path(skb, f->path))
		loss = f->path_loss;
	if (drawn(loss) || (f->bad && drawn(f->burst_loss))) {
		__sync_fetch_and_add(&f->lost, 1);
		return TC_ACT_SHOT;
	}
	return TC_ACT_OK;
}

char _license[] SEC("license") = "GPL";
