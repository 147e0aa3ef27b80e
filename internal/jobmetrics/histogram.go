package jobmetrics

import (
	"math/bits"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// buckets is the number of buckets with a bound. Bucket i contains the durations of up to
// 2^i ms, so the last bound is 35 minutes.
const buckets = 22

// histogram counts durations in milliseconds, the resolution of the Core.
type histogram struct {
	counts [buckets + 1]uint64 // the last one has no bound
	sum    int64               // milliseconds
}

// observe adds a duration.
func (h *histogram) observe(d time.Duration) {
	ms := max(0, d.Milliseconds())
	h.counts[min(bits.Len64(uint64(max(ms, 1)-1)), buckets)]++
	h.sum += ms
}

// collect emits a histogram that is not empty.
func (h *histogram) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc, labels ...string) {
	upTo, total := make(map[float64]uint64, buckets), uint64(0)
	for i, n := range h.counts {
		total += n
		if i < buckets {
			upTo[(time.Millisecond << i).Seconds()] = total
		}
	}
	if total > 0 {
		ch <- prometheus.MustNewConstHistogram(desc, total, (time.Duration(h.sum) * time.Millisecond).Seconds(), upTo, labels...)
	}
}
