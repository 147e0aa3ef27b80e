package jsontext_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// CheckPayload accepts no payload whose text, as Postgres stores it, could not be sent. The test covers numbers of every form, on both
// sides of the limit,
// at every position.
func TestPayloadIsAcceptedIfItCanBeSentOnceItIsStored(t *testing.T) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.New(t))
	require.NoError(t, err)
	defer conn.Close(ctx)
	passed, rejected := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		payload := drawPayload(rt)
		require.True(rt, json.Valid(payload), "%s", payload)
		var stored []byte
		require.NoError(rt, conn.QueryRow(ctx, `SELECT $1::text::jsonb::text`, string(payload)).Scan(&stored))
		sent := jsontext.CheckStored(stored)
		invalid := jsontext.CheckPayload(payload)
		require.True(rt, sent == nil || invalid != nil, "%s\nstored as %s\n%v", payload, stored, sent)
		if invalid == nil {
			passed++
		} else {
			rejected++
		}
	})
	require.Positive(t, passed)
	require.Positive(t, rejected)
}

func drawPayload(rt *rapid.T) []byte {
	near := func(bound int, what string) int { return rapid.IntRange(max(0, bound-4), bound+4).Draw(rt, what) }
	size := rapid.SampledFrom([]int{2, jsontext.MaxNumber}).Draw(rt, "size")
	digit := rapid.SampledFrom([]string{"0", "7"})
	number := rapid.SampledFrom([]string{"", "-"}).Draw(rt, "sign")
	switch whole := near(size-3, "whole"); {
	case whole < 2 || rapid.Bool().Draw(rt, "zero"):
		number += "0"
	default:
		number += "7" + strings.Repeat(digit.Draw(rt, "digit"), whole-1)
	}
	if rapid.Bool().Draw(rt, "fraction") {
		number += "." + strings.Repeat(digit.Draw(rt, "fraction digit"),
			near(rapid.SampledFrom([]int{1, jsontext.MaxNumber}).Draw(rt, "fraction length"), "fraction")+1)
	}
	if rapid.Bool().Draw(rt, "power") {
		number += fmt.Sprintf(
			"%s%s%d", rapid.SampledFrom([]string{"e", "E"}).Draw(rt, "e"),
			rapid.SampledFrom([]string{"", "+", "-"}).
				Draw(rt, "exponent sign"),
			near(rapid.SampledFrom([]int{0, jsontext.MaxNumber, 9995}).Draw(rt, "powers"), "power"),
		)
	}
	deep := near(rapid.SampledFrom([]int{0, jsontext.MaxDepth - 1}).Draw(rt, "deep"), "depth")
	inner := rapid.SampledFrom([]string{`{"a\"[[":"1e9999\\","b":%s}`, `[[], {}, %s ]`}).Draw(rt, "inner")
	return []byte(strings.Repeat("[", deep) + fmt.Sprintf(inner, number) + strings.Repeat("]", deep))
}

// Brackets, quotes and backslashes inside a string have no effect on the nesting.
func TestStringEndsAtItsQuote(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text, err := json.Marshal(rapid.StringOf(rapid.SampledFrom([]rune(`\\\"[{1eü`))).Draw(rt, "text"))
		require.NoError(rt, err)
		around := func(depth int) []byte {
			return []byte(strings.Repeat("[", depth) + string(text) + "," + string(text) + strings.Repeat("]", depth))
		}
		require.NoError(rt, jsontext.CheckPayload(around(jsontext.MaxDepth)))
		require.ErrorContains(rt,
			jsontext.CheckPayload(append(append([]byte("["), text...), append([]byte(","), append(around(jsontext.MaxDepth), ']')...)...)),
			"nested")
	})
}

// CheckPayload accepts only JSON, and does not panic on any text.
func FuzzCheckPayload(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e+3]}`, `"\`, `-`, `1e5000`, `]][`, `1.e.-`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if jsontext.CheckPayload(raw) == nil {
			require.True(t, json.Valid(raw))
		}
	})
}

func TestNumbersMayNotMakeThePayloadTooLong(t *testing.T) {
	numbers := func(number string, n int) []byte { return []byte("[" + strings.Repeat(number+",", n-1) + number + "]") }
	require.NoError(t, jsontext.CheckPayload(numbers("1.7976931348623157e308", 20_000)))
	require.NoError(t, jsontext.CheckPayload(numbers("1e1000", 8300)))
	require.ErrorContains(t, jsontext.CheckPayload([]byte("0e1024")), "1,024 characters")
	require.NoError(t, jsontext.CheckPayload([]byte("5e-324")))
	err := jsontext.CheckPayload(numbers("1e1000", 58_000))
	require.ErrorContains(t, err,
		"its text has more than 8388608 bytes with all digits of its numbers: write them as strings")
	require.NoError(t, jsontext.CheckValue(numbers("1e1000", 58_000)), "text is stored as it is")
}

// The size that CheckPayload computes is at least that of the text of jsonb. The domain of the table accepts what CheckPayload does,
// except the size in the table, which none of these payloads reaches.
func FuzzTextOfPayload(f *testing.F) {
	conn, err := pgx.Connect(context.Background(), pgtest.New(f))
	require.NoError(f, err)
	f.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, number := range []string{
		"1e131071", "-1E+1023", "1e1023", "1e-1022", "1.5e1000", "-0.00012e700", "0e900", "12345678e-5", "0.00e5", "1e16383",
		"1e-16383",
	} {
		for _, n := range []uint16{1, 56, 63, 511, 8150, 8176, 8183, 8400} {
			f.Add(number, n, "")
		}
	}
	f.Add("-0", uint16(2), "\n\u0001\u00e9ü")
	f.Fuzz(func(t *testing.T, number string, n uint16, text string) {
		n = n%9000 + 1
		name, err := json.Marshal(text)
		require.NoError(t, err)
		if len(number) > 100 || len(text) > 100 || !json.Valid([]byte(number)) || number[0] != '-' && (number[0] < '0' || number[0] > '9') {
			t.Skip()
		}
		payload := fmt.Appendf(nil, `{%s:[%s]}`, name, strings.Repeat(number+",", int(n)-1)+number)
		if jsontext.CheckPayload(payload) != nil {
			return
		}
		var size int
		err = conn.QueryRow(t.Context(), `SELECT octet_length($1::text::dispatcherd.payload::text)`, string(payload)).Scan(&size)
		written := jsontext.WrittenOut(payload) + int(n)
		require.NoError(t, err, "%q times %d", number, n)
		require.LessOrEqual(t, size, written, "%q times %d", number, n)
	})
}

func BenchmarkCheckPayload(b *testing.B) {
	row := `{"url":"https://example.org/some/page.html","page":17,"sizes":[1,2.5,300],"user":{"name":"a user","id":123456}}`
	for name, text := range map[string]string{
		"110 B":               row,
		"10 kB of rows":       "[" + strings.Repeat(row+",", 90) + "1]",
		"10 kB of text":       `"` + strings.Repeat("Some words, one after the other. ", 310) + `"`,
		"10 kB of many lines": `"` + strings.Repeat(`Some words, one after the other.\n`, 300) + `"`,
	} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(text)
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				_ = jsontext.CheckPayload(raw)
			}
		})
		b.Run(name+", encoded", func(b *testing.B) { // the client encodes the payload before the check
			raw := json.RawMessage(text)
			for b.Loop() {
				_, _ = json.Marshal(raw)
			}
		})
	}
}
