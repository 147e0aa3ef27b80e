package trace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Load returns an error or a trace that can be written and read again, whatever the
// files contain.
func FuzzLoad(f *testing.F) {
	f.Add("job_id,arrival_seconds,type,priority,mode,duration_seconds\n1,0.5,pdf,3,queued,1\n2,7,pdf,0,on_demand,0.001\n",
		"slot_id,worker,types\n1,w,pdf|excel\n", "seconds,slot_id,event\n0,1,register\n")
	f.Add("job_id,arrival_seconds,type,priority,mode,duration_seconds\n", "slot_id,worker,types\n1,\"w\n\",\"a\"\"b\"\n", "")
	f.Add("job_id,arrival_seconds,type,priority,mode,duration_seconds\n1,0,a|b,0,queued,1\n", "slot_id,worker,types\n1,w,a\\|b|c\\\\\n", "")
	f.Fuzz(func(t *testing.T, jobs, slots, events string) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, jobsFile), []byte(jobs), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, slotsFile), []byte(slots), 0o600))
		if events != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, eventsFile), []byte(events), 0o600))
		}
		read, err := Load(dir)
		if err != nil {
			return
		}
		again := filepath.Join(dir, "again")
		require.NoError(t, read.Write(again))
		back, err := Load(again)
		require.NoError(t, err)
		back.Name = read.Name
		require.Equal(t, read, back)
	})
}
