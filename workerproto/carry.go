package workerproto

import "bytes"

// CheckCarried reports whether a payload that Postgres kept as jsonb may be handed
// to a worker. jsonb writes 1e5000 out in full and nests deeper than a frame may, and
// a worker that is sent such a value hangs up, with all else that it runs. The
// answer is that of [CheckJSON], which looks at every byte only if there is reason to:
// a number beyond the bound covers a byte of every maxNumber, and who nests beyond
// it opens that many brackets.
func CheckCarried(raw []byte) error {
	suspect := bytes.Count(raw, []byte{'['})+bytes.Count(raw, []byte{'{'}) > maxDepth
	for at := maxNumber - 1; at < len(raw) && !suspect; at += maxNumber {
		suspect = raw[at] == '.' || '0' <= raw[at] && raw[at] <= '9'
	}
	if suspect {
		return CheckJSON(raw)
	}
	return nil
}
