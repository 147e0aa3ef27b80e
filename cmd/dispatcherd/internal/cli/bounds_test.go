package cli

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestSizesAreReadAndShownWithUnits(t *testing.T) {
	for text, want := range map[string]string{
		"125829120": "120MiB", "120MiB": "120MiB", "1000000": "1MB", "1MB": "1MB", "1024KiB": "1MiB",
		"999": "999", "7B": "7", "0": "0", "3GB": "3GB",
	} {
		n := 0
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		Size(flags, &n, "size", "0", "4GiB", "")
		require.NoError(t, flags.Set("size", text), text)
		require.Equal(t, want, flags.Lookup("size").Value.String(), text)
	}
	for text, why := range map[string]string{
		"12 MiB": "give a number of bytes", "MiB": "give a number of bytes", "": "give a number of bytes", "1.5MiB": "give a number of bytes",
		"-1": "must be at least 0", "5GiB": "must be at most 4GiB", "99999999999GiB": "give a number of bytes",
	} {
		n := 0
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		Size(flags, &n, "size", "0", "4GiB", "")
		require.ErrorContains(t, flags.Set("size", text), why, text)
	}
}

func TestDefaultsOfDurationsAreShownInDays(t *testing.T) {
	for d, want := range map[time.Duration]string{
		168 * time.Hour: "7d", 36 * time.Hour: "1d12h", 10 * time.Minute: "10m", 90 * time.Second: "1m30s", time.Hour + time.Second: "1h0m1s",
		250 * time.Millisecond: "250ms", 0: "0", 25*time.Hour + time.Minute: "1d1h1m",
	} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		Number(flags, &d, "for", "0s", Longest, "")
		require.Equal(t, want, flags.Lookup("for").DefValue)
	}
}
