package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// Control is a trial of a dispatcher without one of its safeguards. The judge must
// find the resulting violations. Otherwise the absence of violations in the
// unchanged dispatcher would prove nothing.
//
// The safeguard is removed in a copy of the source, which `go build -overlay` uses
// instead of the file. So the product has no switch that could be set by accident.
// If a setting can disable the safeguard, the setting is used.
type Control struct {
	Trial Trial // usually with Cuts
	// Found returns the number of expected violations that were found.
	Found func(r *judge.Report) int
}

// Cut is a change of a source file. The file must contain Old exactly Times times. White space does not count, so that a
// source that is only formatted in another way still matches.
type Cut struct {
	File     string // relative to the main module, or GOROOT/ and a path relative to Go's folder
	Old, New string
	Times    int
}

// Controls returns all controls.
func Controls() []*Control {
	forgotten := restore
	forgotten.Drain = 15 * time.Second
	return append([]*Control{
		{
			Trial: Trial{
				Name:  "poll-out",
				About: "no LISTEN and no scan of the table: jobs wait for ever",
				Setup: stage.Setup{
					Daemons: 2, Workers: 2, Flags: []string{"--listen=false", "--poll", "24h", "--lease", "10s"}, Offers: offers, Mix: plain, Types: types,
					Rate: 20, // slots are free and lanes become empty in between
				},
				Cuts:  []Cut{{"actor/config.go", "200 * time.Millisecond,", "24 * time.Hour,", 1}},
				Jobs:  [3]int{200, 200, 200}, // for 10 s, because the scans after the start find the first jobs
				Drain: 20 * time.Second,      // longer than a job may wait while a slot is idle
			},
			Found: func(r *judge.Report) int { return min(r.Lost, r.Stuck) },
		},
		{Trial: laggingFailover, Found: func(r *judge.Report) int { return r.Lost }},
		{
			Trial: named(
				databaseClock,
				"clock-out",
				"the database clock decides which dispatchers are lost",
				Cut{"claim/lease.go", "d.lost_at IS NULL AND ` + beatAt + ` = s.\"BeatAt\"", "false", 1},
				Cut{
					"claim/lease.go",
					"	ORDER BY d.id FOR UPDATE OF d SKIP LOCKED",
					"	UNION ALL SELECT id FROM dispatcherd.dispatchers WHERE id <> $1 AND lost_at IS NULL AND beat_at + lease < now()",
					1,
				},
			),
			Found: func(r *judge.Report) int { return r.Crashes },
		},
		{
			Trial: named(
				forgotten,
				"restore-out",
				"no dispatcher gives up its former id, and a sweep does not look for unknown ids: jobs stay running",
				Cut{"claim/lease.go", "now(), true WHERE $6 > 0", "now(), true WHERE $6 < 0", 1},
				Cut{
					"claim/sweep.go",
					"NOT IN (SELECT id FROM dispatcherd.dispatchers WHERE id NOT IN (SELECT id FROM mine))",
					"IN (SELECT id FROM mine)",
					1,
				},
			),
			Found: func(r *judge.Report) int { return r.Lost },
		},
	}, slices.Concat(claimControls(), rowControls(), floodControls(), tickControls(), keyControls(), flowControls(),
		hostileControls())...)
}

// claimControls are the controls of the conditions of claims and finishes.
func claimControls() []*Control {
	zombie := stoppedDispatcher
	zombie.Verify = nil
	return []*Control{
		{
			Trial: named(
				zombie,
				"fence-out",
				"a finish names the job and not the attempt or the dispatcher: a resumed dispatcher ends the attempt of another one",
				Cut{
					"claim/statements.go",
					"` + isItem + ` AND j.dispatcher = $5::int AND j.status",
					"j.id BETWEEN i.id AND i.id AND i.id > 0 AND $5::int IS NOT NULL AND j.status",
					2,
				},
				Cut{"claim/statements.go", "j.attempt = ($1::int[])[j.id - r.base + 1]", "($1::int[])[j.id - r.base + 1] > 0", 1},
				Cut{"claim/statements.go", "AND j.dispatcher = $2::int AND j.status", "AND $2::int IS NOT NULL AND j.status", 1},
			),
			Found: func(r *judge.Report) int { return r.Stale },
		},
		{
			Trial: Trial{
				Name:  "status-out",
				About: "a claim does not check whether the job is still pending: two dispatchers run it",
				Setup: stage.Setup{Daemons: 2, Workers: 2, Offers: offers, Mix: plain, Types: types},
				Jobs:  [3]int{3000, 3000, 3000},
				Drain: 15 * time.Second,
				Cuts: []Cut{
					{"claim/statements.go", "claimable = `status = 'pending' AND (run_at", "claimable = `(run_at", 1},
					{"claim/statements.go", "(SELECT ctid FROM free)) AND status = 'pending'", "(SELECT ctid FROM free))", 1},
				},
			},
			Found: func(r *judge.Report) int { return r.Illegal },
		},
	}
}

func named(t Trial, name, about string, cuts ...Cut) Trial {
	t.Name, t.About, t.Cuts = name, about, cuts
	return t
}

// RunControl runs a control and reports whether the judge has detected it.
func RunControl(ctx context.Context, env *rig.Rig, c *Control, seed uint64) (line string, caught bool, err error) {
	begun := time.Now()
	o, err := Run(ctx, env, &c.Trial, Short, seed)
	if err != nil {
		return "", false, err
	}
	r := o.Report
	caught = c.Found(r) > 0 && len(o.Failures) > 0
	line = fmt.Sprintf(
		"chaos: control=%s caught=%v lost=%d unexpected=%d stale_accepted=%d illegal=%d disorder=%d stuck=%d twice_at_once=%d "+
			"tick_twice=%d tick_lost=%d key_over=%d key_order=%d"+
			" joined_early=%d joined_lost=%d joined_twice=%d orphans=%d took=%v",
		c.Trial.Name,
		caught,
		r.Lost,
		r.Unexpected,
		r.Stale,
		r.Illegal,
		r.Disorder,
		r.Stuck,
		r.Twice,
		r.TickTwice,
		r.TickLost,
		r.KeyOver,
		r.KeyOrder,
		r.JoinedEarly,
		r.JoinedLost,
		r.JoinedTwice,
		r.Orphans,
		round(time.Since(begun)),
	)
	return line, caught, nil
}

// alter builds the daemon with the trial's cuts.
func alter(ctx context.Context, env *rig.Rig, t *Trial) (restore func() error, err error) {
	overlay, err := writeOverlay(env.Root, filepath.Join(env.Dir, t.Name+"-src"), t.Cuts)
	if err != nil {
		return nil, err
	}
	if err := env.Rebuild(ctx, overlay); err != nil {
		return nil, err
	}
	return func() error { return env.Rebuild(context.WithoutCancel(ctx), "") }, nil
}

// sourceFile returns the path of the file of a cut.
func sourceFile(root, file string) string {
	if rest, ok := strings.CutPrefix(file, "GOROOT/"); ok {
		return filepath.Join(goRoot(), rest)
	}
	return filepath.Join(root, file)
}

// goRoot is the folder of the Go installation that builds the daemon.
var goRoot = sync.OnceValue(func() string {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "" // the error is reported when the file is not found
	}
	return strings.TrimSpace(string(out))
})

// formatted matches a text with any white space between its characters, and with the comma that Go demands where a list ends
// with its line.
func formatted(text string) *regexp.Regexp {
	var b strings.Builder
	for i, r := range strings.Join(strings.Fields(text), "") {
		if i > 0 {
			b.WriteString(`\s*`)
		}
		if i > 0 && strings.ContainsRune(")}", r) {
			b.WriteString(`,?\s*`)
		}
		b.WriteString(regexp.QuoteMeta(string(r)))
	}
	return regexp.MustCompile(b.String())
}

// writeOverlay writes the altered copies and the overlay file that names them.
func writeOverlay(root, dir string, cuts []Cut) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	texts, replace := map[string]string{}, map[string]string{}
	for _, c := range cuts {
		text, ok := texts[c.File]
		if !ok {
			source, err := os.ReadFile(sourceFile(root, c.File))
			if err != nil {
				return "", err
			}
			text = string(source)
		}
		old := formatted(c.Old)
		if n := len(old.FindAllStringIndex(text, -1)); n != c.Times {
			return "", fmt.Errorf("%s has %q %d times, want %d: the source has changed, so the control must follow", c.File, c.Old, n, c.Times)
		}
		texts[c.File] = old.ReplaceAllLiteralString(text, c.New)
	}
	for file, text := range texts {
		altered := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(altered, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[sourceFile(root, file)] = altered
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// notRepeated makes the store consider no error to be caused by a row.
var notRepeated = Cut{"claim/refused.go", "len(e.Code) == 5 && e.Code != insufficientPrivilege &&", "e.Code == \"\" &&", 1}

// rowControls are the controls of the trials in which single rows are locked, damaged,
// large or changed.
func rowControls() []*Control {
	unreadable, large := unreadableRows, largeBatches
	unreadable.Drain, large.Drain = 15*time.Second, 15*time.Second
	return []*Control{
		{
			Trial: named(
				unreadable,
				"isolation-out",
				"a statement that fails because of one row is not repeated row by row: one unreadable row stops all",
				notRepeated,
			),
			Found: func(r *judge.Report) int { return r.Lost },
		},
		{
			Trial: named(
				large,
				"payload-out",
				"a claim reads payloads of every size: it reaches the statement timeout again and again",
				notRepeated,
				Cut{
					"claim/statements.go",
					"CASE WHEN pg_column_compression(payload) IS NULL THEN\n\tCASE WHEN",
					"CASE WHEN $4::int IS NOT NULL THEN payload WHEN pg_column_compression(payload) IS NULL THEN\n\tCASE WHEN",
					1,
				},
				Cut{
					"claim/config.go",
					`"statement_timeout":                   limit,`,
					`"statement_timeout": "1000",`,
					1,
				}, // for a batch that is quickly inserted
			),
			Found: func(r *judge.Report) int { return r.Lost },
		},
		{
			Trial: named(operatorUpdates, "lane-out", "a dispatcher does not compare type and priority of a claimed row with those of its lane",
				Cut{"actor/claim.go", "return w.Type != c.index.Name(j.Type) || w.Priority != j.Priority", "return false", 1},
			),
			Found: func(r *judge.Report) int { return r.Affinity },
		},
		{
			Trial: named(rowLocks, "patience-out", "a finish waits for row locks as long as for every other statement",
				Cut{"claim/store.go", "finishPatience.Milliseconds()), finishStatements", "4000), finishStatements", 1},
			),
			Found: func(r *judge.Report) int { return r.Delayed },
		},
	}
}

// floodControls are the controls of the floods.
func floodControls() []*Control {
	unlimited := queueFlood
	unlimited.Before = func(ctx context.Context, s *Scene) error {
		always := `CREATE OR REPLACE FUNCTION dispatcherd.may_notify() RETURNS boolean LANGUAGE sql AS 'SELECT true'`
		return s.Exec(ctx, append(slices.Clone(smallQueue), always)...)
	}
	return []*Control{
		{
			Trial: named(connectionFlood, "flood-out", "neither the rate of connections nor the lines that they cause are bounded",
				Cut{"internal/daemon/connection_rate.go", "at.Sub(now) > burst", "at.Sub(now) < 0", 1},
				Cut{"internal/daemon/limitedlog.go", "time.Second, perSecond, 0,", "time.Second, perSecond, 1,", 1},
			),
			Found: func(r *judge.Report) int { return r.Excess },
		},
		{
			Trial: named(unlimited, "notify-out", "statements notify although the notification queue is full"),
			Found: func(r *judge.Report) int { return r.Excess },
		},
	}
}
