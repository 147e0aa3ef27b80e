package claim

import (
	"testing"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/stretchr/testify/require"
)

func list(values ...int64) []byte { return int8s(values, integer) }

// Any bytes that a server sends as rows of a fetch or a claim are decoded or
// rejected. No part of a rejected row is kept.
func FuzzRows(f *testing.F) {
	f.Add(int4(1), list(5, 6), list(1, 2), int8b(7), []byte("\x01{}"))
	f.Add(int4(-2), []byte(nil), list(87, 0), int8b(7), []byte(nil))
	f.Add(int4(-3), []byte(nil), list(88), int4(1<<20), []byte(nil))
	f.Add(int4(-4), []byte(nil), list(1), int8b(7), []byte(nil))
	f.Add(int4(0), list(5), []byte(nil), int8b(7), []byte(nil))
	f.Add(int4(-1), list(), list(1), int4(1), []byte("x"))
	f.Fuzz(func(t *testing.T, lane, due, ids, id, payload []byte) {
		before := contract.FetchResult{Candidates: make([]contract.Candidate, 1)}
		res := before
		switch err := readLane(&res, [][]byte{lane, due, ids}, 2); {
		case err != nil:
			require.Len(t, res.Candidates, 1)
		case readInt4(lane) < 1:
			require.Equal(t, before.Candidates, res.Candidates)
			for _, l := range res.Named {
				require.True(t, l.Type < 2 && l.Priority.Valid() && l.Class > 0 && l.Class < dispatcherd.DurationClasses)
			}
		default:
			want, err := readInt8s[int64](ids)
			require.NoError(t, err)
			require.Len(t, res.Candidates, 1+len(want))
		}
		two := []byte{0, 3}
		req := &contract.ClaimRequest{Lane: contract.Lane{Type: "pdf", Priority: 2}, Types: []string{"pdf"}}
		w, err := wonOf([][]byte{id, int4(1), two, two, two, nil, due, nil, nil, nil, payload}, req)
		require.Equal(t, len(id) == 8 && (due == nil || len(due) > 0) && (payload == nil || len(payload) > 0), err == nil)
		if err == nil {
			require.Equal(t, readInt8(id), int64(w.ID))
			want := contract.Won{Type: "pdf", Priority: 2}
			if due != nil {
				want.Type = string(due[1:])
				want.Priority = w.Priority
			}
			require.Equal(t, want, contract.Won{Type: w.Type, Priority: w.Priority})
		}
		_, err = wonOf([][]byte{id, int4(1), two, two, two, ids, due, ids, nil, nil, payload}, req)
		require.False(t, err == nil && ids != nil && len(ids) != 4)
		w, err = wonOf([][]byte{id, int4(1), two, two, two, nil, due, nil, ids, nil, payload}, req)
		require.False(t, err == nil && ids != nil && len(ids) != 8)
		if err == nil && ids != nil {
			require.Equal(t, readInt8(ids), w.Fence)
		}
		w, err = wonOf([][]byte{id, int4(1), two, two, two, nil, due, nil, nil, ids, payload}, req)
		require.False(t, err == nil && ids != nil && len(ids) != 8)
		if err == nil && ids != nil {
			require.EqualValues(t, readInt8(ids), w.Target)
		}
		require.Error(t, readLane(&res, [][]byte{lane}, 2))
	})
}

// Decoding the encoded values returns the values.
func FuzzLists(f *testing.F) {
	f.Add(int64(1), int64(-2), uint8(3))
	f.Fuzz(func(t *testing.T, a, b int64, n uint8) {
		var want []int64
		for i := range int64(n) {
			want = append(want, a+i*b)
		}
		got, err := readInt8s[int64](list(want...))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}
