package daemon

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestOnlyListedUsersMayServeAType(t *testing.T) {
	var l AllowList
	require.Empty(t, l.Objection(workerproto.Peer{UID: 7, GID: 7}, "pdf"), "an empty list allows every user")
	require.NoError(t, l.Set("pdf=1001, root,@50; a=b=2 ;closed="))
	require.Equal(t, "a=b=2;closed=;pdf=1001,0,@50", l.String())
	for who, allowed := range map[workerproto.Peer]string{
		{UID: 1001, GID: 9}:  "pdf excel",
		{UID: 0, GID: 0}:     "pdf excel",
		{UID: 9, GID: 50}:    "pdf excel",
		{UID: 50, GID: 1001}: "excel",
		{UID: 2, GID: 9}:     "a=b excel",
		{UID: -1, GID: -1}:   "excel",
	} {
		for _, typ := range []string{"pdf", "a=b", "closed", "excel"} {
			may := strings.Contains(" "+allowed+" ", " "+typ+" ")
			require.Equal(t, may, l.Objection(who, typ) == "", "%+v %s", who, typ)
		}
	}
	require.NoError(t, l.Set("*=@9"))
	require.NotEmpty(t, l.Objection(workerproto.Peer{UID: 1001, GID: 1001}, "excel"), "the entry * applies to all other types")
	require.Empty(t, l.Objection(workerproto.Peer{UID: 5, GID: 9}, "excel"))
	require.NotEmpty(t, l.Objection(workerproto.Peer{UID: 5, GID: 9}, "pdf"), "the entry * does not apply to a listed type")
	require.Equal(t, `uid 5, gid 9 may not serve type "pdf": only other users may; run the worker as one of them, `+
		`or add the uid to --allow (table [allow]) of the dispatcher and restart it`, l.Objection(workerproto.Peer{UID: 5, GID: 9}, "pdf"))
}

func TestListRoundTrip(t *testing.T) {
	var l, again AllowList
	require.NoError(t, l.Set("pdf=1,@2\na;b=3\n*=\n"))
	require.Len(t, l.byType, 3)
	require.NoError(t, again.Set(strings.ReplaceAll(l.String(), "a;b=3;", "")))
	require.Equal(t, []string{"1", "@2"}, again.byType["pdf"])
}

func TestErrorNamesTheInvalidEntry(t *testing.T) {
	for text, says := range map[string]string{
		"pdf":                `"pdf" is not TYPE=USERS`,
		"=1":                 `"=1" is not TYPE=USERS`,
		"pdf=no-such-user":   `type "pdf": user: unknown user no-such-user: give a number`,
		"pdf=@no-such-group": `type "pdf": group: unknown group no-such-group`,
		"pdf=4294967295":     `"4294967295" is no id`,
		"pdf=-1":             `unknown user -1`,
		"payroll\u200b=1":    `"payroll\u200b": type has the invisible character U+200B`,
		"pdf=1;pdf=2":        `type "pdf" is listed twice`,
	} {
		require.ErrorContains(t, new(AllowList).Set(text), says, text)
	}
}

func TestRejectedCallerIsToldUserAndEntry(t *testing.T) {
	var l AllowList
	require.True(t, l.Empty())
	require.NoError(t, l.Set("pdf=1001;*=@50"))
	require.False(t, l.Empty())
	require.Empty(t, l.CallerObjection(workerproto.Peer{UID: 1001, GID: 9}, "pdf"))
	require.Equal(t, `uid 5, gid 50 may not use jobs of type "pdf": the entry "pdf" of --allow-api lists other users; call as one of them, `+
		`or add the uid to the entry (table [allow-api]) of the dispatcher and restart it`,
		l.CallerObjection(workerproto.Peer{UID: 5, GID: 50}, "pdf"))
	require.Contains(t, l.CallerObjection(workerproto.Peer{UID: -1, GID: -1}, "excel"), `the entry "*" of --allow-api`)
}

// A list that is accepted is printed in a form that means the same.
func FuzzList(f *testing.F) {
	f.Add("pdf=1,@2;*=")
	f.Add("c==@4,5")
	f.Fuzz(func(t *testing.T, text string) {
		var l, again AllowList
		if strings.Contains(text, "\n") || l.Set(text) != nil { // with line breaks a type may contain a semicolon
			return
		}
		require.NoError(t, again.Set(l.String()))
		require.Len(t, again.byType, len(l.byType))
		for typ, users := range l.byType {
			require.ElementsMatch(t, users, again.byType[typ])
		}
	})
}

// The sentence is true for every use that concerns jobs of all types, such as the retry of a batch.
func TestObjectionOfAllTypesNamesNoSingleUse(t *testing.T) {
	var l AllowList
	require.NoError(t, l.Set("payroll=1001"))
	require.Empty(t, l.LimitsObjection(workerproto.Peer{UID: 1001}))
	text := l.LimitsObjection(workerproto.Peer{UID: 7, GID: 7})
	require.Contains(
		t,
		text,
		`uid 7, gid 7 may not do this, because it concerns jobs of all types (keys, limits, members of batches), and the entry "payroll"`,
	)
}
