package claim

import (
	enc "encoding/binary"
	"fmt"
)

// Postgres' binary array format: dimensions, has-nulls, element oid, length,
// lower bound, and then every element behind its length (-1 = NULL). Encoding
// it here costs a few nanoseconds an element; the general codec ten times that.

// Element oids, fixed in pg_type.dat.
const (
	oidBool        = 16
	oidInt8        = 20
	oidInt2        = 21
	oidInt4        = 23
	oidText        = 25
	oidTimestamptz = 1184
)

// postgresEpoch is 2000-01-01 in microseconds since the Unix epoch.
const postgresEpoch = 946_684_800_000_000

func appendHeader(b []byte, oid uint32, n int) []byte {
	if n == 0 {
		return enc.BigEndian.AppendUint32(append(b, 0, 0, 0, 0, 0, 0, 0, 0), oid)
	}
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 1) // one dimension, NULLs allowed
	b = enc.BigEndian.AppendUint32(b, oid)
	b = enc.BigEndian.AppendUint32(b, uint32(n))
	return append(b, 0, 0, 0, 1)
}

func appendInt8(b []byte, v int64) []byte {
	return enc.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(v))
}

func appendInt4(b []byte, v int32) []byte {
	return enc.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(v))
}

func appendInt2(b []byte, v int16) []byte {
	return enc.BigEndian.AppendUint16(append(b, 0, 0, 0, 2), uint16(v))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0, 0, 0, 1, 1)
	}
	return append(b, 0, 0, 0, 1, 0)
}

func appendText[T string | []byte](b []byte, v T) []byte {
	return append(enc.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

func int4(v int32) []byte  { return enc.BigEndian.AppendUint32(nil, uint32(v)) }
func int8b(v int64) []byte { return enc.BigEndian.AppendUint64(nil, uint64(v)) }

func readInt8(b []byte) int64 { return int64(enc.BigEndian.Uint64(b)) }
func readInt4(b []byte) int32 { return int32(enc.BigEndian.Uint32(b)) }
func readInt2(b []byte) int16 { return int16(enc.BigEndian.Uint16(b)) }

// arrayHeader is what comes before the first element of a non-empty array.
const arrayHeader = 20

// readInt8s calls f for every element of a bigint or timestamptz array without
// NULLs. A nil or empty array has none.
func readInt8s(b []byte, f func(i int, v int64)) error {
	if len(b) == 0 || (len(b) >= 4 && readInt4(b) == 0) {
		return nil
	}
	if len(b) < arrayHeader || readInt4(b) != 1 || len(b) != arrayHeader+12*int(readInt4(b[12:])) {
		return fmt.Errorf("postgres sent an array of %d bytes that is not a list of 8-byte integers", len(b))
	}
	for i, at := 0, arrayHeader; at < len(b); i, at = i+1, at+12 {
		f(i, readInt8(b[at+4:]))
	}
	return nil
}

// truncate cuts s to at most n bytes.
func truncate(s string, n int) string { return s[:min(len(s), n)] }
