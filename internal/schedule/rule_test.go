package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// An error about something that other programs accept says what to use here.
func TestErrorsNameTheColumnToUse(t *testing.T) {
	for _, c := range []struct {
		change func(*contract.SchedulePlan)
		says   string
	}{
		{
			func(s *contract.SchedulePlan) { s.Spec = "@every 5m" },
			`spec "@every 5m": not a cron expression here: use kind "interval", for example with every "10m"`,
		},
		{
			func(s *contract.SchedulePlan) { s.Spec = " @Reboot" },
			`spec " @Reboot": not a cron expression here: use kind "startup", for example with once "start"`,
		},
		{func(s *contract.SchedulePlan) { s.Spec = "CRON_TZ=Asia/Tokyo 30 2 * * *" },
			`spec "CRON_TZ=Asia/Tokyo 30 2 * * *": not a cron expression here: use time_zone, for example "Europe/Berlin", and a spec ` +
				`without it, for example "30 2 * * *"`},
		{func(s *contract.SchedulePlan) { s.Spec = "TZ=UTC @daily" },
			`spec "TZ=UTC @daily": not a cron expression here: use time_zone, for example "Europe/Berlin", and a spec without it, for ` +
				`example "30 2 * * *"`},
		{func(s *contract.SchedulePlan) { s.Kind = "foo" }, `kind "foo": must be cron, interval, startup or startup-worker, for example "cron"`},
		{func(s *contract.SchedulePlan) { s.Kind, s.Every = contract.Interval, contract.Duration(time.Minute) },
			`spec "@daily": only a schedule of kind cron has it, and this one is of kind "interval": remove it (with 'schedule set', write ` +
				`spec=), or set both, for example kind "cron" with spec "30 2 * * *"`},
	} {
		s := cronPlan(1, "@daily", "UTC")
		c.change(s)
		require.EqualError(t, CheckPlan(s), c.says)
	}
}

// Without planned occasions the error says when the schedule runs.
func TestErrorOfOccasionsSaysWhenTheScheduleRuns(t *testing.T) {
	of := func(kind, once string) error {
		_, err := Upcoming(&contract.SchedulePlan{Name: "s", Kind: kind, Once: once}, begin, 1)
		return err
	}
	_, err := Upcoming(intervalPlan(1, 2*time.Second), begin, 1)
	require.EqualError(
		t,
		err,
		`schedule "i" is of kind interval and runs 2s after the end of its last run: only schedules of kind cron have planned occasions`,
	)
	require.ErrorContains(t, of(contract.StartupWorker, ""), "runs once in each new worker process:")
	require.ErrorContains(t, of(contract.Startup, contract.OncePerStart), "runs once per start of the cluster:")
	require.ErrorContains(t, of(contract.Startup, contract.OncePerVersion), "runs once per version of the application:")
	require.ErrorContains(t, of(contract.Startup, contract.OnceEver), "runs once:")
}
