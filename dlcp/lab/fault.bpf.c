// Losses of a link, for tc's clsact hook on arrival: each packet on its own, and in bursts (Gilbert's two states).
// Only IP is lost. Map `fault`: what to lose, filled by losses.py, and what was seen; probabilities of 2^32.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct fault {
	__u64 loss, enter, leave, burst_loss;
	__u64 packets, lost; /* counted here */
	__u64 bad;           /* the link's state */
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

SEC("tc")
int lose(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct fault *f = bpf_map_lookup_elem(&fault, &zero);

	if (!f || (skb->protocol != bpf_htons(0x0800) && skb->protocol != bpf_htons(0x86dd)))
		return TC_ACT_OK;
	__sync_fetch_and_add(&f->packets, 1);
	/* Two processors may both move the state: that is one draw too many, and harmless. */
	f->bad = f->bad ? !drawn(f->leave) : drawn(f->enter);
	if (drawn(f->loss) || (f->bad && drawn(f->burst_loss))) {
		__sync_fetch_and_add(&f->lost, 1);
		return TC_ACT_SHOT;
	}
	return TC_ACT_OK;
}

char _license[] SEC("license") = "GPL";
