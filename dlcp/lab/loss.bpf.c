// Random loss on arrival, for tc's clsact hook. Parameters are compiled in:
//   LOSS_PPM              of all IPv4 packets
//   BAD_PATH              which path loses more; without it no packet is looked into
//   BAD_PATH_LOSS_PPM     of the dlcp packets on that path (bytes 6 and 7 of the header, native/engine/wire.hpp)
//
// Only IPv4 is lost: a lost ARP answer would measure a one-second timer of the kernel's. A path is recognised by
// the header and not by the source port, because drivers choose ports freely; the two map one to one.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERNET_BYTES 14
#define UDP_BYTES 8
#define PROTOCOL_UDP 17
#define DLCP_VERSION 1
#define DLCP_PATH_OFFSET 6

static __always_inline int drawn(__u32 loss_ppm)
{
	/* In 64 bits: a loss of 1 is 2^32, which no 32-bit draw reaches. */
	return (__u64)bpf_get_prandom_u32() < (__u64)loss_ppm * 4294967296ULL / 1000000ULL;
}

#ifdef BAD_PATH
static __always_inline int on_bad_path(struct __sk_buff *skb)
{
	__u8 ip[20], header[8];

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, ip, sizeof(ip)) < 0 || ip[9] != PROTOCOL_UDP)
		return 0;
	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES + (ip[0] & 15) * 4 + UDP_BYTES, header, sizeof(header)) < 0)
		return 0;
	return header[0] == DLCP_VERSION &&
	       (header[DLCP_PATH_OFFSET] << 8 | header[DLCP_PATH_OFFSET + 1]) == BAD_PATH;
}
#endif

SEC("tc")
int lose(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(0x0800))
		return TC_ACT_OK;
#ifdef BAD_PATH
	if (on_bad_path(skb))
		return drawn(BAD_PATH_LOSS_PPM) ? TC_ACT_SHOT : TC_ACT_OK;
#endif
	return drawn(LOSS_PPM) ? TC_ACT_SHOT : TC_ACT_OK;
}

char _license[] SEC("license") = "GPL";
