package claim

import (
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/stretchr/testify/require"
)

func TestNotificationPayloadIsParsedOrRejected(t *testing.T) {
	t.Parallel()
	a, ok := parseNotification("12 10 1772539200123456 a type")
	require.True(t, ok)
	require.Equal(t, contract.RowNotification{Type: "a type", Priority: 10, Key: contract.Key{RunAt: 1772539200123456, ID: 12}}, a)
	a, ok = parseNotification("12 10/7 1772539200123456 a type")
	require.True(t, ok)
	require.Equal(t, contract.RowNotification{Type: "a type", Priority: 10, Class: 8, Key: contract.Key{RunAt: 1772539200123456, ID: 12}}, a)
	for _, wrong := range []string{
		"1 2/8 3 pdf", "1 2/ 3 pdf", "1 2/-1 3 pdf", "1 2/255 3 pdf", "1 /1 3 pdf", "1 2/1/1 3 pdf", "", "1", "1 2 3", "1 2 3 ",
		"0 2 3 pdf", "-1 2 3 pdf", "1 11 3 pdf", "1 -1 3 pdf", "1 2 -3 pdf", "1 2 9223372036854775807 pdf", "x 2 3 pdf",
		"1 2 3 " + string(make([]byte, 129)),
	} {
		_, ok := parseNotification(wrong)
		require.False(t, ok, wrong)
	}
}

func TestAdmittedRowsAreParsedOrRejected(t *testing.T) {
	t.Parallel()
	to, rows := parseAdmitted("7\n12 10/7 5 a type\n13 2 6 pdf")
	require.EqualValues(t, 7, to)
	require.Equal(t, []contract.RowNotification{
		{Type: "a type", Priority: 10, Class: 8, Key: contract.Key{RunAt: 5, ID: 12}},
		{Type: "pdf", Priority: 2, Key: contract.Key{RunAt: 6, ID: 13}},
	}, rows)
	for _, wrong := range []string{"", "7", "7\n", "\n1 2 3 pdf", "x\n1 2 3 pdf", "7\n1 2 3 pdf\n", "7\n1 2 3 pdf\nwrong"} {
		_, rows := parseAdmitted(wrong)
		require.Empty(t, rows, wrong)
	}
}

// Notifications that were not read yet are merged into one that names no row.
func TestUnreceivedNotificationsMerge(t *testing.T) {
	t.Parallel()
	l := &Listener{jobs: make(chan contract.Notification, 1)}
	n := contract.Notification{Rows: []contract.RowNotification{{Type: "pdf"}}}
	l.publish(n)
	require.Equal(t, n, <-l.Jobs())
	l.publish(n)
	l.publish(n)
	require.Zero(t, <-l.Jobs())
	require.Empty(t, l.Jobs())
}
