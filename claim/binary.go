package claim

import (
	enc "encoding/binary"
	"fmt"
)

// Postgres' binary array format starts with the number of dimensions, a flag for
// NULLs, the oid of the element type, the length and the lower bound. Then it
// contains every element, preceded by the size of the element (-1 = NULL). The
// functions of this file need a few nanoseconds per element, a tenth of what the
// general codec of pgx needs.

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

// array encodes an array with one element per item. The function element appends one
// element with its size. The parameter size is the size of an element or an estimate.
func array[T any](oid uint32, size int, items []T, element func([]byte, *T) []byte) []byte {
	if len(items) == 0 {
		return enc.BigEndian.AppendUint32(make([]byte, 8, 12), oid)
	}
	b := make([]byte, 0, arrayHeader+len(items)*(4+size))
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 1) // one dimension, NULLs allowed
	b = enc.BigEndian.AppendUint32(b, oid)
	b = enc.BigEndian.AppendUint32(b, uint32(len(items)))
	b = append(b, 0, 0, 0, 1)
	for i := range items {
		b = element(b, &items[i])
	}
	return b
}

func int8s[T any](items []T, value func(*T) int64) []byte {
	return array(oidInt8, 8, items, func(b []byte, item *T) []byte { return appendInt8(b, value(item)) })
}

func int4s[T any](items []T, value func(*T) int32) []byte {
	return array(oidInt4, 4, items, func(b []byte, item *T) []byte {
		return enc.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(value(item)))
	})
}

func times[T any](items []T, value func(*T) int64) []byte {
	return array(oidTimestamptz, 8, items, func(b []byte, item *T) []byte { return appendInt8(b, value(item)) })
}

func texts[T any](items []T, value func(*T) string) []byte {
	return array(oidText, 16, items, func(b []byte, item *T) []byte {
		v := value(item)
		return append(enc.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	})
}

func appendInt8(b []byte, v int64) []byte {
	return enc.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(v))
}

// integer returns the item itself, for items that are numbers.
func integer[T ~int64](v *T) int64 { return int64(*v) }

func int4(v int32) []byte  { return enc.BigEndian.AppendUint32(nil, uint32(v)) }
func int8b(v int64) []byte { return enc.BigEndian.AppendUint64(nil, uint64(v)) }

func boolean(v bool) []byte {
	if v {
		return []byte{1}
	}
	return []byte{0}
}

func readInt8(b []byte) int64 { return int64(enc.BigEndian.Uint64(b)) }
func readInt4(b []byte) int32 { return int32(enc.BigEndian.Uint32(b)) }
func readInt2(b []byte) int16 { return int16(enc.BigEndian.Uint16(b)) }

// arrayHeader is the length of the header before the first element of a non-empty
// array.
const arrayHeader = 20

// readInt8s returns the elements of a bigint or timestamptz array without NULLs. A
// nil or empty array has none.
func readInt8s[T ~int64](b []byte) ([]T, error) {
	if len(b) == 0 || (len(b) >= 4 && readInt4(b) == 0) {
		return nil, nil
	}
	if len(b) < arrayHeader || readInt4(b) != 1 || len(b) != arrayHeader+12*int(readInt4(b[12:])) {
		return nil, fmt.Errorf("postgres sent an array of %d bytes that is not a list of 8-byte integers", len(b))
	}
	list := make([]T, 0, (len(b)-arrayHeader)/12)
	for at := arrayHeader; at < len(b); at += 12 {
		list = append(list, T(readInt8(b[at+4:])))
	}
	return list, nil
}

// truncate cuts s to at most n bytes.
func truncate(s string, n int) string { return s[:min(len(s), n)] }
