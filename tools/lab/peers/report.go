package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// result is one line of the report.
type result struct {
	Name        string        `json:"name"`
	Settings    string        `json:"settings"`
	Reason      string        `json:"reason"`
	Rate        stats.Summary `json:"jobs_per_second"`
	PostgresCPU stats.Summary `json:"postgres_cpu_us_per_job"`
	Ratio       float64       `json:"dispatcherd_is_times"` // median of dispatcherd divided by this median
	Runs        []outcome     `json:"runs"`
}

type document struct {
	Conditions map[string]string `json:"conditions"`
	Results    []result          `json:"results"`
}

func report(a *arena, all []contestant, runs map[string][]outcome) error {
	doc := document{Conditions: a.conditions()}
	ours := stats.Summarise(pick(runs["dispatcherd"], outcome.rate)).Median
	for _, c := range all {
		r := result{Name: c.name, Settings: c.settings, Reason: c.reason, Runs: runs[c.name]}
		r.Rate = stats.Summarise(pick(r.Runs, outcome.rate))
		r.PostgresCPU = stats.Summarise(pick(r.Runs, outcome.cpu))
		r.Ratio = ours / r.Rate.Median
		doc.Results = append(doc.Results, r)
	}
	if a.output == "json" {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		if err := out.Encode(doc); err != nil {
			return err
		}
		note("%s", lastLine(doc))
		return nil
	}
	printTable(doc)
	fmt.Println(lastLine(doc))
	return nil
}

func (o outcome) rate() float64 { return o.Rate }
func (o outcome) cpu() float64  { return o.PostgresCPU }

func pick(runs []outcome, what func(outcome) float64) []float64 {
	values := make([]float64, len(runs))
	for i, o := range runs {
		values[i] = what(o)
	}
	return values
}

func (a *arena) conditions() map[string]string {
	var settings []string
	for _, k := range []string{"fsync", "synchronous_commit", "shared_buffers", "max_wal_size", "checkpoint_timeout"} {
		settings = append(settings, k+"="+rig.Measured[k])
	}
	return map[string]string{
		"cores":    fmt.Sprint(runtime.NumCPU()),
		"postgres": a.rig.Postgres.Version(),
		"settings": strings.Join(settings, " "),
		"jobs":     fmt.Sprint(a.jobs),
		"rounds":   fmt.Sprint(a.rounds),
		"measured": "from the start of the first job until the end of the last one is in Postgres; rows inserted and analysed before",
	}
}

func printTable(doc document) {
	c := doc.Conditions
	fmt.Printf("%s jobs that do nothing, %s rounds, %s cores, Postgres %s (%s)\n\n",
		c["jobs"], c["rounds"], c["cores"], c["postgres"], c["settings"])
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tjobs/s\tleast\tmost\tdispatcherd is\tPostgres µs/job\t")
	for _, r := range doc.Results {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.2f ×\t%.1f\t\n", r.Name, r.Rate.Median, r.Rate.Min, r.Rate.Max, r.Ratio, r.PostgresCPU.Median)
	}
	_ = w.Flush() // writes to standard output do not fail
	fmt.Println()
	for _, r := range doc.Results {
		fmt.Printf("%s: %s\n    %s\n", r.Name, r.Settings, r.Reason)
	}
}

func lastLine(doc document) string {
	rate, ratio := map[string]float64{}, map[string]float64{}
	for _, r := range doc.Results {
		rate[r.Name], ratio[r.Name] = r.Rate.Median, r.Ratio
	}
	return fmt.Sprintf(
		"peers: dispatcherd=%.0f graphile=%.0f river=%.0f pgboss=%.0f floor=%.0f ratio_graphile=%.2f ratio_river=%.2f ratio_floor=%.2f",
		rate["dispatcherd"],
		rate["graphile"],
		rate["river"],
		rate["pgboss"],
		rate["floor"],
		ratio["graphile"],
		ratio["river"],
		ratio["floor"],
	)
}
