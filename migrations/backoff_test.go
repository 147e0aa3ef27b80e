package migrations_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/stretchr/testify/require"
)

// Random texts of random pieces: the domain accepts those that ParsePolicy accepts, apart from the comparison of MAX with BASE.
func TestBackoffsHaveOneFormInGoAndInSQL(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	r := rand.New(rand.NewPCG(1, 2))
	pieces := strings.Fields("exponential: fixed: list: 1s 90s 24h 25h 999m 1000m 9999999ms 10000000ms 0s 01s 2 1 10 11 1.5 10.5 0.2 0 0.25 " +
		"0.256 , , , , d S")
	valid := 0
	for range 5000 {
		parts := []string{pieces[r.IntN(3)]}
		between := ""
		for range r.IntN(8) {
			parts = append(parts, pieces[r.IntN(len(pieces))])
		}
		if r.IntN(2) == 0 { // mostly of the right form
			between, parts = ",", []string{parts[0] + pieces[3+r.IntN(4)]}
			for range r.IntN(5) {
				parts = append(parts, pieces[3+r.IntN(19)])
			}
		}
		text := strings.Join(parts, between)
		p, err := timing.ParsePolicy(text)
		_, refused := conn.Exec(t.Context(), `SELECT $1::text::dispatcherd.backoff`, text)
		require.Equal(t, p.String() != (&timing.Policy{}).String(), refused == nil, "%q: %v", text, err)
		if refused == nil {
			valid++
		}
	}
	require.Greater(t, valid, 300)
	list := "list:" + strings.Repeat("1s,", 31) + "1s"
	exec(t, conn, `SELECT $1::text::dispatcherd.backoff`, list)
	_, err := conn.Exec(t.Context(), `SELECT $1::text::dispatcherd.backoff`, list+",1s")
	require.ErrorContains(t, err, "backoff_is_exponential_fixed_or_list")
}
