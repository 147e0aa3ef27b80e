package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// A lease of an hour lets jobs survive an outage of almost an hour. It delays no heartbeat,
// because a heartbeat also reads cancel requests.
func TestLeaseMayLastAnHour(t *testing.T) {
	require.NoError(t, tryFlag(t, "dispatcherd serve", "--lease=1h"))
	require.ErrorContains(t, tryFlag(t, "dispatcherd serve", "--lease=1h1ms"), "must be at most 1h")
	var f serveFlags
	f.register(bare(nil), pflag.NewFlagSet("serve", pflag.ContinueOnError))
	require.Equal(t, 30*time.Second, f.cfg.Lease)
	f.cfg.Lease = time.Hour
	cfg, err := f.config()
	require.NoError(t, err)
	require.Equal(t, time.Second, cfg.Heartbeat)
	lease := shell.NewLease(cfg.Lease, cfg.Heartbeat, 0, 0)
	require.True(t, lease.Trusted(59*time.Minute+57*time.Second))
}
