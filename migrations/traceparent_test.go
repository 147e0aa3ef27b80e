package migrations_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// Random trace contexts with at most two wrong characters: the domain accepts those that CheckTraceparent accepts.
func TestTraceContextsHaveOneRuleInGoAndInSQL(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	r := rand.New(rand.NewPCG(1, 2))
	const form = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	texts := []string{
		"", form, form + "-", form[1:], form[:36] + "0000000000000000-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
	}
	for range 2000 {
		text := []byte(form)
		for range r.IntN(3) {
			text[r.IntN(len(text))] = "0123456789abcdefABFg-_ "[r.IntN(23)]
		}
		texts = append(texts, string(text[:len(text)-r.IntN(2)]))
	}
	valid := 0
	for _, text := range texts {
		_, err := conn.Exec(t.Context(), `SELECT $1::text::dispatcherd.traceparent`, text)
		require.Equal(t, dispatcherd.CheckTraceparent(text) == nil, err == nil, "%q", text)
		if err == nil {
			valid++
		}
	}
	require.Greater(t, valid, 100)
}
