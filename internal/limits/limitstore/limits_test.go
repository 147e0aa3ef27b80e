package limitstore

import (
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func TestLimitsAreSetReadListedAndRemoved(t *testing.T) {
	l, ctx := Limits{DB: connect(t)}, t.Context()
	v := contract.Limit{
		Key:      "tenant:*",
		Capacity: new(2),
		Rate:     3,
		Per:      contract.Duration(time.Second),
		Scope:    contract.DispatcherScope,
		OnRetry:  contract.WaitOnRetry,
	}
	created, err := l.Set(ctx, v)
	require.NoError(t, err)
	require.True(t, created)
	got, err := l.Get(ctx, "tenant:*")
	require.NoError(t, err)
	require.Positive(t, got.Version)
	v.Version = got.Version
	require.Equal(t, v, got)
	v.Version = 0
	created, err = l.Set(ctx, contract.Limit{Key: "tenant:*"})
	require.NoError(t, err)
	require.False(t, created)
	got, err = l.Get(ctx, "tenant:*")
	require.NoError(t, err)
	got.Version = 0
	require.Equal(
		t,
		contract.Limit{Key: "tenant:*", Scope: "cluster", OnRetry: "pass"},
		got,
		"all columns are replaced, and no capacity is unlimited",
	)
	for _, key := range []string{"a", "b"} {
		_, err = l.Set(ctx, contract.NewLimit(key))
		require.NoError(t, err)
	}
	list, err := l.List(ctx, "", "a", 1)
	require.NoError(t, err)
	list[0].Version = 0
	require.Equal(t, []contract.Limit{contract.NewLimit("b")}, list)
	require.NoError(t, l.Remove(ctx, "b"))
	require.ErrorIs(t, l.Remove(ctx, "b"), ErrNotFound)
	_, err = l.Get(ctx, "b")
	require.ErrorIs(t, err, ErrNotFound)
	require.EqualError(t, err, `limit "b": no such limit: 'dispatcherd limit list' shows all limits`)
}

// Each column is part of the version. An edit of a limit that was edited, created or removed meanwhile changes nothing.
func TestEditOfAnotherVersionOfALimitIsRefused(t *testing.T) {
	l, ctx := Limits{DB: connect(t)}, t.Context()
	v := contract.NewLimit("k")
	v.Version = contract.NoVersion
	created, err := l.Set(ctx, v)
	require.NoError(t, err)
	require.True(t, created)
	_, err = l.Set(ctx, v)
	require.ErrorIs(t, err, ErrEdited)
	require.EqualError(t, err, `limit "k": it was created, edited or removed after it was read: read it again and repeat the change`)
	versions := map[int64]bool{}
	for _, edit := range []func(*contract.Limit){
		func(v *contract.Limit) { v.Capacity = nil }, func(v *contract.Limit) { v.Capacity = new(0) },
		func(v *contract.Limit) { v.Rate, v.Per = 1, contract.Duration(time.Second) }, func(v *contract.Limit) { v.Rate = 2 },
		func(v *contract.Limit) { v.Per = contract.Duration(1500 * time.Millisecond) },
		func(v *contract.Limit) { v.Scope = contract.DispatcherScope }, func(v *contract.Limit) { v.OnRetry = contract.WaitOnRetry },
	} {
		before, err := l.Get(ctx, "k")
		require.NoError(t, err)
		require.False(t, versions[before.Version])
		versions[before.Version] = true
		require.Less(t, before.Version, int64(1)<<53)
		after := before
		edit(&after)
		created, err := l.Set(ctx, after)
		require.NoError(t, err)
		require.False(t, created)
		_, err = l.Set(ctx, before)
		require.ErrorIs(t, err, ErrEdited)
	}
	last, err := l.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(
		t,
		contract.Limit{
			Key:      "k",
			Capacity: new(0),
			Rate:     2,
			Per:      contract.Duration(1500 * time.Millisecond),
			Scope:    "dispatcher",
			OnRetry:  "wait",
			Version:  last.Version,
		},
		last,
	)
	require.NoError(t, l.Remove(ctx, "k"))
	_, err = l.Set(ctx, last)
	require.ErrorIs(t, err, ErrEdited)
	_, err = l.Get(ctx, "k")
	require.ErrorIs(t, err, ErrNotFound)
}

// A further limit would not apply, because the controller reads MaxLimits.
func TestNoFurtherLimitIsSetBeyondTheBound(t *testing.T) {
	l, ctx := Limits{DB: connect(t)}, t.Context()
	for i := range 3 {
		_, err := l.set(ctx, new(contract.NewLimit(strconv.Itoa(i))), 3)
		require.NoError(t, err)
	}
	_, err := l.set(ctx, new(contract.NewLimit("more")), 3)
	require.ErrorIs(t, err, ErrTooMany)
	_, err = l.set(ctx, &contract.Limit{Key: "more", Scope: "cluster", OnRetry: "pass", Version: contract.NoVersion}, 3)
	require.ErrorIs(t, err, ErrTooMany)
	created, err := l.set(ctx, &contract.Limit{Key: "1", Capacity: new(5), Scope: "cluster", OnRetry: "pass"}, 3)
	require.NoError(t, err, "an existing one is changed")
	require.False(t, created)
}

// Set rejects exactly what the table rejects.
func TestTableAndCheckHaveTheSameRulesForLimits(t *testing.T) {
	conn := connect(t)
	l, ctx := Limits{DB: conn}, t.Context()
	var all []contract.Limit
	with := func(edit func(*contract.Limit)) {
		v := contract.NewLimit("k")
		edit(&v)
		all = append(all, v)
	}
	for _, keys := range handWritten() {
		for _, key := range []string{keys, keys + "*"} {
			with(func(v *contract.Limit) { v.Key = key })
		}
	}
	for _, n := range []int{-1, 0, 1, 1_000_000_000, 1_000_000_001, math.MaxInt32} {
		with(func(v *contract.Limit) { v.Capacity = &n })
		with(func(v *contract.Limit) { v.Rate, v.Per = n, contract.Duration(time.Second) })
		with(func(v *contract.Limit) { v.Rate = n })
	}
	for _, d := range []time.Duration{
		-time.Second, time.Microsecond, 9 * time.Millisecond, 10 * time.Millisecond, 366 * 24 * time.Hour,
		366*24*time.Hour + time.Millisecond,
	} {
		with(func(v *contract.Limit) { v.Rate, v.Per = 1, contract.Duration(d) })
		with(func(v *contract.Limit) { v.Per = contract.Duration(d) })
	}
	for _, text := range []string{"cluster", "dispatcher", "pass", "wait", "", "Wait", "x"} {
		with(func(v *contract.Limit) { v.Scope = text })
		with(func(v *contract.Limit) { v.OnRetry = text })
	}
	with(func(v *contract.Limit) { v.Capacity = nil })
	accepted := 0
	for i := range all {
		v := &all[i]
		checked := contract.CheckLimit(v)
		_, err := l.set(ctx, v, MaxLimits)
		pg, refused := errors.AsType[*pgconn.PgError](err)
		require.Equal(t, refused, checked != nil, "%+v\n%v\n%v", v, err, checked)
		if !refused {
			require.NoError(t, err)
			accepted++
			continue
		}
		require.Equal(t, "23514", pg.Code)
		require.ErrorContains(t, checked, ", for example ")
	}
	require.Greater(t, accepted, 20)
}
