package claim

import "github.com/dispatcherd/dispatcherd/internal/contract"

// appendKeys appends the ids and the attempts; the second array starts at p.
func appendKeys(b []byte, items []contract.Finish) (_ []byte, p int) {
	b = appendHeader(b, oidInt8, len(items))
	for i := range items {
		b = appendInt8(b, int64(items[i].ID))
	}
	p = len(b)
	b = appendHeader(b, oidInt4, len(items))
	for i := range items {
		b = appendInt4(b, int32(items[i].Attempt))
	}
	return b, p
}

func codeOf(o contract.Outcome) int16 {
	return [...]int16{codeDone, codeRetry, codeFailed, codeCancelled, codeReleased, codeCrashed, codeQuarantined, codeIsolated}[o]
}

// encodeEnded appends the parameters of endedSQL to b.
func encodeEnded(b []byte, items []contract.Finish, me int32) (_ []byte, params [][]byte) {
	b, p := appendKeys(b, items)
	q := len(b)
	b = appendHeader(b, oidInt2, len(items))
	for i := range items {
		b = appendInt2(b, codeOf(items[i].Outcome))
	}
	r := len(b)
	b = appendHeader(b, oidText, len(items))
	for i := range items {
		b = appendText(b, items[i].Outcome.String())
	}
	s := len(b)
	b = appendHeader(b, oidText, len(items))
	for i := range items {
		b = appendText(b, clean(items[i].Error))
	}
	return b, [][]byte{b[:p], b[p:q], b[q:r], b[r:s], b[s:], int4(me)}
}

// encodePending appends the parameters of pendingSQL to b.
func encodePending(b []byte, items []contract.Finish, me int32) (_ []byte, params [][]byte) {
	b, params = encodeEnded(b, items, me)
	delays := appendHeader(nil, oidInt8, len(items))
	for i := range items {
		delays = appendInt8(delays, min(max(items[i].Delay, 0), maxDelay).Microseconds())
	}
	return b, append(params, delays)
}
