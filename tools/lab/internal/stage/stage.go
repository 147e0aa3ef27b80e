package stage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// Setup describes the processes of an experiment.
type Setup struct {
	Name    string
	Daemons int
	Flags   []string // flags of every daemon
	Workers int      // number of workers of each daemon, or of all daemons with Remote
	Offers  []Offer  // offers of every worker
	Mix     func(n int64) history.Work
	Types   []string
	Rate    int // jobs per second; 0 = as many as possible
	// Schedules is the number of schedules. Each makes a tick per second. No worker runs their jobs.
	Schedules int
	Capacity  map[string]int // limits of keys
	Plain     bool           // no record of changes and executions: the triggers and logs cost time
	Logs      bool           // a record of executions although Plain
	Direct    bool           // no fault proxies: they cost time
	Idle      int            // how many daemons, the first ones, have no workers
	// FirstLeads says that the first daemon is the controller: the others start when it has the role.
	FirstLeads bool
	// Structures is the number of further slots of each worker, for jobs of batches, flows and parents.
	Structures int
	// Steady says that producers do not pause while many jobs wait.
	Steady bool
	// Public says that every user of the machine may open the sockets of the daemons. It needs root, as hostile programs do.
	Public bool
	Disk   int // size in megabytes of the disk of the database; 0 = unlimited; needs root
	// Remote says that workers connect to all daemons over TLS, in the order of the daemons, instead of each to its own.
	Remote  bool
	Members int // of Remote: how many workers, each with the Offers, run in one process; 0 = one
	Hosts   int // of Remote: network namespaces in which the processes of workers run in turn; 0 = none; needs root
}

// Stage is the set of processes of one experiment.
type Stage struct {
	*rig.Rig

	Daemons  []*Daemon
	Workers  []*Worker
	Producer *Producer
	database string
	dir      string // of logs and sockets
	types    []string
	logs     bool             // of the workers
	remote   *rig.Credentials // nil = workers use Unix sockets
	network  *rig.Network     // nil = none
	disk     *disk
	// structures says that there are jobs of structures.
	structures bool
	over       int64 // when StopAll was called

	callsMu sync.Mutex
	calls   []history.Call
}

// Start creates an empty database and starts daemons and workers. It returns when
// every slot is registered.
func Start(ctx context.Context, r *rig.Rig, o Setup) (_ *Stage, err error) {
	s := &Stage{
		Rig:      r,
		database: "chaos_" + strings.ReplaceAll(o.Name, "-", "_"),
		dir:      filepath.Join(r.Dir, o.Name),
		types:    o.Types,
		logs:     o.Logs || !o.Plain,
	}
	defer func() {
		if err != nil {
			s.StopAll()
			err = fmt.Errorf("setting up %s: %w", o.Name, err)
		}
	}()
	if err = os.Mkdir(s.dir, 0o711); err != nil {
		return nil, err
	}
	if err = s.createDatabase(ctx, o.Disk); err != nil {
		return nil, err
	}
	if _, err = migrations.Up(ctx, s.Postgres.URL(s.database)); err != nil {
		return nil, err
	}
	if !o.Plain {
		if err = s.Postgres.Exec(ctx, s.database, auditSQL); err != nil {
			return nil, err
		}
	}
	if o.Structures > 0 {
		if err = s.Exec(ctx, releasedSQL); err != nil {
			return nil, err
		}
		s.structures, s.types = true, append(slices.Clip(s.types), history.Structured...)
		o.Offers = append(slices.Clip(o.Offers), Offer{Slots: o.Structures, Types: history.Structured})
	}
	if err = s.insertSchedules(ctx, o.Schedules); err != nil {
		return nil, err
	}
	for key, capacity := range o.Capacity { // order-free: one row for each key
		if err = s.Exec(ctx, fmt.Sprintf(`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('%s', %d)`, key, capacity)); err != nil {
			return nil, err
		}
	}
	s.Producer = &Producer{mix: o.Mix, rate: o.Rate, steady: o.Steady}
	if err = s.prepareRemote(ctx, &o); err != nil {
		return nil, err
	}
	if s.Producer.Database, s.Producer.dsn, err = s.openDatabase("producers"); err != nil {
		return nil, err
	}
	for i := range o.Daemons {
		d, err := s.startDaemon(string(rune('a'+i)), i%2 == 1 && s.network == nil, &o) // a namespace has its own loopback
		if err != nil {
			return nil, err
		}
		s.Daemons = append(s.Daemons, d)
		if i == 0 && o.FirstLeads {
			if err := s.awaitController(ctx); err != nil {
				return nil, err
			}
		}
	}
	if err := s.startWorkers(ctx, &o); err != nil {
		return nil, err
	}
	if leaked, why := s.AwaitSlots(ctx, 30*time.Second); leaked != 0 {
		return nil, fmt.Errorf("not all slots are registered and free: %s", why)
	}
	return s, nil
}

func (s *Stage) createDatabase(ctx context.Context, megabytes int) error {
	where := ""
	if megabytes > 0 {
		var err error
		if s.disk, err = s.mountDisk(ctx, megabytes); err != nil {
			return err
		}
		where = " TABLESPACE " + tablespace
	}
	return s.Postgres.Exec(ctx, "postgres", `DROP DATABASE IF EXISTS `+s.database, `CREATE DATABASE `+s.database+where)
}

// DropDatabase removes the database. The logs remain until the rig is closed.
func (s *Stage) DropDatabase(ctx context.Context) error {
	if err := s.Postgres.Exec(ctx, "postgres", `DROP DATABASE IF EXISTS `+s.database+` WITH (FORCE)`); err != nil {
		return err
	}
	if s.disk == nil {
		return nil
	}
	return s.disk.unmount(ctx, s.Postgres)
}

// Close ends all processes of the experiment and removes its database.
func (s *Stage) Close(ctx context.Context) error {
	s.StopAll()
	return s.DropDatabase(context.WithoutCancel(ctx))
}

// StopAll ends all processes of the experiment.
func (s *Stage) StopAll() {
	s.over = history.Now()
	ended := make(chan struct{})
	for _, w := range s.Workers {
		go func() {
			_ = w.Stop(10 * time.Second) // it may have been killed
			ended <- struct{}{}
		}()
	}
	for range s.Workers {
		<-ended
	}
	for _, w := range s.Workers {
		w.each(func(l *fault.Proxy) { _ = l.Close() }) // an error is ignored: the connections end in any case
	}
	for _, d := range s.Daemons {
		d.close()
	}
	if s.network != nil {
		s.network.Close()
	}
	if s.Producer != nil && s.Producer.Database != nil {
		_ = s.Producer.Database.Close() // an error is ignored: the connection ends in any case
	}
}
