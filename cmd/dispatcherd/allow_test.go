package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestWhoIsListedMayServeATypeAndNobodyElse(t *testing.T) {
	var l allowList
	require.Empty(t, l.objection(workerproto.Peer{UID: 7, GID: 7}, "pdf"), "no list, no objection")
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
			require.Equal(t, may, l.objection(who, typ) == "", "%+v %s", who, typ)
		}
	}
	require.NoError(t, l.Set("*=@9"))
	require.NotEmpty(t, l.objection(workerproto.Peer{UID: 1001, GID: 1001}, "excel"), "the rest is closed as well now")
	require.Empty(t, l.objection(workerproto.Peer{UID: 5, GID: 9}, "excel"))
	require.NotEmpty(t, l.objection(workerproto.Peer{UID: 5, GID: 9}, "pdf"), "a line of its own counts alone")
	require.Equal(t, `uid 5, gid 9 may not serve type "pdf": the dispatcher allows that to others only; run the worker as one of them, `+
		`or add the uid to --allow (table [allow]) of the dispatcher and restart it`, l.objection(workerproto.Peer{UID: 5, GID: 9}, "pdf"))
}

func TestAListSurvivesBeingPrintedAndRead(t *testing.T) {
	var l, again allowList
	require.NoError(t, l.Set("pdf=1,@2\na;b=3\n*=\n"))
	require.Len(t, l.byType, 3)
	require.NoError(t, again.Set(strings.ReplaceAll(l.String(), "a;b=3;", "")))
	require.Equal(t, allowed{uids: []int{1}, gids: []int{2}}, again.byType["pdf"])
}

func TestNonsenseInAListIsNamed(t *testing.T) {
	for text, says := range map[string]string{
		"pdf":                `"pdf" is not TYPE=USERS`,
		"=1":                 `"=1" is not TYPE=USERS`,
		"pdf=no-such-user":   `type "pdf": user: unknown user no-such-user: give a number`,
		"pdf=@no-such-group": `type "pdf": group: unknown group no-such-group`,
		"pdf=4294967295":     `"4294967295" is no id`,
		"pdf=-1":             `unknown user -1`,
		"pdf=1;pdf=2":        `type "pdf" is listed twice`,
	} {
		require.ErrorContains(t, new(allowList).Set(text), says, text)
	}
	require.ErrorContains(t, new(allowList).Set("pdf="+strings.Repeat("1,", maxAllowed+1)), "more than 10000 users")
}

func TestTheListMayStandInTheFileAsATable(t *testing.T) {
	file := configFileWith(t, "[allow]\npdf = [1001, 'root', '@50']\nunder_score = 7\n'semi;colon' = 8\n'*' = []\n")
	got := invocation{args: []string{"config", "show", "--config", file}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	require.Contains(t, got.out, "*=;pdf=1001,0,@50;semi;colon=8;under_score=7")

	file = configFileWith(t, "[allow]\npdf = ['no-such-user']\n")
	got = invocation{args: []string{"config", "show", "--config", file}}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, `unknown user no-such-user`)
}

// Real processes: this one, and where it may become others, one of another user.
func TestAWorkerOfTheWrongUserIsTurnedAwayAndSaysWhy(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.Chmod(w.dir, 0o755))
	cfg := w.config("d")
	cfg.SocketMode = 0o666
	me := os.Getuid()
	require.NoError(t, cfg.Allow.Set(fmt.Sprintf("mine=%d;other=%d;nobodys=", me, me+4000)))
	h := w.start(cfg)

	r := helloRaw(t, cfg.WorkerSocket, "mine", "free")
	r.say(`{"op":"slot_add","slots":[{"slot":7,"types":["mine","other"]}]}`)
	refusal := r.expect("error")
	require.Equal(t, "bad_slot", refusal.Code)
	require.False(t, refusal.Fatal)
	require.Contains(t, refusal.Message, fmt.Sprintf(`slot 7: uid %d, gid %d may not serve type "other"`, me, os.Getgid()))
	hello := dialRaw(t, cfg.WorkerSocket)
	hello.say(`{"op":"hello","versions":[1,1],"worker":"raw","slots":[{"slot":0,"types":["nobodys"]}]}`)
	hello.refused("bad_slot", true, `may not serve type "nobodys"`)
	requireMetric(t, cfg, "dispatcherd_worker_denied_total 2")
	require.Contains(t, h.log.text(), `"type":"other"`)

	if me == 0 { // only root may become somebody else
		stranger := w.workerWith(workerScript{Socket: cfg.WorkerSocket, Name: "stranger", UID: 4000, Slots: []scriptSlots{{N: 1, Types: []string{"mine"}}}, Handles: []string{"mine"}})
		stranger.ends(t, exit.Internal)
		require.Contains(t, stranger.errors.text(), `uid 4000, gid 4000 may not serve type "mine"`)
		w.workerWith(workerScript{Socket: cfg.WorkerSocket, Name: "other", UID: 4000, Slots: []scriptSlots{{N: 1, Types: []string{"other"}}}, Handles: []string{"other"}})
		w.await(w.insert("other", work{}), dispatcherd.Done)
	}
	job := w.insert("mine", work{})
	r.say(`{"op":"done","job":%d,"attempt":1,"session":"%s"}`, r.expect("job").Job, r.nonce)
	w.await(job, dispatcherd.Done) // the refused offer did not end the session
}

// requireMetric holds a line against what /metrics shows.
func requireMetric(t *testing.T, cfg daemonConfig, line string) {
	t.Helper()
	text, err := askAPI(cfg, "/metrics")
	require.NoError(t, err)
	require.Contains(t, text, line+"\n")
}
