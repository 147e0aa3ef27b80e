package rest

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// input has a parameter of each kind.
type input struct {
	Query
	Bulk struct{} // no parameter

	Name   string          `param:"name"`
	Status []string        `param:"status" enum:"a,b"`
	Expect *int            `param:"expect" minimum:"0"`
	DryRun bool            `param:"dry_run"`
	Since  contract.Moment `param:"since"`
	Until  contract.Moment `param:"until"`
}

// What Encode writes is what Parse reads, also a zero that differs from an absent parameter.
func TestParametersAreReadAsTheyAreWritten(t *testing.T) {
	want := input{
		Query: Query{Limit: 7, Cursor: contract.CursorOf("a/ü &")}, Name: "x y", Status: []string{"a", "b"}, Expect: new(0), DryRun: true,
		Since: contract.Moment{At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}, Until: contract.Moment{Age: 90 * time.Minute},
	}
	for _, in := range []input{want, {Query: Query{Limit: 100}}} {
		r := httptest.NewRequest(http.MethodGet, "/?"+Encode(in).Encode(), http.NoBody)
		var got input
		require.NoError(t, NewRequest(nil, r, nil).Parse(&got))
		require.Equal(t, in, got)
	}
}

// A cursor of a list of names is no cursor of a list of numbers.
func TestCursorBelongsToItsList(t *testing.T) {
	id := int64(3)
	require.NoError(t, After("", &id))
	require.EqualValues(t, 3, id, "the first page")
	require.NoError(t, After(contract.CursorOf(17), &id))
	require.EqualValues(t, 17, id)
	for _, key := range []string{"x", "1x", "1 2", "017", "1.5", "9223372036854775808"} {
		require.ErrorIs(t, After(contract.CursorOf(key), &id), ErrCursor, key)
	}
	for _, key := range []string{"a\x00", "\xff"} {
		var c contract.Cursor
		require.Error(t, c.UnmarshalText([]byte(contract.CursorOf(key).String())), "no name contains %q", key)
	}
}
