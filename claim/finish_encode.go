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

// encodeDone makes the parameters of doneSQL. The statement is encoded into the
// batch before the next one reuses the buffer.
func (l *link) encodeDone(b []byte, items []contract.Finish, me int32) [][]byte {
	b, p := appendKeys(b, items)
	q := len(b)
	b = appendHeader(b, oidJSON, len(items))
	for i := range items {
		if items[i].Result == nil {
			b = appendNull(b)
		} else {
			b = appendText(b, items[i].Result)
		}
	}
	l.buf = b
	return [][]byte{b[:p], b[p:q], b[q:], int4(me)}
}

func codeOf(o contract.Outcome) int16 {
	return [...]int16{0, codeRetry, codeFailed, codeCancelled, codeReleased, codeCrashed, codeQuarantined, codeParted}[o]
}

// encodeEnded makes the parameters of endedSQL.
func (l *link) encodeEnded(b []byte, items []contract.Finish, me int32) [][]byte {
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
	l.buf = b
	return [][]byte{b[:p], b[p:q], b[q:r], b[r:s], b[s:], int4(me)}
}

// encodeBack makes the parameters of backSQL.
func (l *link) encodeBack(b []byte, items []contract.Finish, me int32) [][]byte {
	params := l.encodeEnded(b, items, me)
	delays := appendHeader(nil, oidInt8, len(items))
	for i := range items {
		delays = appendInt8(delays, min(max(items[i].Delay, 0), maxDelay).Microseconds())
	}
	return append(params, delays)
}
