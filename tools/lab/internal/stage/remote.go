package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// prepareRemote makes what remote workers need before the daemons start.
func (s *Stage) prepareRemote(ctx context.Context, o *Setup) (err error) {
	if !o.Remote {
		return nil
	}
	if s.remote, err = s.Credentials(); err != nil || o.Hosts == 0 {
		return err
	}
	s.network, err = rig.NewNetwork(ctx, o.Hosts)
	return err
}

// listenRemote lets a daemon listen for remote workers.
func (s *Stage) listenRemote(d *Daemon, l *rig.Launch) (err error) {
	host := "127.0.0.1"
	if s.network != nil {
		host, l.Host = "0.0.0.0", s.network.Center // the namespace has only the links to the hosts
	}
	if d.Port, err = rig.FreePort(); err != nil {
		return err
	}
	l.Flags = append(s.remote.Flags(host+":"+d.Port), l.Flags...)
	return nil
}

// startRemote starts the i-th process of remote workers, each with a link to each of the daemons.
func (s *Stage) startRemote(i int, daemons []*Daemon, o *Setup) (*Worker, error) {
	w := &Worker{Name: fmt.Sprint("w", i)}
	center := "127.0.0.1"
	if s.network != nil {
		w.Host = s.network.Hosts[i%len(s.network.Hosts)]
		center = w.Host.Center
	}
	members := make([]string, max(1, o.Members)) // their addresses
	for m := range members {
		var links []*fault.Proxy
		var addresses []string
		for _, d := range daemons {
			at := center + ":" + d.Port
			if s.network == nil && !o.Direct {
				p, err := fault.Listen("tcp", "127.0.0.1:0", "tcp", at)
				if err != nil {
					return nil, err
				}
				links, at = append(links, p), p.Addr().String()
			}
			addresses = append(addresses, "tls://"+at)
		}
		members[m], w.Links = strings.Join(addresses, ","), append(w.Links, links)
	}
	w.logs = func(life int) (files []string) {
		for m := range members {
			files = append(files, s.logOf(w, life, m))
		}
		return files
	}
	groups := w.offer(o.Offers, len(members))
	out, err := os.Create(filepath.Join(s.dir, w.Name+".out"))
	if err != nil {
		return nil, err
	}
	reach := program.Dispatcher{TokenFile: s.remote.Token[i%len(s.remote.Token)], CA: s.remote.Cert}
	w.Keeper = rig.Keep(out, true, func(life int) *exec.Cmd {
		list := filepath.Join(s.dir, fmt.Sprintf("%s.%d.json", w.Name, life))
		if err := writeMembers(list, w, life, members); err != nil {
			fmt.Fprintln(out, err) // the process finds no list, and says so
		}
		args := append(reach.Args(), "-members", list, "-slots", groups, "-types", strings.Join(s.types, ","))
		line := w.Host.Inside(append([]string{s.Worker}, args...)...)
		return exec.Command(line[0], line[1:]...)
	})
	return w, nil
}

// writeMembers writes the list of the workers of a process.
func writeMembers(file string, w *Worker, life int, addresses []string) error {
	var list []history.Colleague
	for m, log := range w.logs(life) {
		list = append(list, history.Colleague{Name: w.Member(m), Log: log, Dispatcher: addresses[m]})
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// Member is the name of a member of the process, in all its lives.
func (w *Worker) Member(m int) string { return fmt.Sprintf("%s.%d", w.Name, m) }

// Set replaces the rules of all links of the worker.
func (w *Worker) Set(r fault.Rules) { w.each(func(l *fault.Proxy) { l.Set(r) }) }

// Cut closes all connections of the worker.
func (w *Worker) Cut() { w.each((*fault.Proxy).Cut) }

func (w *Worker) each(do func(*fault.Proxy)) {
	for _, links := range w.Links {
		for _, l := range links {
			do(l)
		}
	}
}

// Reach returns the host of the i-th process of further workers, and how they reach the first daemon. It is this machine without hosts.
func (s *Stage) Reach(i int) (rig.Host, program.Dispatcher) {
	host := rig.Host{Center: "127.0.0.1"}
	if s.network != nil {
		host = s.network.Hosts[i%len(s.network.Hosts)]
	}
	return host, program.Dispatcher{
		Addresses: "tls://" + host.Center + ":" + s.Daemons[0].Port, TokenFile: s.remote.Token[i%len(s.remote.Token)], CA: s.remote.Cert,
	}
}
