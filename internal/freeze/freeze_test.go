package freeze

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

type leaf struct {
	name   string
	secret string
	bytes  []byte
	small  uint8
	large  int64
	yes    bool
}

type tree struct {
	left, right *tree
	leaves      []leaf
	numbers     []int64
	grid        [2][]int32
	flags       [3]bool
	by          map[string]int
	rng         *rand.Rand
	any         shape
	scratch     chan int
}

type shape interface{ area() int }

type square struct{ side int }

func (s square) area() int { return s.side * s.side }

type link struct{ next *link }

func codec() *Codec {
	c := New(Options{
		Strings: []string{"freeze.leaf.name", "freeze.tree.by"},
		Silent:  []string{"freeze.leaf.secret"},
		Drop:    []string{"freeze.tree.scratch"},
	})
	c.Admit(&rand.PCG{}, square{})
	return c
}

func sample() *tree {
	t := &tree{
		leaves:  []leaf{{name: "a", secret: "s3cret", bytes: []byte("s3cret"), small: 7, large: math.MinInt64, yes: true}, {}},
		numbers: []int64{1, -2, 3}, grid: [2][]int32{nil, {}}, flags: [3]bool{true, false, true},
		by: map[string]int{"x": 1, "y": 2}, rng: rand.New(rand.NewPCG(1, 2)), any: square{3},
		scratch: make(chan int),
	}
	t.left = &tree{right: t, numbers: []int64{}}
	t.right = t.left
	return t
}

func TestAGraphComesBackAsItWas(t *testing.T) {
	c := codec()
	f := FormOf[*tree](c)
	v := sample()
	b := Append(c.NewWriter(), []byte("before"), f, &v)
	require.NotContains(t, string(b), "s3cret")
	var got *tree
	rest, err := Read(c, append(b[len("before"):], "after"...), f, &got)
	require.NoError(t, err)
	require.Equal(t, "after", string(rest))
	require.Same(t, got.left, got.right)
	require.Same(t, got, got.left.right)
	require.Equal(t, v.rng.Uint64(), got.rng.Uint64())
	want := sample()
	want.leaves[0].secret, want.leaves[0].bytes, want.scratch = "", nil, nil
	want.rng, got.rng = nil, nil
	require.Equal(t, want, got)
}

func TestALongChainIsNoDeepOne(t *testing.T) {
	c := New(Options{})
	f := FormOf[*link](c)
	var first *link
	for range 1_000_000 {
		first = &link{first}
	}
	b := Append(c.NewWriter(), nil, f, &first)
	var got *link
	_, err := Read(c, b, f, &got)
	require.NoError(t, err)
	n := 0
	for ; got != nil; got = got.next {
		n++
	}
	require.Equal(t, 1_000_000, n)
}

func TestAFieldNobodyJudgedIsSilentAndNamed(t *testing.T) {
	c := New(Options{Strings: []string{"freeze.leaf.name"}})
	f := FormOf[leaf](c)
	v := leaf{name: "said", secret: "unsaid"}
	b := Append(c.NewWriter(), nil, f, &v)
	require.Contains(t, string(b), "said")
	require.NotContains(t, string(b), "unsaid")
	require.Equal(t, []string{"freeze.leaf.secret"}, c.Unjudged())
}

func TestSchemasDifferWhenTypesDo(t *testing.T) {
	one := codec().Schema(reflect.TypeFor[tree]())
	require.Equal(t, one, codec().Schema(reflect.TypeFor[tree]()))
	require.NotEqual(t, one, codec().Schema(reflect.TypeFor[leaf]()))
	less := New(Options{Drop: []string{"freeze.tree.scratch", "freeze.tree.by"}})
	less.Admit(&rand.PCG{}, square{})
	require.NotEqual(t, one, less.Schema(reflect.TypeFor[tree]()))
}

func TestWhatCannotBeWrittenIsRefusedAtOnce(t *testing.T) {
	require.PanicsWithValue(t, "freeze: freeze.tree.scratch is a chan int, which cannot be written: drop it",
		func() { FormOf[tree](New(Options{})) })
	c := New(Options{Drop: []string{"freeze.tree.scratch"}})
	v := sample()
	require.Panics(t, func() { Append(c.NewWriter(), nil, FormOf[*tree](c), &v) }, "a PCG that nobody named")
}

func TestWritingAllocatesNothing(t *testing.T) {
	type event struct {
		who  *square
		list []leaf
	}
	c := codec()
	f, w := FormOf[event](c), c.NewWriter()
	v := event{who: &square{1}, list: make([]leaf, 100)}
	b := Append(w, nil, f, &v)
	require.Zero(t, testing.AllocsPerRun(100, func() { b = Append(w, b[:0], f, &v) }))
}

func FuzzRead(f *testing.F) {
	c := codec()
	form := FormOf[*tree](c)
	v := sample()
	f.Add(Append(c.NewWriter(), nil, form, &v))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var got *tree
		if _, err := Read(c, b, form, &got); err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		Append(c.NewWriter(), nil, form, &got)
	})
}
