package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func TestAllowListMayBeATableOfTheFile(t *testing.T) {
	file := configFileWith(t, "[allow]\npdf = [1001, 'root', '@50']\nunder_score = 7\n'semi;colon' = 8\n'*' = []\n")
	got := invocation{args: []string{"config", "show", "--config", file}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	require.Contains(t, got.out, "*=;pdf=1001,0,@50;semi;colon=8;under_score=7")

	file = configFileWith(t, "[allow]\npdf = ['no-such-user']\n")
	got = invocation{args: []string{"config", "show", "--config", file}}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, `unknown user no-such-user`)
}

// The test uses real processes. If the test runs as root, one of them runs as another user.
func TestWorkerOfAnUnlistedUserIsRejectedWithReason(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.Chmod(w.dir, 0o755))
	cfg := w.config("d")
	cfg.WorkerAccess.Mode = 0o666
	me := os.Getuid()
	require.NoError(t, cfg.Allow.Set(fmt.Sprintf("mine=%d;other=%d;unlisted=", me, me+4000)))
	h := w.start(cfg)

	r := helloRaw(t, cfg.WorkerSocket, "mine", "free")
	r.say(`{"op":"slot_add","slots":[{"slot":7,"types":["mine","other"]}]}`)
	refusal := r.expect("error")
	require.Equal(t, "bad_slot", refusal.Code)
	require.False(t, refusal.Fatal)
	require.Contains(t, refusal.Message, fmt.Sprintf(`slot 7: uid %d, gid %d may not serve type "other"`, me, os.Getgid()))
	hello := dialRaw(t, cfg.WorkerSocket)
	hello.say(`{"op":"hello","versions":[1,1],"worker":"raw","slots":[{"slot":0,"types":["unlisted"]}]}`)
	hello.refused("bad_slot", true, `may not serve type "unlisted"`)
	requireMetric(t, cfg, "dispatcherd_worker_denied_total 2")
	require.Contains(t, h.log.text(), `"type":"other"`)

	if me == 0 { // only root may change the user
		stranger := w.workerWith(
			workerScript{
				Socket:  cfg.WorkerSocket,
				Name:    "stranger",
				UID:     4000,
				Slots:   []scriptSlots{{N: 1, Types: []string{"mine"}}},
				Handles: []string{"mine"},
			},
		)
		stranger.ends(t, exit.Internal)
		require.Contains(t, stranger.errors.text(), `uid 4000, gid 4000 may not serve type "mine"`)
		w.workerWith(
			workerScript{
				Socket:  cfg.WorkerSocket,
				Name:    "other",
				UID:     4000,
				Slots:   []scriptSlots{{N: 1, Types: []string{"other"}}},
				Handles: []string{"other"},
			},
		)
		w.await(w.insert("other", work{}), dispatcherd.Done)
	}
	job := w.insert("mine", work{})
	r.say(`{"op":"done","job":%d,"attempt":1,"session":"%s"}`, r.expect("job").Job, r.nonce)
	w.await(job, dispatcherd.Done) // the refused offer did not end the session
}

// requireMetric checks that /metrics contains a line.
func requireMetric(t *testing.T, cfg daemon.Config, line string) {
	t.Helper()
	text, err := askAPI(cfg, "/metrics")
	require.NoError(t, err)
	require.Contains(t, text, line+"\n")
}
