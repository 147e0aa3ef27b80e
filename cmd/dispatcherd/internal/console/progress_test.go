package console

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressLineIsRedrawnAndRemoved(t *testing.T) {
	var b strings.Builder
	clock := time.Unix(0, 0)
	p := NewProgress(&b, "jobs", 200, func() time.Time { return clock })
	clock = clock.Add(time.Second)
	p.Update(10, 50)
	clock = clock.Add(time.Millisecond)
	p.Update(11, 55)
	require.Equal(t, "\r[#######.......................]  25 %  10 jobs  10/s", b.String(), "too soon to draw again")
	clock = clock.Add(time.Second)
	p.Update(40, 400)
	require.Contains(t, b.String(), "\r[##############################] 100 %  40 jobs  20/s")
	b.Reset()
	p.Clear()
	p.Clear()
	require.Equal(t, "\r"+strings.Repeat(" ", 53)+"\r", b.String())

	var none *Progress
	none.Update(1, 1)
	none.Clear()
}
